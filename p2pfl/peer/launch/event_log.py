"""Write down the events of a run, keep its alarms for the summary, and summarise one peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from p2pfl.experiment import Plan
from p2pfl.peer.storage.best import kept
from p2pfl.peer.updates import Done, Failed, Progress
from p2pfl.report import Run
from p2pfl.report.notices.damage import LossRose, MasksCancelled, MasksUncancelled
from p2pfl.report.notices.kinds import Notice, PeerFailed, PeerFinished, PhaseBegan
from p2pfl.report.results import Guarantee, PeerSummary
from p2pfl.report.summary import describe


class EventLog:
    """``events.jsonl`` of a run, and its alarms.

    Parameters
    ----------
    run
        Run that keeps the events.
    now
        Returns the time in UTC.
    """

    def __init__(self, run: Run, *, now: Callable[[], datetime]) -> None:
        self._run = run
        self._now = now
        self._phases: dict[str, str] = {}
        self._alarms: list[tuple[MasksUncancelled | LossRose, set[str]]] = []  # and partners whose masks are left

    def observe(self, event: object) -> None:
        """Write down an event, unless it is one of those that come again and again."""
        notice = self._notice(event)
        if notice is None:
            return
        self._run.log([msgspec.structs.replace(notice, time=self._now())])
        match notice:
            case MasksUncancelled() | LossRose():
                self._alarms.append((notice, {*notice.partners}))
            case MasksCancelled():
                for alarm, left in self._alarms:
                    if (alarm.peer, alarm.round) == (notice.peer, notice.round):
                        left -= {*notice.partners}
            case _:
                pass

    def _notice(self, event: object) -> Notice | None:
        match event:
            case Notice():
                return event
            case Progress() if self._phases.get(event.peer) != event.phase:
                self._phases[event.peer] = event.phase
                return PhaseBegan(peer=event.peer, phase=event.phase, round=event.round)
            case Done():
                return PeerFinished(peer=event.peer, scores=event.scores)
            case Failed():
                return PeerFailed(peer=event.peer, error=event.error, message=event.reason, status=event.status)
            case _:
                return None

    @property
    def alarms(self) -> tuple[MasksUncancelled | LossRose, ...]:
        """Alarms of the run; each states whether all its masks have cancelled since, and one without partners stays."""
        return tuple(
            msgspec.structs.replace(alarm, cancelled=bool(alarm.partners) and not left) for alarm, left in self._alarms
        )


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
