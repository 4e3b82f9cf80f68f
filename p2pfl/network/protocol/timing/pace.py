r"""Pace: time that a peer waits for slow neighbours, and the next round of a slow peer.

A peer that waits for all goes at the pace of the slowest, and so do its neighbours, and theirs. Of the neighbours'
rows one knows when they came. Let :math:`t_j` be the seconds from the end of one's own last round until the first row
of neighbour j in this one, in the last rounds, and :math:`Q` their quantile. Once ready itself, a peer waits no longer
than :math:`2 Q` in a gossip step; a neighbour that was given up is not waited for again until it is where the others
are, and counts as :math:`t_j = \infty`. So no more than the share :math:`1 - q` of the rows are left behind.

Whoever itself takes :math:`S > 3 Q` would be given up. It steps aside: it plays only each
:math:`\lceil S / Q \rceil` th round and says so, and nobody waits for it in those between. In its round it waits for
everybody, for it may be early. Who finds that half of its neighbours went on without it, for whatever reason, goes on
where they are.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

FACTOR = 2.0
"""Times the quantile that is waited."""

FLOOR = 1.0
"""Seconds that are always waited: a heartbeat."""

ROUNDS = 8
"""Of each neighbour that are remembered."""

MAX_ROUNDS_AHEAD = 1000
"""Rounds ahead that a slow peer plays next."""

ALONE = 4
"""Rounds that one neighbour alone may move another peer ahead of where it would be."""

MIN_MISSED_ROUNDS = 3
"""Rounds without which everybody is waited for."""


@dataclass
class Pace:
    """Times that neighbours take, in seconds.

    Parameters
    ----------
    quantile
        q; 1 waits for everybody.

    Examples
    --------
    Two neighbours take 3 s, one takes 30 s.

    >>> pace = Pace(quantile=0.5)
    >>> for round in range(3):
    ...     pace.begin(round, now=100.0 * round)
    ...     for peer, took in (("ada", 3.0), ("bob", 3.0), ("eve", 30.0)):
    ...         pace.came(peer, round, now=100.0 * round + took)
    >>> pace.bound
    6.0
    """

    quantile: float = 1.0
    _round: int = -1
    _before: int = -1  # where the neighbours were when this round began
    _begun: float = 0.0
    _took: float = -1.0  # our own S, once it is known
    _times: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)

    def begin(self, round: int, *, now: float) -> None:
        """Begin a round; the one before has ended."""
        before = round - 1 if self._round < 0 else max(self._before, self._round)
        self._before = min(before, round - 1)  # a round may be begun again
        self._round, self._begun, self._took = round, now, -1.0

    def ready(self, *, now: float) -> None:
        """Record that the peer's own model of this round, or of a later gossip step in it, is ready."""
        if self._took < 0:
            self._took = now - self._begun

    def came(self, peer: str, round: int, *, now: float) -> None:
        """Record that a neighbour's first model of a round has arrived."""
        if round >= self._round:
            self._behind.discard(peer)
        if round != self._round:
            return  # of a row that is early one does not know how long it took
        rounds = max(1, round - self._before)  # the round has ended already if the neighbours are in it or beyond
        self._note(peer, round, (now - self._begun) / rounds)

    def give_up(self, peer: str) -> None:
        """Stop waiting for a neighbour in this round."""
        if self.quantile < 1:
            self._behind.add(peer)
        self._note(peer, self._round, math.inf)

    def is_left_behind(self, peer: str, *, reached: int) -> bool:
        """Return whether a neighbour, which reports the round ``reached``, was left behind and has not caught up."""
        if reached >= self._round:
            self._behind.discard(peer)
        return peer in self._behind and not self._apart

    def _note(self, peer: str, round: int, took: float) -> None:
        times = self._times.setdefault(peer, deque(maxlen=ROUNDS))
        if not times or times[-1][0] < round:
            times.append((round, took))

    @property
    def usual(self) -> float:
        """Q: infinite where everybody is waited for, or too little is known."""
        if self.quantile >= 1 or max(map(len, self._times.values()), default=0) < MIN_MISSED_ROUNDS:
            return math.inf
        durations = sorted(took for times in self._times.values() for _, took in times)
        return durations[max(0, math.ceil(self.quantile * len(durations)) - 1)]

    @property
    def bound(self) -> float:
        """Seconds that are waited in a gossip step."""
        return math.inf if self._apart else max(FLOOR, FACTOR * self.usual)

    @property
    def _apart(self) -> bool:
        """True if this round is not the neighbours' next."""
        return self._round > self._before + 1

    def next(self, *, rounds: Collection[int], apart: int) -> int:
        """Return the round to play after this one.

        Parameters
        ----------
        rounds
            The rounds in which the neighbours are.
        apart
            How many rounds ahead they may be that wait for us: when half of them are further, they have gone on.
        """
        half = sorted(rounds)[(len(rounds) - 1) // 2] if rounds else 0
        if len(rounds) == 1:  # a single neighbour has nobody to agree with it
            half = min(half, self._round + apart + ALONE)
        here = half if half > self._round + apart else self._round
        usual = self.usual
        slow = self._took > usual + max(FLOOR, FACTOR * usual)
        self._before = here
        return here + (min(MAX_ROUNDS_AHEAD, math.ceil(self._took / max(usual, 1e-6))) if slow else 1)
