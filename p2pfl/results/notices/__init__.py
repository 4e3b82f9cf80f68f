"""Notices of a run besides its records: their kinds, what raises them, and how they are worded."""
