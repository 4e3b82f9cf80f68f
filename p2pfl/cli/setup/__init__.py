"""Commands that prepare devices: keys, rosters and brokers."""
