"""One live peer.

Names are imported when they are first used: the fork server of ``run`` is started from this room
before torch is loaded.
"""

from typing import TYPE_CHECKING

from p2pfl.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.peer.peer import Notice, Peer, Progress

__all__ = ["Notice", "Peer", "Progress"]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    __getattr__ = lazily(__name__, dict.fromkeys(__all__, "peer"))
