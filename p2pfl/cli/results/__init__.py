"""Commands that compare runs and use their models."""
