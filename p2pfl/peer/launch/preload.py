"""Modules that the fork server loads once, so that a peer's process starts at once and shares its memory.

Nothing here may start a thread: what is forked has only one.
"""

import gc

import p2pfl.peer.launch.worker

gc.freeze()  # else a full collection in a peer would write to all that it shares, and so copy 100 MB

__all__ = ["p2pfl"]
