"""One live peer.

Names are imported when they are first used: the fork server of ``run`` is started from this room
before torch is loaded.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from p2pfl.peer.peer import Notice, Peer, Progress

__all__ = ["Notice", "Peer", "Progress"]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'p2pfl.peer' has no attribute {name!r}")
        import p2pfl.peer.peer  # noqa: PLC0415 (see above)

        return getattr(p2pfl.peer.peer, name)
