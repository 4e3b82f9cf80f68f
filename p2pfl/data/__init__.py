"""Data sets, their splits across peers, and reproducible batches."""
