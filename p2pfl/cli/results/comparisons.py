"""A comparison as a table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import grid
from p2pfl.results.comparing import tables, wording
from p2pfl.results.comparing.comparison import Comparison

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
    for sentence in (*([wording.bold(comparison)] if console.is_terminal else []), *wording.notes(comparison)):
        console.print(Text(sentence, style="dim"), soft_wrap=not console.is_terminal)
    for sentence in wording.warnings(comparison):
        console.print(Text(f"WARNING: {sentence}", style="yellow"), soft_wrap=not console.is_terminal)


def _gives(comparison: Comparison) -> Table:
    """Return the scores and differences, the leading scores in bold and the verdicts in colour."""
    heads, *rows = tables.scores(comparison)
    table = _settings(comparison, heads)
    table.columns[-1].justify = "left"
    score = len(tables.keys(comparison)) + 1
    for each, (*cells, said) in zip(comparison.settings, rows, strict=True):
        bold = Text(cells[score], style="bold" if each.leading else "")
        table.add_row(*cells[:score], bold, *cells[score + 1 :], Text(said, style=STYLES.get(said, "")))
    return table


def _costs(comparison: Comparison) -> Table:
    """Return what a run of each setting costs in the mean."""
    heads, *rows = tables.costs(comparison)
    table = _settings(comparison, heads)
    for cells in rows:
        table.add_row(*cells)
    return table


def _settings(comparison: Comparison, heads: list[str]) -> Table:
    """Return an empty table whose first columns are those of the settings."""
    table = grid(*heads)
    for column in table.columns[: len(tables.keys(comparison))]:
        column.justify = "left"
    return table
