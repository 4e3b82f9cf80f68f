"""Notices that follow from what running peers report of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.network.peer.updates import Done, Failed, Progress
from p2pfl.results.notices.kinds import (
    Notice,
    PeerFailed,
    PeerFinished,
    PhaseBegan,
    PresenceChanged,
    WaitBegan,
    WaitEnded,
)

APART = 1.0
"""Seconds between two notices of one wait of a peer, which bounds the file and the telemetry."""


class Changes:
    """Differences between two reports of a peer, as notices.

    Examples
    --------
    >>> changes, waits = Changes(), Progress("ada", "learning", 3, ("bob",), ("bob",), stalled=True)
    >>> [type(notice).__name__ for notice in changes.notices(waits, now=0.0)]
    ['PhaseBegan', 'PresenceChanged', 'WaitBegan']
    >>> [*changes.notices(waits, now=1.0)]
    []
    """

    def __init__(self) -> None:
        self._before: dict[str, Progress] = {}
        self._waits: dict[str, tuple[WaitBegan, float]] = {}

    def notices(self, event: object, *, now: float) -> Iterator[Notice]:
        """Yield the notices of an event.

        Parameters
        ----------
        event
            A notice itself, or what a peer reports; anything else has none.
        now
            Time in seconds.
        """
        match event:
            case Notice():
                yield event
            case Progress():
                yield from self._progress(event, now=now)
            case Done():
                yield from self._resumed(event.peer)
                yield PeerFinished(peer=event.peer, scores=event.scores)
            case Failed():
                yield PeerFailed(peer=event.peer, error=event.error, message=event.reason, status=event.status)
            case _:
                pass

    def _progress(self, present: Progress, *, now: float) -> Iterator[Notice]:
        """Yield what differs from what the peer did before: its phase, its neighbours, and its wait."""
        before = self._before.get(present.peer)
        self._before[present.peer] = present
        if before is None or before.phase != present.phase:
            yield PhaseBegan(peer=present.peer, phase=present.phase, round=present.round)
        there, here = set() if before is None else {*before.present}, {*present.present}
        if there != here:
            yield PresenceChanged(peer=present.peer, came=tuple(sorted(here - there)), left=tuple(sorted(there - here)))
        if not present.stalled:
            yield from self._resumed(present.peer)
            return
        wait = WaitBegan(
            peer=present.peer, round=present.round, neighbours=present.waiting, connected=present.connected
        )
        waited, written = self._waits.get(present.peer, (None, None))
        if waited != wait and (written is None or now - written >= APART):
            self._waits[present.peer] = wait, now
            yield wait

    def _resumed(self, peer: str) -> Iterator[Notice]:
        """Yield the end of a peer's wait if it waited."""
        if self._waits.pop(peer, None) is not None:
            yield WaitEnded(peer=peer)
