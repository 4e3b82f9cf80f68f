"""Checkpoints of simulations, and how a run begins or goes on."""
