"""Modules that the fork server imports once for all processes of a sweep."""

import p2pfl.simulation

__all__ = ["p2pfl"]
