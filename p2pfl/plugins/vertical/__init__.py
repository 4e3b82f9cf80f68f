"""Vertical learning: models of peers that have different columns of the same people."""
