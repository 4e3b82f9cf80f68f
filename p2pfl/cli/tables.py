"""Results as tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.experiment.catalogue import model_traits
from p2pfl.results.comparing import wording as comparing
from p2pfl.results.facts import FactTable, Styled
from p2pfl.results.formats import exchanged, number, size
from p2pfl.results.notices import wording
from p2pfl.results.notices.grouping import grouped
from p2pfl.results.pages.gains import LOSSLESS, gain_table
from p2pfl.results.reading import alarms_of, apart_by_masks, evaluation_of, stop_of
from p2pfl.results.records import by_round, mean_scores
from p2pfl.results.saved import SavedModels
from p2pfl.results.swarm.timeline import alerts_of_run

if TYPE_CHECKING:
    from p2pfl.results import Run  # what it prints need not be imported twice

MOST = 16
"""Peers that a summary lists."""

STYLES = {"good": "green", "bad": "red", "best": "bold"}
"""Styles of a terminal for those of facts."""

SHADES = "█▓▒░"
"""From the lowest of several curves to the highest."""

STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""Powers of ten times these part a chart's lines."""

FEW_LINES = 6
"""Fewer than so many lines of a chart are all labelled, else every second one."""


def grid(first: str, *others: str) -> Table:
    """Return a table without rules, with its numbers aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), caption_justify="left", title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "doing" else "right", no_wrap=True)
    return table


def shown(facts: FactTable) -> Table:
    """Return a table of facts for a terminal."""
    table = grid(*facts.heads)
    for place, column in enumerate(table.columns):
        column.justify = "left" if place < facts.text or not facts.heads[place] else "right"
    for place, row in enumerate(facts.rows):
        cells = [Text(str(each), STYLES.get(each.style, "") if isinstance(each, Styled) else "") for each in row]
        table.add_row(*cells, style="bold" if place in facts.bold else None)
    return table


def summary(result: Mapping[str, Any], folder: Path, *, console: Console | None = None) -> None:
    """Print what learning together gave, to standard error if nothing else is said."""
    console = console or terminal.console(stderr=True)
    gains: list[RenderableType] = [Text(), _gains(result)] if result.get("metric") else []  # a statistic has no scores
    lines = [] if "together" not in result else [*gains, Text(), *_facts(result)]
    if "scores" in result:  # of one peer
        said = ", ".join(f"{name} {number(value)}" for name, value in result["scores"].items())
        lines.append(Text(f"{result['peer']} has learned: {said}" if said else f"{result['peer']} has the result"))
        lines += [Text(sentence) for sentence in comparing.gained_by(result)]
        lines += [*_stopped(result), *_outside(result), *_alarms(result)]
    lines.append(Text(f"run directory: {folder}"))
    if (folder / "model.json").is_file():
        lines += [Text(sentence) for sentence in _usable(folder)]
    console.print(Group(*lines), soft_wrap=not console.is_terminal)


def history(run: Run) -> None:
    """Print the rounds of a run and its summary; scores and distances are means over the peers that do not attack.

    Distances are left out where they measure the masks.
    """
    attackers = run.attackers
    metrics = list(dict.fromkeys(name for record in run.metrics for name in record.scores))
    distance = [] if apart_by_masks(run.summary, run.experiment) else ["distance"]
    table = grid("round", *metrics, *distance, "training", "waiting", "sent", "missed")
    sent: dict[str, int] = {}
    for round, peers in by_round(run.metrics).items():
        honest = [record for record in peers if record.peer not in attackers] or peers
        found = mean_scores(honest)
        sent |= {record.peer: record.bytes_out for record in peers}  # those of peers that are gone stay
        table.add_row(
            str(round + 1) if len(peers) == len(sent) else f"{round + 1} ({len(peers)} peers)",
            *(number(found[name]) if name in found else "" for name in metrics),
            *(f"{_mean([record.distance for record in honest]):.2g}" for _ in distance),
            f"{_mean([record.seconds_training for record in peers]):.2f} s",
            f"{_mean([record.seconds_waiting for record in peers]):.2f} s",
            size(sum(sent.values())),
            str(sum(len(record.missed) for record in peers)),
        )
    console = terminal.console()
    if run.metrics:
        console.print(table)
    else:
        console.print("no round was completed")
    if run.summary and run.folder is not None:
        summary(run.summary, run.folder, console=console)
    else:
        for alert in reversed(alerts_of_run(run)):  # the newest is next to the prompt
            style = "bold red" if alert.severity == "alarm" and not alert.over else "yellow"
            console.print(Text(f"{alert.peer}: {alert.sentence}", style=style), soft_wrap=True)
        console.print("the run is not finished, so there is no summary")


def facts(pairs: Mapping[str, str]) -> None:
    """Print facts, one a line."""
    table = Table.grid(padding=(0, 2))
    for name, value in pairs.items():
        table.add_row(Text(name, style="dim"), value)
    terminal.console().print(table)


def shaded(
    places: Sequence[float],
    curves: Sequence[Sequence[float]],
    *,
    top: float,
    line: float | None = None,
    above: Sequence[float] | None = None,
    width: int = 68,
    height: int = 10,
) -> list[str]:
    r"""Rising curves over one another as shaded areas, in characters.

    Parameters
    ----------
    places
        Places at which the curves are known, rising.
    curves
        Their values there, from the lowest curve to the highest; what is too high is cut off.
    top
        What is to be shown at least.
    line
        A value to mark with a dashed line.
    above
        Another curve, not filled.
    width, height
        Of the area, in characters.

    Examples
    --------
    >>> print(*shaded([1, 4], [[1, 2], [2, 4]], top=4, line=3, width=8, height=4), sep="\n")
         4 ┤      ▓▓
         3 ┤╌╌▓▓▓▓▓▓
         2 ┤▓▓▓▓████
         1 ┤████████
           └────────
            1      4
    """
    across = np.linspace(places[0], places[-1], width)  # [W]
    power = 10.0 ** math.floor(math.log10(top / height))
    step = next(power * nice for nice in STEPS if power * nice * height >= top * (1 - 1e-9))
    lines = []
    for level in range(height, 0, -1):
        value = step * level
        marked = line is not None and round(line / step) == level
        cells = np.full(width, "╌" if marked else " ")  # [W]
        for shade, curve in reversed(list(zip(SHADES, curves, strict=False))):
            cells[np.interp(across, places, curve) > value - step / 2] = shade
        if above is not None:
            cells[np.round(np.interp(across, places, above) / step) == level] = "·"
        labelled = marked or height < FEW_LINES or level % 2 == 0
        label = f"{line if marked else value:6.3g} ┤" if labelled else " " * 7 + "│"
        lines.append(label + "".join(cells))
    first, last = f"{places[0]:g}", f"{places[-1]:g}"
    return [*lines, " " * 7 + "└" + "─" * width, " " * 8 + first + last.rjust(width - len(first))]


def _usable(folder: Path) -> Iterator[str]:
    """Yield how to use the models of a run directory."""
    name = json.loads((folder / "model.json").read_text())["model"]["name"]
    traits = model_traits(name)
    if traits.predicts:
        yield "model.json there says how raw values become inputs of the models in peers/"
    peer = next(iter(SavedModels(folder / "peers")), None)
    if traits.command and peer is not None:
        what = "the coefficients" if traits.predicts else "the result"
        yield f"p2pfl {traits.command} {folder / 'peers' / peer}.safetensors prints {what}"


def _gains(result: Mapping[str, Any]) -> Table:
    table = shown(gain_table(result, most=MOST))
    table.title, table.title_style = f"What learning together gave ({result['metric']})", "bold"
    table.caption = LOSSLESS if result.get("lossless") else None
    return table


def _rounds(result: Mapping[str, Any]) -> str:
    """Return how many rounds of what a run took."""
    count = result["rounds"]
    return f"{count} round{'' if count == 1 else 's'} of {exchanged(result['steps'])}"


def _facts(result: Mapping[str, Any]) -> list[RenderableType]:
    """Return what a run cost, and what went wrong in it."""
    when = f"{result['wall_s']:.1f} s{', as predicted' if result.get('predicted') else ''}"
    said = [
        f"{_rounds(result)} in {when}, {result['start_s']:.1f} s to start",
        f"{size(result['bytes_sent'])} sent by {result['peers']} peers",
    ]
    if result["peer_memory"] is not None:
        said.append(f"{size(result['peer_memory'])} of private memory a peer")
    lines: list[RenderableType] = [Text(", ".join(said)), *_stopped(result)]
    if sentence := evaluation_of(result):
        lines.append(Text(sentence))
    if result["missed"]:
        lines.append(Text(f"{result['missed']} models did not arrive in time", style="yellow"))
    lines += [*_outside(result), *_alarms(result)]
    lines.append(Text(f"privacy: {result['privacy']['statement']}"))
    return [*lines, *(Text(f"advice: {sentence}", style="yellow") for sentence in result.get("advice", ()))]


def _stopped(result: Mapping[str, Any]) -> list[Text]:
    stop = stop_of(result)
    return [] if stop is None else [Text(f"stopped after {wording.stopped(stop)}", style="yellow")]


def _outside(result: Mapping[str, Any]) -> list[Text]:
    """Return that the run is missing in the account of its data, if it is; earlier runs do not say."""
    said = "the account of the data does not count this run: it ran with --unaccounted"
    return [] if result.get("accounted", True) else [Text(said, style="bold red")]


def _alarms(result: Mapping[str, Any]) -> list[Text]:
    """Return what harmed the result, for whoever did not watch; in red what still does."""
    lines = []
    for alarm, more in grouped(alarms_of(result)):
        if alarm.cancelled:
            said = f"in round {alarm.round + 1} masks of {', '.join(alarm.partners)} did not cancel"
            lines.append(Text(f"{alarm.peer}: {said}; they are cancelled now{more}"))
        else:
            lines.append(Text(f"{alarm.peer}: {wording.sentence(alarm)}{more}", style="bold red"))
    return lines


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
