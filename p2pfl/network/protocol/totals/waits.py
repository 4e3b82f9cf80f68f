"""Times of a wait for a participant set or a total: which neighbours are overdue, and what to request again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

AGAIN = 2.0
"""Seconds without progress after which a peer requests missing messages again."""


@dataclass
class Waits:
    """Times at which neighbours have sent messages, while a peer waits for them.

    A neighbour that sends nothing is overdue after ``patience``, and so is one whose heartbeats state neither work nor
    that it waits itself. One that works is overdue after ``longest``. One that waits is not to blame as long as those
    behind it may be: each peer on a path allows a ``patience`` more than the next one, from the time at which that one
    began to wait, so the neighbour of a peer that stalls is the first to notice.

    Parameters
    ----------
    patience
        Seconds without a message, or without stated work, after which a neighbour is overdue.
    outage
        Seconds after which a neighbour that works is overdue, if longer than ``patience``.

    Examples
    --------
    Ada works, Bob waits for peers behind it, and Eve sends heartbeats only:

    >>> waits = Waits(patience=10.0, outage=600.0)
    >>> waits.begin(now=5.0, behind={"ada": 0, "bob": 2, "eve": 0})
    >>> for second in range(5, 12):
    ...     waits.note_heartbeat("ada", waiting=False, work=second, now=float(second))
    ...     waits.note_heartbeat("bob", waiting=True, work=0, now=float(second))
    ...     waits.note_heartbeat("eve", waiting=False, work=0, now=float(second))
    >>> [waits.deadline(peer) for peer in ("ada", "bob", "eve")], waits.again_at
    ([21.0, 21.0, 15.0], 7.0)
    """

    patience: float
    outage: float = 0.0
    _since: float = 0.0
    _behind: Mapping[str, int] = field(default_factory=dict)
    _asked: float = 0.0
    _received: dict[str, float] = field(default_factory=dict)  # by neighbour: time of its last message of any kind
    _moved: dict[str, float] = field(default_factory=dict)  # by neighbour: last time that it sent a missing message
    _repeated: dict[str, float] = field(default_factory=dict)  # by neighbour: time of the last repeated pieces
    _work: dict[str, int] = field(default_factory=dict)  # by neighbour: the work that it has stated
    _worked: dict[str, float] = field(default_factory=dict)  # by neighbour: when that was last more than before
    _waited: dict[str, float] = field(default_factory=dict)  # by neighbour: when it last stated that it waits
    _began_to_wait: dict[str, float] = field(default_factory=dict)  # by neighbour: when it first did in this wait

    def begin(self, *, now: float, behind: Mapping[str, int]) -> None:
        """Begin to wait; ``behind`` says how long the longest path is that begins behind each neighbour, in edges."""
        self._since = self._asked = now
        self._behind = behind
        self._began_to_wait = {}

    def note_message(self, peer: str, *, now: float) -> None:
        """Note a message of any kind."""
        self._received[peer] = now

    def note_heartbeat(self, peer: str, *, waiting: bool, work: int, now: float) -> None:
        """Note what a neighbour states: whether it waits itself, and how much it has worked so far."""
        self._received[peer] = now
        if waiting:
            self._waited[peer] = now
            self._began_to_wait.setdefault(peer, now)
        if work > self._work.get(peer, -1):
            self._worked[peer] = now
        self._work[peer] = work

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
        """Return the time at which a neighbour that is present is overdue, if it states nothing more until then."""
        received = max(self._since, self._received.get(peer, self._since))
        if peer not in self._work:  # it sends this peer no heartbeats
            return min(received + self.patience, self.bound(peer))
        active = max(self._since, self._worked[peer], self._waited.get(peer, self._since))
        return min(received + self.patience, active + self.patience, self.bound(peer))

    def bound(self, peer: str) -> float:
        """Return the time at which a neighbour is overdue, whatever it states."""
        longest = max(self.patience, self.outage)
        working = max(self._since, self._waited.get(peer, self._since)) + longest
        behind = self._behind.get(peer, 0)
        if not behind:
            return min(working, self._since + longest)
        began = self._began_to_wait.get(peer, self._since + longest)
        return min(working, began + 2 * longest + behind * self.patience)
