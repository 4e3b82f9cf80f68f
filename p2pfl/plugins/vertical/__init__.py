"""Models of peers that hold different columns of the same people."""
