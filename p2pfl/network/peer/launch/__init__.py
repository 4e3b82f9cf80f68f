"""Processes: many peers on one machine, and one worker for each."""
