"""Losses of boosting."""
