"""Decide what one live peer does: events in, effects out, and the time is an argument."""
