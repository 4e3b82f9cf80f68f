r"""Phi accrual failure detector: neighbours that have probably failed, by the times of their heartbeats.

References
----------
N. Hayashibara, X. Défago, R. Yared, T. Katayama, "The φ accrual failure detector", SRDS 2004.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean

THRESHOLD = 8.0
"""Threshold of φ: in the assumed distribution, one heartbeat in a hundred million arrives later."""

WINDOW = 100
"""Number of intervals from which the distribution is estimated."""

MIN_INTERVALS = 10
"""Number of intervals below which no peer is suspected."""

DEVIATION = 1.5
"""Minimum deviation, in periods of the heartbeat: lost heartbeats and a busy event loop are usual."""


@dataclass
class _Received:
    """Times of the last message and the last heartbeat of one peer, and the intervals between heartbeats."""

    last: float
    beat: float
    intervals: deque[float]


@dataclass
class Detector:
    r"""Suspicion that grows with silence.

    With the mean :math:`\mu` and the deviation :math:`\sigma` of the intervals between a peer's heartbeats, and the
    time :math:`t` since its last message,

    .. math:: \varphi(t) = -\log_{10} \tfrac12 \operatorname{erfc} \frac{t - \mu}{\sigma \sqrt 2},

    so that a suspicion at :math:`\varphi \ge \Phi` is wrong with probability :math:`10^{-\Phi}`, if intervals are
    normally distributed as the paper assumes. :math:`\sigma` has a minimum, because a network without delays so far may
    still have some.

    Parameters
    ----------
    period
        Seconds between heartbeats as they are sent; one that arrives within half a period of the last does not count.
    threshold
        :math:`\Phi`.
    window, least
        Number of intervals that are kept of each peer, and below which it is not suspected.
    deviation
        Minimum of :math:`\sigma`, in periods.

    Examples
    --------
    >>> detector = Detector(period=1.0)
    >>> for second in range(20):
    ...     detector.receive("ada", now=float(second), beat=True)
    >>> [round(detector.phi("ada", now=19.0 + silence), 1) for silence in (1, 5, 10)]
    [0.3, 2.4, 9.0]
    >>> detector.find_suspects(now=24.0), detector.find_suspects(now=29.0)
    (frozenset(), frozenset({'ada'}))
    """

    period: float
    threshold: float = THRESHOLD
    window: int = WINDOW
    least: int = MIN_INTERVALS
    deviation: float = DEVIATION
    _received: dict[str, _Received] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)  # by peer, until when it may be quiet, as it has announced

    def receive(self, peer: str, *, now: float, beat: bool = False) -> None:
        """Record a message of a peer at a time in seconds, a heartbeat or any other."""
        received = self._received.get(peer)
        if received is None:
            self._received[peer] = _Received(now, now, deque(maxlen=self.window))
            return
        received.last = max(received.last, now)
        if beat and now - received.beat >= self.period / 2:
            if peer not in self._rests or now - received.beat < 2 * self.period:  # they may be rare while it rests
                received.intervals.append(now - received.beat)
            received.beat = now

    def rest(self, peer: str, *, until: float | None) -> None:
        """Suspect a peer not before a time until which it has announced to be quiet; ``None`` ends that."""
        if until is None:
            self._rests.pop(peer, None)
        else:
            self._rests[peer] = until

    def forget(self, peer: str) -> None:
        """Forget a peer's earlier incarnation."""
        self._received.pop(peer, None)
        self._rests.pop(peer, None)

    def stand(self, seconds: float, *, now: float) -> None:
        """Leave out time in which this peer itself could receive nothing."""
        for received in self._received.values():
            received.last = min(received.last + seconds, now)
            received.beat = min(received.beat + seconds, now)

    def phi(self, peer: str, *, now: float) -> float:
        """Return the suspicion that a peer has failed; 0 while too few heartbeats are known."""
        received = self._received.get(peer)
        if received is None or len(received.intervals) < self.least:
            return 0.0
        mean = fmean(received.intervals)
        variance = fmean((each - mean) ** 2 for each in received.intervals)
        deviation = max(self.deviation * self.period, math.sqrt(variance))
        silent = now - max(received.last, self._rests.get(peer, received.last))
        later = 0.5 * math.erfc((silent - mean) / (deviation * math.sqrt(2)))
        return -math.log10(later) if later > 0 else math.inf

    def find_suspects(self, *, now: float) -> frozenset[str]:
        """Return the peers that are suspected until their next message."""
        return frozenset(peer for peer in self._received if self.phi(peer, now=now) >= self.threshold)
