"""Runs side by side: what settings give, how far they differ over the same seeds, and what they cost."""
