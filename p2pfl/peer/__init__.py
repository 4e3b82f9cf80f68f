"""One live peer."""

from p2pfl.peer.peer import Peer, Progress

__all__ = ["Peer", "Progress"]
