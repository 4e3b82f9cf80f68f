"""Combinations of settings that are refused: what a rule is, and tables of rules by subject."""
