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
"""Of φ: with the distribution that it supposes, one heartbeat in a hundred million comes later than that."""

WINDOW = 100
"""Intervals of which the distribution is estimated."""

LEAST = 10
"""Intervals without which nobody is suspected."""

DEVIATION = 1.5
"""Least deviation, in periods of the heartbeat: a few that are lost, or a loop that is busy for a while, are usual."""


@dataclass
class _Received:
    """Of one peer: when anything of it came, when its last heartbeat did, and what lay between those."""

    last: float
    beat: float
    intervals: deque[float]


@dataclass
class Detector:
    r"""Suspicion that grows with silence.

    With the mean :math:`\mu` and the deviation :math:`\sigma` of the intervals between a peer's heartbeats, and the
    time :math:`t` since anything of it came,

    .. math:: \varphi(t) = -\log_{10} \tfrac12 \operatorname{erfc} \frac{t - \mu}{\sigma \sqrt 2},

    so that who suspects at :math:`\varphi \ge \Phi` is wrong with probability :math:`10^{-\Phi}`, if intervals are
    normally distributed as the paper supposes. :math:`\sigma` is never less than a given one: a network that was quiet
    so far may still stutter.

    Parameters
    ----------
    period
        Seconds between heartbeats as they are sent; those that come within half of it after another are one with it.
    threshold
        :math:`\Phi`.
    window, least
        Intervals that are remembered of each peer, and without which it is not suspected.
    deviation
        Least :math:`\sigma`, in periods.

    Examples
    --------
    >>> detector = Detector(period=1.0)
    >>> for second in range(20):
    ...     detector.receive("ada", now=float(second), beat=True)
    >>> [round(detector.phi("ada", now=19.0 + silence), 1) for silence in (1, 5, 10)]
    [0.3, 2.4, 9.0]
    >>> detector.suspected(now=24.0), detector.suspected(now=29.0)
    (frozenset(), frozenset({'ada'}))
    """

    period: float
    threshold: float = THRESHOLD
    window: int = WINDOW
    least: int = LEAST
    deviation: float = DEVIATION
    _received: dict[str, _Received] = field(default_factory=dict)

    def receive(self, peer: str, *, now: float, beat: bool = False) -> None:
        """Something of a peer has come at this time, in seconds; a heartbeat, or else any message."""
        received = self._received.get(peer)
        if received is None:
            self._received[peer] = _Received(now, now, deque(maxlen=self.window))
            return
        received.last = max(received.last, now)
        if beat and now - received.beat >= self.period / 2:
            received.intervals.append(now - received.beat)
            received.beat = now

    def forget(self, peer: str) -> None:
        """Nothing of a peer's earlier incarnation is known any more."""
        self._received.pop(peer, None)

    def silent(self, peer: str, *, since: float) -> bool:
        """Return whether nothing of a peer has come since a time, in seconds."""
        received = self._received.get(peer)
        return received is None or received.last < since

    def stand(self, seconds: float, *, now: float) -> None:
        """Do not count time in which nothing could have been received: the fault was at this end."""
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
        later = 0.5 * math.erfc((now - received.last - mean) / (deviation * math.sqrt(2)))
        return -math.log10(later) if later > 0 else math.inf

    def suspected(self, *, now: float) -> frozenset[str]:
        """Return the peers that are suspected until their next message."""
        return frozenset(peer for peer in self._received if self.phi(peer, now=now) >= self.threshold)
