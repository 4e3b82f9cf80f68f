"""One live peer: the connection that carries out what its session decides, and what learning adds to it.

Names are imported when they are first used, because the fork server of ``run`` starts from this package before torch is
loaded.
"""

from typing import TYPE_CHECKING

from p2pfl.core.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.network.peer.peer import Peer
    from p2pfl.network.peer.updates import Progress
    from p2pfl.results.notices.kinds import Notice

__all__ = ["Notice", "Peer", "Progress"]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    __getattr__ = lazily(__name__, {"Notice": "updates", "Peer": "peer", "Progress": "updates"})
