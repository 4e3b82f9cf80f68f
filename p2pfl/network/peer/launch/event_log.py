"""Write down the events of a run, among them what follows from the reports of running peers, and keep its alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from p2pfl.network.peer.updates import Done, Failed, Progress
from p2pfl.results import Record, Run
from p2pfl.results.notices.alarms import alarms_among
from p2pfl.results.notices.kinds import (
    LossRose,
    Notice,
    PeerFailed,
    PeerFinished,
    PhaseBegan,
    PresenceChanged,
    WaitBegan,
    WaitEnded,
)

WAIT_INTERVAL = 1.0
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
                yield from self._end_wait(event.peer)
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
            yield from self._end_wait(present.peer)
            return
        wait = WaitBegan(
            peer=present.peer, round=present.round, neighbours=present.waiting, connected=present.connected
        )
        waited, written = self._waits.get(present.peer, (None, None))
        if waited != wait and (written is None or now - written >= WAIT_INTERVAL):
            self._waits[present.peer] = wait, now
            yield wait

    def _end_wait(self, peer: str) -> Iterator[Notice]:
        """Yield the end of a peer's wait if it waited."""
        if self._waits.pop(peer, None) is not None:
            yield WaitEnded(peer=peer)


class EventLog:
    """Files ``metrics.jsonl`` and ``events.jsonl`` of a run, whose lines have the time.

    Parameters
    ----------
    run
        Run that keeps the lines.
    now
        Returns the time in UTC.

    Attributes
    ----------
    now
        As given.
    """

    def __init__(self, run: Run, *, now: Callable[[], datetime]) -> None:
        self._run = run
        self.now = now
        self._changes = Changes()

    def record(self, record: Record) -> None:
        """Write down the record of a round."""
        self._run.record([msgspec.structs.replace(record, time=self.now())])

    def observe(self, event: object) -> None:
        """Write down an event, unless it is one of those that come again and again."""
        now = self.now()
        if notices := [*self._changes.notices(event, now=now.timestamp())]:
            self._run.log([msgspec.structs.replace(notice, time=now) for notice in notices])

    @property
    def alarms(self) -> tuple[LossRose, ...]:
        """Alarms of the run."""
        return alarms_among(self._run.events)
