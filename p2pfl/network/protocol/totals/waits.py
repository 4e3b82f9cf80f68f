"""Times of a wait for a participant set or a total: which neighbours are overdue, and what to request again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

AGAIN = 2.0
"""Seconds without progress after which a peer requests missing messages again."""


@dataclass
class Waits:
    """Times at which neighbours have sent messages, while a peer waits for them.

    Parameters
    ----------
    patience
        Seconds without a message after which a neighbour is overdue.
    peers
        Number of peers, which may wait for each other in a chain.
    outage
        Seconds after which a neighbour is overdue whose heartbeats go on while it computes, if a chain takes no longer.

    Examples
    --------
    >>> waits = Waits(patience=10.0, peers=3, outage=600.0)
    >>> waits.begin(now=5.0)
    >>> waits.note_message("bob", now=8.0)
    >>> waits.deadline("ada"), waits.deadline("bob"), waits.again_at
    (15.0, 18.0, 7.0)
    """

    patience: float
    peers: int
    outage: float = 0.0
    _since: float = 0.0
    _asked: float = 0.0
    _received: dict[str, float] = field(default_factory=dict)  # by neighbour: time of its last message of any kind
    _moved: dict[str, float] = field(default_factory=dict)  # by neighbour: last time that it sent a missing message
    _repeated: dict[str, float] = field(default_factory=dict)  # by neighbour: time of the last repeated pieces

    def begin(self, *, now: float) -> None:
        """Begin to wait."""
        self._since = self._asked = now

    def note_message(self, peer: str, *, now: float) -> None:
        """Note a message of any kind."""
        self._received[peer] = now

    def note_progress(self, peer: str, *, now: float) -> None:
        """Note a message that was missing."""
        self._moved[peer] = now

    def note_request(self, *, now: float) -> None:
        """Note that missing messages were requested again."""
        self._asked = now

    @property
    def again_at(self) -> float:
        """Time at which to request missing messages again."""
        return max(self._asked, self._since) + AGAIN

    def is_stalled(self, peer: str, *, now: float) -> bool:
        """Return whether a neighbour has sent none of its missing messages for a while."""
        return now >= self._moved.get(peer, self._since) + AGAIN

    def may_repeat(self, peer: str, *, now: float) -> bool:
        """Return whether to send pieces to a neighbour again: at most once in ``AGAIN / 2`` seconds."""
        if now < self._repeated.get(peer, -math.inf) + AGAIN / 2:
            return False
        self._repeated[peer] = now
        return True

    def deadline(self, peer: str) -> float:
        """Return the time at which a neighbour that is present is overdue."""
        received = max(self._since, self._received.get(peer, self._since))
        return min(received + self.patience, self._since + max(self.patience * self.peers, self.outage))
