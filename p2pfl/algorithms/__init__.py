"""One idea, one file: how peers learn from each other."""
