"""Pages of statistics of all data."""
