"""Timeouts: neighbours for which a peer still waits, and for how long; all times are in seconds."""

from __future__ import annotations

from p2pfl.network.protocol.timing.failure_detector import Detector
from p2pfl.network.protocol.timing.pace import Pace

RARE_PULSE = 60.0
"""Seconds between heartbeats in a pause, from when all that was sent has had time to arrive."""

WAIT_PULSE = 10.0
"""Longest time in seconds between heartbeats of a peer that waits for its neighbours before its first round."""

MAX_REST = 2 * RARE_PULSE
"""Seconds for which a silent neighbour that pauses is not suspected once this peer begins a round."""


class Timeouts:
    """Neighbours that are silent, slow, or waiting for others, and the deadlines that follow.

    Parameters
    ----------
    period
        Seconds between heartbeats.
    patience
        Seconds without progress after which the peer continues without a neighbour.
    longest_pause
        Seconds of the longest pause between two rounds that a neighbour may state; more counts as this.

    Attributes
    ----------
    allowed
        Whether a neighbour may be suspected or left behind; false while the peer must receive from all.
    suspected
        Neighbours that are silent for too long, as the ``detector`` decides.
    detector, pace
        Decide on the silent and on the slow.
    pauses
        By neighbour that pauses before its next round: the time at which it begins, as it states.
    resumed
        Neighbours that have begun a round since this peer pauses.

    Examples
    --------
    Eve sends nothing more, and Bob reports that it waits for Eve.

    >>> timeouts = Timeouts(period=1.0, patience=60.0)
    >>> timeouts.allowed = True
    >>> for second in range(20):
    ...     _ = timeouts.receive("eve", now=float(second), beat=True)
    >>> timeouts.look(before=29.0, now=30.0), timeouts.suspected
    (True, frozenset({'eve'}))
    >>> timeouts.waits("bob", now=25.0)
    >>> [timeouts.deadline(peer, since=20.0, progress=20.0, peers=3) for peer in ("eve", "bob", "dan")]
    [20.0, 85.0, 80.0]
    """

    def __init__(self, *, period: float, patience: float, longest_pause: float = 0.0) -> None:
        self.period, self.patience, self.longest_pause = period, patience, longest_pause
        self.pauses: dict[str, float] = {}
        self.resumed: set[str] = set()
        self.allowed = False
        self.suspected: frozenset[str] = frozenset()
        self.detector = Detector(period=period)
        self.pace = Pace()
        self._waits: dict[str, float] = {}  # by neighbour: when it last reported that it waits itself

    def receive(self, peer: str, *, now: float, beat: bool) -> bool:
        """Record a message of a neighbour's current incarnation; return whether the neighbour had been suspected."""
        self.detector.receive(peer, now=now, beat=beat)
        was_suspected = peer in self.suspected
        self.suspected -= {peer}
        return was_suspected

    def receive_pause(self, peer: str, seconds: float, *, now: float, gathers: bool = False) -> None:
        """Record the pause that a neighbour's heartbeat states; 0 is none.

        Before its first round, while it ``gathers`` its neighbours, it sends fewer heartbeats as well.
        """
        seconds = min(seconds, self.longest_pause)
        if seconds:
            self.pauses[peer] = now + seconds
            self.resumed.discard(peer)
        elif self.pauses.pop(peer, None) is not None:
            self.resumed.add(peer)
        self.detector.rest(peer, until=now + 2 * WAIT_PULSE if gathers else self.pauses.get(peer))

    def begin(self, *, now: float) -> None:
        """Record that this peer begins a round: neighbours that state longer pauses are not trusted to their end."""
        for peer, until in self.pauses.items():
            self.detector.rest(peer, until=min(until, now + MAX_REST))

    def waits(self, peer: str, *, now: float) -> None:
        """Record that a neighbour that does not wait for this peer waits itself."""
        self._waits[peer] = now

    def look(self, *, before: float, now: float) -> bool:
        """Update the suspected neighbours; return whether they have changed.

        While this peer was suspended or the broker did not accept its heartbeats, it received nothing from others
        either, so that time does not count.

        Parameters
        ----------
        before
            Time of the last update.
        now
            Current time.
        """
        self.detector.stand(max(0.0, now - before - 2 * self.period), now=now)
        suspected = self.detector.find_suspects(now=now) if self.allowed else frozenset()
        changed = suspected != self.suspected
        self.suspected = suspected
        return changed

    def trust(self) -> None:
        """Wait for all neighbours from now on: suspect none, and leave none behind."""
        self.allowed = False
        self.suspected = frozenset()

    def forget(self, peer: str) -> None:
        """Forget a neighbour."""
        self._waits.pop(peer, None)
        self.pauses.pop(peer, None)
        self.resumed.discard(peer)
        self.detector.forget(peer)
        self.suspected -= {peer}

    def deadline(self, peer: str, *, since: float, progress: float, peers: int) -> float:
        """Return the time at which to continue without a neighbour.

        A neighbour that waits itself is not slow; the one that it waits for is. A suspected neighbour has no time left.

        Parameters
        ----------
        since
            Time since which the peer waits for the neighbour.
        progress
            Time of the last progress of the neighbour's transfer.
        peers
            Number of peers in the swarm, which may all wait for each other in a chain.
        """
        if peer in self.suspected:
            return since
        return max(self.slow(peer, since=since, peers=peers), progress + self.patience)

    def slow(self, peer: str, *, since: float, peers: int) -> float:
        """Return the time from which a neighbour is slow, whether or not its transfer goes on.

        Parameters
        ----------
        since, peers
            As of :meth:`deadline`.
        """
        patient = min(since + self.patience * peers, self._waits.get(peer, since))
        return max(since, patient) + self.patience

    def is_left_behind(self, peer: str, *, reached: int) -> bool:
        """Return whether a neighbour, whose heartbeats report the round ``reached``, is too slow to wait for."""
        return self.allowed and self.pace.is_left_behind(peer, reached=reached)
