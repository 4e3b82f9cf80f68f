"""Timeouts: neighbours for which a peer still waits, and for how long; all times are in seconds."""

from __future__ import annotations

from p2pfl.protocol.timing.failure_detector import Detector
from p2pfl.protocol.timing.pace import Pace


class Doubts:
    """Neighbours that are silent, slow, or waiting for others.

    Parameters
    ----------
    period
        Seconds between heartbeats.
    patience
        Seconds without progress after which somebody is not waited for any more.

    Attributes
    ----------
    allowed
        True if anybody may be suspected or left behind; not while all must hear all.
    suspected
        Neighbours that are silent for too long, as the ``detector`` says.
    detector, pace
        Decide on the silent and on the slow.

    Examples
    --------
    Eve sends no more; Bob reports that it waits for Eve.

    >>> doubts = Doubts(period=1.0, patience=60.0)
    >>> doubts.allowed = True
    >>> for second in range(20):
    ...     _ = doubts.receive("eve", now=float(second), beat=True)
    >>> doubts.look(before=29.0, now=30.0), doubts.suspected
    (True, frozenset({'eve'}))
    >>> doubts.waits("bob", now=25.0)
    >>> [doubts.deadline(peer, since=20.0, progress=20.0, peers=3) for peer in ("eve", "bob", "dan")]
    [20.0, 85.0, 80.0]
    """

    def __init__(self, *, period: float, patience: float) -> None:
        self.period, self.patience = period, patience
        self.allowed = False
        self.suspected: frozenset[str] = frozenset()
        self.detector = Detector(period=period)
        self.pace = Pace()
        self._waits: dict[str, float] = {}  # by neighbour: when it last said that it waits itself

    def receive(self, peer: str, *, now: float, beat: bool) -> bool:
        """Something of a neighbour's present incarnation came; return whether it had been suspected."""
        self.detector.receive(peer, now=now, beat=beat)
        found = peer in self.suspected
        self.suspected -= {peer}
        return found

    def waits(self, peer: str, *, now: float) -> None:
        """Record that a neighbour that is behind waits itself."""
        self._waits[peer] = now

    def look(self, *, before: float, now: float) -> bool:
        """Look who is silent, as one last did ``before``; return whether that has changed.

        While we stood still, or the broker took no heartbeat of ours, we heard nobody either.
        """
        self.detector.stand(max(0.0, now - before - 2 * self.period), now=now)
        found = self.detector.suspected(now=now) if self.allowed else frozenset()
        changed = found != self.suspected
        self.suspected = found
        return changed

    def trust(self) -> None:
        """From now on all must hear all: suspect nobody, and leave nobody behind."""
        self.allowed = False
        self.suspected = frozenset()

    def forget(self, peer: str) -> None:
        """Know nothing any more of how a neighbour does."""
        self._waits.pop(peer, None)
        self.detector.forget(peer)
        self.suspected -= {peer}

    def deadline(self, peer: str, *, since: float, progress: float, peers: int) -> float:
        """Return the time at which to continue without a neighbour.

        A neighbour that waits itself is not slow: whoever it waits for is. One that is suspected is not waited for.

        Parameters
        ----------
        since
            From when on it is waited for.
        progress
            Time at which its transfer last went on.
        peers
            In the swarm: as many may wait for each other in a chain.
        """
        if peer in self.suspected:
            return since
        patient = min(since + self.patience * peers, self._waits.get(peer, since))
        return max(since, patient, progress) + self.patience

    def left_behind(self, peer: str, *, place: int) -> bool:
        """Return whether a neighbour, which says in which round it is, is too slow to be waited for."""
        return self.allowed and self.pace.left_behind(peer, place=place)
