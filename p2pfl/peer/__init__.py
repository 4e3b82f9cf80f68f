"""One live peer.

===============  ===================================================================================================
saying, hearing  ``line`` to the broker; ``desk``, ``streams`` and ``presence`` are the parts of a ``link``
deciding         ``membership``, ``edges``, ``mailbox``, ``whereabouts``, ``allowance``,
                 ``doubts`` with ``detector`` and ``pace``: no clock, no loop
conserving       ``flows`` along edges, in the ``books`` with the masks; ``settling`` what is owed
hiding           ``hiding`` of rows; secret sums: ``giving`` and ``getting`` their terms, ``seal``, ``adding``, ``sums``
learning         ``live`` neighbourhoods, ``asynchronous``, ``arriving`` late, ``agreeing`` with all, ``threads``
lasting          ``keeper`` of ``checkpoint`` s and the journal; ``resuming`` from them; ``owner``; ``recording``;
                 ``proof`` s; ``credentials``; ``incarnation``, which numbers starts
running          ``peer``; in a process of its own as ``child`` of the ``swarm``, forked by ``server`` (``preload``),
                 with one heap (``memory``); what it sends to whoever started it are ``updates``
===============  ===================================================================================================

Names are imported when they are first used: the fork server of ``run`` is started from this room
before torch is loaded.
"""

from typing import TYPE_CHECKING

from p2pfl.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.peer.peer import Peer
    from p2pfl.peer.updates import Progress
    from p2pfl.report.notices.kinds import Notice

__all__ = ["Notice", "Peer", "Progress"]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    __getattr__ = lazily(__name__, {"Notice": "updates", "Peer": "peer", "Progress": "updates"})
