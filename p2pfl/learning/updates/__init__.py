"""Clipping of gradients, and learning rates by round and step, before an optimiser takes a step."""
