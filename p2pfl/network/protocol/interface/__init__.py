"""Interface of the session to its shell: events in, effects out."""
