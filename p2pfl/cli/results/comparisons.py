"""A comparison as a table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import grid
from p2pfl.report.comparing import wording
from p2pfl.report.comparing.comparison import Comparison
from p2pfl.report.formats import size

STYLES = {"better": "green", "worse": "red"}

WIDE = 200
"""Columns where the output is no terminal."""


def show(comparison: Comparison, *, console: Console) -> None:
    """Print settings, differences, costs and what one must know to read them."""
    if not console.is_terminal:
        console = terminal.console(stderr=console.stderr, quiet=console.quiet, width=WIDE)
    console.print()
    console.print(_gives(comparison))
    console.print()
    console.print(_costs(comparison))
    console.print()
    for sentence in wording.notes(comparison):
        console.print(Text(sentence, style="dim"), soft_wrap=not console.is_terminal)
    for sentence in wording.warnings(comparison):
        console.print(Text(f"WARNING: {sentence}", style="yellow"), soft_wrap=not console.is_terminal)


def _gives(comparison: Comparison) -> Table:
    """Return the scores and differences."""
    differences = {each.setting: each for each in comparison.differences}
    table = _settings(comparison, "seeds", comparison.metric, "difference", "p", "doing")
    table.columns[-1].header = ""
    for place, each in enumerate(comparison.settings):
        difference = differences.get(place)
        said = "" if difference is None else wording.verdict(comparison, difference)
        table.add_row(
            *_values(comparison, place),
            f"{len(each.by_seed)}" + (f" of {len(each.by_seed) + each.failed}" if each.failed else ""),
            Text(wording.number(each.score), style="bold" if each.best else ""),
            "" if difference is None else wording.number(difference.difference, sign=True),
            "" if difference is None else wording.probability(difference.adjusted),
            Text(said, style=STYLES.get(said, "")),
        )
    return table


def _costs(comparison: Comparison) -> Table:
    """Return what a run of each setting costs in the mean."""
    table = _settings(comparison, "rounds", "sent", "gradients", "time")
    for place, each in enumerate(comparison.settings):
        gradients = "" if each.gradients is None else f"{each.gradients:,.0f}"
        cost = f"{each.rounds:g}", size(each.bytes_sent), gradients, f"{each.seconds:.1f} s"
        table.add_row(*_values(comparison, place), *cost)
    return table


def _settings(comparison: Comparison, *others: str) -> Table:
    """Return an empty table whose first columns are those of the settings."""
    names = wording.heads(comparison.keys) or [""]
    table = grid(names[0], *names[1:], *others)
    for column in table.columns[: len(names)]:
        column.justify = "left"
    return table


def _values(comparison: Comparison, place: int) -> list[Text]:
    values = comparison.settings[place].values
    return [Text(value) for value in values.values()] or [Text(wording.setting(values))]
