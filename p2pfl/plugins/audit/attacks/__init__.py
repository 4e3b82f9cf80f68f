"""Attacks on single releases, and on what an observer can separate by them."""
