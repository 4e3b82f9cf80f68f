"""Decisions of one live peer: events in, effects out, with the time as an argument."""
