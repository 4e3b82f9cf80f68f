"""Evidence of runs, and runs without peers or people: others check both without the data."""
