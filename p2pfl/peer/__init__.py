"""One live peer.

===============  =======================================================================================
saying, hearing  ``line`` to the broker; ``desk``, ``streams`` and ``presence`` are the parts of a ``link``
deciding         ``membership``, ``mailbox``, ``allowance``, ``detector``, ``pace``: without a clock or a loop
conserving       ``flows`` along edges, in the ``books`` with the masks; ``settling`` what is owed
hiding           ``hiding`` of rows; ``terms`` of secret sums, and ``sums`` of them
learning         ``live`` neighbourhoods, ``asynchronous``, ``arriving`` late, ``agreeing`` with all, ``threads``
lasting          ``keeper`` of ``checkpoint`` s and the journal; ``credentials`` of a device
running          ``peer``; in a process of its own as ``child`` of the ``swarm``, forked by the ``server``
===============  =======================================================================================

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
