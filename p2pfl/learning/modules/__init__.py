"""Modules of others made fit to learn together: normalisation, references, the division into row and constants."""
