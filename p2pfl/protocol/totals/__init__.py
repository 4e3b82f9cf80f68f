"""Totals: exact sums over a participant set, up a spanning tree and down again, decided without a clock or a loop."""
