"""Tables in the terminal; everything but results goes to standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from p2pfl.experiment import Experiment, Plan
from p2pfl.peer import Progress
from p2pfl.report import Record, Run
from p2pfl.report.summary import describe

PERIOD = 4
"""Times a second that the live table is drawn."""


def _console(*, quiet: bool = False) -> Console:
    return Console(stderr=True, quiet=quiet, highlight=False)


class Lines:
    """One line for every round, for logs."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = _console(quiet=quiet)

    def observe(self, event: Any) -> None:
        """Print what a peer says."""
        match event:
            case Record():
                missed = f", without {', '.join(event.missed)}" if event.missed else ""
                self.console.print(f"{event.peer}: round {event.round + 1}, {_scores(event.scores)}{missed}")
            case Progress(waiting=waiting, phase=phase) if phase != "learning" or waiting:
                whom = f", waiting for {', '.join(waiting)}" if waiting else ""
                self.console.print(f"{event.peer}: {phase}{whom}")
            case _:
                pass


class Live:
    """The live table of ``run``: a line for each peer."""

    def __init__(self, plan: Plan, *, quiet: bool) -> None:
        self.plan = plan
        self.records: dict[str, Record] = {}
        self.progress: dict[str, Progress] = {}
        self.began = time.monotonic()
        self.console = _console(quiet=quiet)
        self.live = RichLive(
            console=self.console, refresh_per_second=PERIOD, get_renderable=self._draw, transient=True, screen=False
        )
        self.lines = None if self.console.is_terminal else Lines(quiet=quiet)

    def __enter__(self) -> Self:
        self.console.print(_heading(self.plan))
        if self.lines is None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.lines is None:
            self.live.stop()

    def observe(self, event: Any) -> None:
        """Take what a peer says."""
        if self.lines is not None:
            self.lines.observe(event)
        elif isinstance(event, Record):
            self.records[event.peer] = event
        elif isinstance(event, Progress):
            self.progress[event.peer] = event

    def _draw(self) -> Table:
        metric = next((name for record in self.records.values() for name in record.scores if name != "loss"), "score")
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        table.add_column("peer")
        for name in ("round", metric, "loss", "distance", "sent"):
            table.add_column(name, justify="right")
        table.add_column("waiting for", min_width=24)
        rounds = self.plan.experiment.rounds
        names = self.plan.topology.peers
        room = max(4, self.console.height - 6)
        for name in names[:room]:
            record, progress = self.records.get(name), self.progress.get(name)
            phase = progress.phase if progress else "starting"
            doing = (
                _brief(progress.waiting) if progress and progress.waiting else ("" if phase == "learning" else phase)
            )
            if record is None:
                table.add_row(name, f"0/{rounds}", "", "", "", "", Text(doing, style="dim"))
                continue
            table.add_row(
                name,
                f"{record.round + 1}/{rounds}",
                Text(f"{record.scores.get(metric, 0.0):.3f}", style="bold"),
                f"{record.scores['loss']:.3f}",
                f"{record.distance:.2g}",
                size(record.bytes_out),
                Text(doing, style="dim"),
            )
        if len(names) > room:
            table.add_row(f"and {len(names) - room} more")
        table.caption = f"{time.monotonic() - self.began:.0f} s"
        table.caption_justify = "left"
        return table


class Rounds:
    """The progress of ``simulate``: one line for each round."""

    def __init__(self, experiment: Experiment, *, quiet: bool) -> None:
        self.experiment = experiment
        self.console = _console(quiet=quiet)
        self.status = self.console.status("preparing")

    def __enter__(self) -> Self:
        self.status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.status.stop()

    def observe(self, records: list[Record]) -> None:
        """Show a round's mean scores."""
        mean = {name: sum(r.scores[name] for r in records) / len(records) for name in records[0].scores}
        line = f"round {records[0].round + 1}/{self.experiment.rounds}: {_scores(mean)}, {len(records)} peers"
        self.status.update(line)
        if not self.console.is_terminal:
            self.console.print(line)


def summary(result: Mapping[str, Any], folder: Path) -> None:
    """Print what learning together gave."""
    console = _console()
    if "together" not in result:
        console.print(f"run directory {folder}")
        return
    metric = result["metric"]
    table = Table(box=None, pad_edge=False, padding=(0, 2), title=f"What learning together gave ({metric})")
    table.title_justify = "left"
    table.title_style = "bold"
    table.add_column("peer")
    for name in ("alone", "together", "gain"):
        table.add_column(name, justify="right")
    shown = list(result["per_peer"].items())
    for name, score in shown[:16]:
        table.add_row(name, f"{score['alone']:.3f}", f"{score['together']:.3f}", _gain(score))
    if len(shown) > 16:
        table.add_row(f"and {len(shown) - 16} more")
    mean = {"alone": result["alone"], "together": result["together"]}
    table.add_section()
    table.add_row("mean", f"{mean['alone']:.3f}", Text(f"{mean['together']:.3f}", style="bold"), _gain(mean))
    table.add_row("pooled data", "", f"{result['pooled']:.3f}", "")
    facts = [
        f"{result['rounds']} rounds of {result['steps']} exchanges in {result['wall_s']:.1f} s",
        f"{size(result['bytes_sent'])} sent by {result['peers']} peers",
    ]
    if result.get("peer_memory"):
        facts.append(f"{size(result['peer_memory'])} of private memory a peer")
    lines: list[Any] = [Text(), table, Text(), Text(", ".join(facts))]
    if result["missed"]:
        lines.append(Text(f"{result['missed']} rows did not come in time; their masks did not cancel", style="yellow"))
    lines += [Text(f"privacy: {result['privacy']['statement']}"), Text(f"run directory: {folder}")]
    console.print(Group(*lines), soft_wrap=True)


def history(run: Run) -> None:
    """Print a run's rounds and its summary."""
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    records: dict[int, list[Record]] = {}
    for record in run.metrics:
        records.setdefault(record.round, []).append(record)
    metrics = list(run.metrics[0].scores) if run.metrics else []
    for name in ("round", "peers", *metrics, "distance", "waiting", "missed"):
        table.add_column(name, justify="right")
    for round, peers in sorted(records.items()):
        means = [f"{sum(r.scores[name] for r in peers) / len(peers):.3f}" for name in metrics]
        distance = sum(r.distance for r in peers) / len(peers)
        waiting = sum(r.seconds_waiting for r in peers) / len(peers)
        missed = sum(len(r.missed) for r in peers)
        table.add_row(str(round + 1), str(len(peers)), *means, f"{distance:.2g}", f"{waiting:.2f} s", str(missed))
    Console(highlight=False).print(table)
    if run.summary and run.folder is not None:
        summary(run.summary, run.folder)


def table(facts: Mapping[str, Any]) -> None:
    """Print facts, one a line."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        grid.add_row(Text(name, style="dim"), f"{value:.6g}" if isinstance(value, float) else str(value))
    Console(highlight=False).print(grid)


def size(count: float) -> str:
    """Bytes for people.

    Examples
    --------
    >>> size(9640), size(50e6)
    ('9.6 kB', '50.0 MB')
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _heading(plan: Plan) -> Text:
    experiment, said = plan.experiment, describe(plan)
    graph = experiment.topology.file or experiment.topology.kind
    return Text.assemble(
        (experiment.name, "bold"),
        f": {len(plan.topology.peers)} peers on {graph}, {experiment.data.name} ({experiment.data.split}), "
        f"{plan.learner.layout.size} parameters, {experiment.rounds} rounds of {plan.steps} exchanges\n"
        f"privacy: {said['statement']}",
    )


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())


def _gain(score: Mapping[str, float]) -> Text:
    gain = score["together"] - score["alone"]
    return Text(f"{gain:+.3f}", style="green" if gain > 0 else "red")


def _brief(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
