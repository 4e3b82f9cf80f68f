"""Modules that the fork server imports once for all processes of a sweep."""

from p2pfl.core.imports import pause_collection

with pause_collection():
    import p2pfl.simulation

__all__ = ["p2pfl"]
