"""A comparison as a table in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import shown
from p2pfl.results.comparing import tables, wording
from p2pfl.results.comparing.comparison import Comparison

WIDE = 200
"""Columns where the output is no terminal."""


def show(comparison: Comparison, *, console: Console) -> None:
    """Print settings, differences, costs and what one must know to read them."""
    if not console.is_terminal:
        console = terminal.console(stderr=console.stderr, quiet=console.quiet, width=WIDE)
    console.print()
    console.print(shown(tables.scores(comparison)))
    console.print()
    console.print(shown(tables.costs(comparison)))
    console.print()
    for sentence in (*([wording.bold(comparison)] if console.is_terminal else []), *wording.notes(comparison)):
        console.print(Text(sentence, style="dim"), soft_wrap=not console.is_terminal)
    for sentence in wording.warnings(comparison):
        console.print(Text(f"WARNING: {sentence}", style="yellow"), soft_wrap=not console.is_terminal)
