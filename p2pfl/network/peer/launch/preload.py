"""Modules that the fork server loads once, so that a peer's process starts at once and shares its memory.

Nothing here may start a thread: what is forked has only one.
"""

from p2pfl.core.imports import pause_collection

with pause_collection():  # else a full collection in a peer would write to all that it shares, and so copy 100 MB
    import p2pfl.network.peer.launch.worker
    from p2pfl.topology.lazy_networkx import Graph  # imports networkx, which each peer would hold for itself

__all__ = ["Graph", "p2pfl"]
