"""Write down the events of a run, keep its alarms for the summary, and summarise one peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from p2pfl.experiment import Plan
from p2pfl.network.peer.launch.changes import Changes
from p2pfl.network.peer.storage.best import kept
from p2pfl.network.peer.updates import Alone, Done
from p2pfl.results import Record, Run
from p2pfl.results.content import PeerSummary
from p2pfl.results.notices.alarms import raised
from p2pfl.results.notices.kinds import LossRose, MasksUncancelled
from p2pfl.results.spending.stated import StatedGuarantee
from p2pfl.results.summary import describe


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
        self._changes = Changes()

    def record(self, record: Record) -> None:
        """Write down the record of a round."""
        self._run.record([msgspec.structs.replace(record, time=self._now())])

    def observe(self, event: object) -> None:
        """Write down an event, unless it is one of those that come again and again."""
        now = self._now()
        if notices := [*self._changes.notices(event, now=now.timestamp())]:
            self._run.log([msgspec.structs.replace(notice, time=now) for notice in notices])

    @property
    def alarms(self) -> tuple[MasksUncancelled | LossRose, ...]:
        """Alarms of the run, with whether they are over."""
        return raised(self._run.events)


def concluded(
    plan: Plan,
    done: Done,
    *,
    alarms: Sequence[MasksUncancelled | LossRose],
    alone: Alone | None = None,
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
    alone
        Model that the peer has trained alone; ``None`` if it has not.
    """
    played = None if done.played is None else {done.peer: done.played}
    return PeerSummary(
        name=plan.experiment.name,
        peer=done.peer,
        accounted=plan.accounted,
        scores=done.scores,
        alone=None if alone is None else alone.scores,
        intervals={} if alone is None else alone.intervals,
        common=done.common,
        stopped=done.stopped,
        privacy=msgspec.convert(describe(plan, spent=done.spent, played=played), StatedGuarantee),
        alarms=tuple(alarms),
        unsettled={done.peer: done.unsettled} if done.unsettled else {},
        best={} if done.best is None else {done.peer: kept(done.peer, done.best)},
        explained=done.explained,
    )
