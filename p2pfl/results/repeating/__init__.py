"""Repetition of a run elsewhere: own modules, and the comparison."""
