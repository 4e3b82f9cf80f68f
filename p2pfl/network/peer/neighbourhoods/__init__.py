"""Neighbourhoods of one live peer: synchronous, asynchronous, and with secure sums."""
