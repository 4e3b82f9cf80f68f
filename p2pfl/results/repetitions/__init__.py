"""Repetition of a run elsewhere: own modules, digests of data, and the comparison."""
