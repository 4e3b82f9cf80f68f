"""View of a run while it goes on; all of it goes to standard error."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.experiment import Plan
from p2pfl.experiment.parts.learner_parts import shown_names
from p2pfl.experiment.timetable import Timetable
from p2pfl.learning.learner import ComparesItself
from p2pfl.network.peer import Progress
from p2pfl.network.peer.updates import Done
from p2pfl.results import Record
from p2pfl.results.formats import describe_exchange, duration
from p2pfl.results.notices.kinds import Notice, Severity
from p2pfl.results.records import mean_scores
from p2pfl.results.summary import describe

MAX_OPEN_ROUNDS = 100
"""Rounds after which the view forgets one that some peers have not played."""

MINUTE = 60.0
"""Seconds between two lines about rounds in the log of a service."""

COMPARING = "the same alone and on pooled data, to compare"
"""Activity after all rounds."""

ALONE = "training a model alone on the own data, to compare"
"""Activity of one peer on a device after all rounds."""


STYLES: Mapping[Severity, str] = {"info": "yellow", "warning": "yellow", "alarm": "bold red", "resolved": "green"}
"""Style of a notice by its severity."""


MAX_PRINTED = 10_000
"""Waits that the view remembers to have printed."""


class Lines:
    """One line for every round, when all peers have ended it, and for what is out of the ordinary.

    Under a systemd unit there is one line for the first and the last round, and one a minute in between, which also
    names the neighbours that the rounds without a line missed.

    Parameters
    ----------
    plan
        The experiment.
    peers
        Number of peers on this device.
    quiet
        True if nothing is printed.
    compares
        True if models are trained for comparison once all peers have ended, unless the learner has its own ones.
    clock
        Returns seconds.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        peers: int,
        quiet: bool,
        compares: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = terminal.console(stderr=True, quiet=quiet)
        self.compares = compares and not isinstance(plan.learner.bare, ComparesItself)
        self.plan = plan
        self.peers = peers
        self._clock = clock
        self._pause = MINUTE if "INVOCATION_ID" in os.environ and not self.console.is_terminal else 0.0
        self._printed: float | None = None  # when the last line about a round was
        self._missed = set[str]()  # in rounds without a line, since then
        self.learning: set[str] = set()
        self.progress: dict[str, Progress] = {}
        self.printed: set[Progress] = set()
        self.rounds: dict[int, list[Record]] = {}
        self.done = 0

    def observe(self, event: Any) -> None:
        """Take an event of a peer."""
        match event:
            case Progress(phase="joining"):
                pass  # it may yet be in vain
            case Record():
                self.rounds.setdefault(event.round, []).append(event)
                if len(self.rounds[event.round]) == self.peers:
                    self._ended(self.rounds.pop(event.round))
                elif (oldest := min(self.rounds)) < event.round - MAX_OPEN_ROUNDS:  # some peers skipped it
                    del self.rounds[oldest]
            case Progress():
                self._progress(event)
            case Notice():
                self._print(Text(str(event), style=STYLES[event.severity]))
            case Done():
                self.done += 1
                if self.done == self.peers and self.compares:
                    self._print(COMPARING if self.peers > 1 else ALONE)
            case _:
                pass

    def _ended(self, records: list[Record]) -> None:
        """Print the line of a round, unless there was one a moment ago."""
        now = self._clock()
        self._missed |= {peer for record in records for peer in record.missed}
        waits = self._printed is not None and now - self._printed < self._pause
        if waits and records[0].round + 1 < self.plan.experiment.horizon:
            return
        self._print(_round(records, self.plan, missed=self._missed))
        self._printed, self._missed = now, set()

    def _progress(self, event: Progress) -> None:
        if not self.progress:
            self._print(_heading(self.plan))
        if event.phase == "learning" and event.peer not in self.learning:
            self.learning.add(event.peer)
            if len(self.learning) == self.peers:
                who = f"all {self.peers} peers are" if self.peers > 1 else f"{event.peer} and its neighbours are"
                self._print(f"{who} there, learning begins")
        before = self.progress.get(event.peer)
        same = before == event  # reported again: nothing has changed for a while
        if self.peers == 1 and before is not None and before.phase == event.phase == "learning":
            self._moved({*before.present}, {*event.present})
        if len(self.printed) > MAX_PRINTED:
            self.printed.clear()
        if _waits(event) and event not in self.printed and (same or (self.peers == 1 and event.phase == "gathering")):
            self.printed.add(event)
            where = f"round {event.round + 1}" if event.phase == "learning" else event.phase
            self._print(f"{event.peer}: {where}, waiting for {_awaited_names(event)}")
        self.progress[event.peer] = event

    def _moved(self, before: set[str], now: set[str]) -> None:
        """Say which neighbours have come and gone."""
        for moved, state in ((before - now, "gone"), (now - before, "there")):
            if moved:
                self._print(f"{brief(tuple(sorted(moved)))} {'is' if len(moved) == 1 else 'are'} {state}")

    def _print(self, line: str | Text) -> None:
        self.console.print(line, soft_wrap=not self.console.is_terminal)


class RoundsView:
    """The progress of ``simulate``: one line for each round, in a terminal one that changes."""

    def __init__(self, plan: Plan, *, quiet: bool) -> None:
        self.plan = plan
        self.console = terminal.console(stderr=True, quiet=quiet)
        self.status = self.console.status("loading data, building models")

    def __enter__(self) -> Self:
        """Begin."""
        self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wipe the line away."""
        self.status.stop()

    def observe(self, records: list[Record]) -> None:
        """Show a round's mean scores."""
        missed = {peer for record in records for peer in record.missed}
        line = _round(records, self.plan, missed=missed)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)
        elif records[0].round + 1 < self.plan.experiment.horizon:
            self.status.update(line)
        else:
            self.status.update(COMPARING)


def brief(names: tuple[str, ...]) -> str:
    """Return a few names for one line.

    Examples
    --------
    >>> brief(("ada", "bob")), brief(("ada", "bob", "cy", "dan", "eve"))
    ('ada, bob', 'ada, bob, cy and 2 more')
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _waits(progress: Progress) -> bool:
    """Return whether a peer waits for others or the broker; one that is done has left the broker."""
    return progress.phase != "done" and (bool(progress.waiting) or not progress.connected)


def _awaited_names(progress: Progress) -> str:
    return brief(progress.waiting) if progress.connected else "the broker, which cannot be reached"


def _heading(plan: Plan) -> Text:
    experiment = plan.experiment
    kind = experiment.topology.kind
    graph = kind if isinstance(kind, str) else f"{len(kind)} graphs in turn"
    model, data = shown_names(experiment)
    if data == experiment.data.name:
        data = f"{data} ({'own' if experiment.data.owned else experiment.data.split})"
    if experiment.learning.learner is not None:
        data = f"{model} on {data}"
    steps = 0 if plan.protection.totals else plan.gossip.steps
    return Text.assemble(
        (experiment.name, "bold"),
        f": {len(plan.topology.peers)} peers on {graph}, {data}, "
        f"{plan.learner.layout.size} parameters, {_rounds(plan)} of {describe_exchange(steps)}\n"
        f"privacy: {describe(plan, spent=None)['statement']}",
    )


def _round(records: list[Record], plan: Plan, *, missed: set[str]) -> str:
    """Return the line of a round: means over the peers that do not attack, and whose models were missed."""
    honest = frozenset(plan.honest)
    kept = [record for record in records if record.peer in honest] or records
    scores = "".join(f"{name} {value:.3f}, " for name, value in mean_scores(kept).items())
    evaluated = sum(bool(record.scores) for record in kept)
    if not plan.apart_by_masks:
        scores += f"distance {sum(record.distance for record in kept) / len(kept):.2g}, "
    which = "honest peers" if len(kept) < len(records) else "peers"
    whose = f"mean of {len(kept)} {which}" if len(kept) > 1 else kept[0].peer
    whose += f", scores of {evaluated}" if 0 < evaluated < len(kept) else ""
    without = f", without all models of {brief(tuple(sorted(missed)))}" if missed else ""
    text = f": {scores.removesuffix(', ')}" if scores else ""  # a statistic has no scores
    of = "" if plan.experiment.endless else f"/{plan.experiment.horizon}"
    return f"round {records[0].round + 1}{of}{text} ({whose}){without}"


def _rounds(plan: Plan) -> str:
    """Return the number of rounds, and when a run without an end has spent its privacy budget at the earliest."""
    if not plan.experiment.endless:
        return f"{plan.experiment.horizon} rounds"
    if not plan.protection.claimed:
        return "rounds without an end"
    rounds, every = plan.protection.affordable, Timetable.of(plan.experiment.transport.pace).every
    within = f", which takes {duration(round(rounds * every))} at least," if every else ""
    return f"at most {rounds:,} rounds, after which the privacy budget is spent{within}"
