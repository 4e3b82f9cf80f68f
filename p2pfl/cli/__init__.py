"""Arguments and printing."""
