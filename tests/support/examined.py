"""Findings of ``p2pfl doctor``."""


def sole(findings, check):
    """Return the one finding of a check."""
    [finding] = [each for each in findings if each.check == check]
    return finding
