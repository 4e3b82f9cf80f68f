"""Totals: exact sums over a participant set, up a spanning tree and down again, without a clock or an event loop."""
