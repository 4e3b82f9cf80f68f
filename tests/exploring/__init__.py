"""Explicit-state exploration: every state that a few peers can reach, whatever happens to messages, peers and time."""
