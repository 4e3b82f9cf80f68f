"""Write down the events of a run, keep its alarms for the summary, and summarise one peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from p2pfl.experiment import Plan
from p2pfl.peer.storage.best import kept
from p2pfl.peer.updates import Done, Failed, Progress
from p2pfl.report import Record, Run
from p2pfl.report.notices.alarms import raised
from p2pfl.report.notices.damage import LossRose, MasksUncancelled
from p2pfl.report.notices.kinds import (
    Notice,
    PeerFailed,
    PeerFinished,
    PhaseBegan,
    PresenceChanged,
    WaitBegan,
    WaitEnded,
)
from p2pfl.report.results import Guarantee, PeerSummary
from p2pfl.report.summary import describe

APART = timedelta(seconds=1)
"""Time between two lines about one wait of a peer, which bounds the file."""


class EventLog:
    """Files ``metrics.jsonl`` and ``events.jsonl`` of a run, whose lines have the time.

    Parameters
    ----------
    run
        Run that keeps the lines.
    now
        Returns the time in UTC.
    """

    def __init__(self, run: Run, *, now: Callable[[], datetime]) -> None:
        self._run = run
        self._now = now
        self._before: dict[str, Progress] = {}
        self._waits: dict[str, tuple[WaitBegan, datetime]] = {}

    def record(self, record: Record) -> None:
        """Write down the record of a round."""
        self._run.record([msgspec.structs.replace(record, time=self._now())])

    def observe(self, event: object) -> None:
        """Write down an event, unless it is one of those that come again and again."""
        now = self._now()
        if notices := [*self._notices(event, now=now)]:
            self._run.log([msgspec.structs.replace(notice, time=now) for notice in notices])

    def _notices(self, event: object, *, now: datetime) -> Iterator[Notice]:
        match event:
            case Notice():
                yield event
            case Progress():
                yield from self._changes(event, at=now)
            case Done():
                yield from self._resumed(event.peer)
                yield PeerFinished(peer=event.peer, scores=event.scores)
            case Failed():
                yield PeerFailed(peer=event.peer, error=event.error, message=event.reason, status=event.status)
            case _:
                pass

    def _changes(self, now: Progress, *, at: datetime) -> Iterator[Notice]:
        """Yield what differs from what the peer did before: its phase, its neighbours, and its wait."""
        before = self._before.get(now.peer)
        self._before[now.peer] = now
        if before is None or before.phase != now.phase:
            yield PhaseBegan(peer=now.peer, phase=now.phase, round=now.round)
        there, here = set() if before is None else {*before.present}, {*now.present}
        if there != here:
            yield PresenceChanged(peer=now.peer, came=tuple(sorted(here - there)), left=tuple(sorted(there - here)))
        if not now.stalled:
            yield from self._resumed(now.peer)
            return
        wait = WaitBegan(peer=now.peer, round=now.round, neighbours=now.waiting, connected=now.connected)
        waited, written = self._waits.get(now.peer, (None, None))
        if waited != wait and (written is None or at - written >= APART):
            self._waits[now.peer] = wait, at
            yield wait

    def _resumed(self, peer: str) -> Iterator[Notice]:
        """Yield the end of a peer's wait if it waited."""
        if self._waits.pop(peer, None) is not None:
            yield WaitEnded(peer=peer)

    @property
    def alarms(self) -> tuple[MasksUncancelled | LossRose, ...]:
        """Alarms of the run, with whether they are over."""
        return raised(self._run.events)


def concluded(
    plan: Plan,
    done: Done,
    *,
    alarms: Sequence[MasksUncancelled | LossRose],
    accounted: bool,
    alone: Mapping[str, float] | None = None,
) -> PeerSummary:
    """Return the summary of one peer.

    Parameters
    ----------
    plan
        Experiment, resolved for this peer.
    done
        Results of the peer.
    alarms
        Alarms of the run.
    accounted
        Whether the account of the data counts the run.
    alone
        Scores of a model that the peer has trained alone; ``None`` if it has not.
    """
    played = None if done.played is None else {done.peer: done.played}
    return PeerSummary(
        name=plan.experiment.name,
        peer=done.peer,
        accounted=accounted,
        scores=done.scores,
        alone=None if alone is None else dict(alone),
        common=done.common,
        stopped=done.stopped,
        given=done.given,
        vanished=tuple(done.vanished),
        privacy=msgspec.convert(describe(plan, spent=done.spent, played=played), Guarantee),
        alarms=tuple(alarms),
        unsettled={done.peer: done.unsettled} if done.unsettled else {},
        best={} if done.best is None else {done.peer: kept(done.peer, done.best)},
    )
