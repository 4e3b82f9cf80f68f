"""Modules that the fork server imports once for all processes of a sweep."""

from p2pfl.core.importing import uncollected

with uncollected():
    import p2pfl.simulation

__all__ = ["p2pfl"]
