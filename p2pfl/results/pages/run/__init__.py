"""Sections of the page of one run."""
