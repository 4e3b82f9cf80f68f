"""Coefficients of a regression and importances of trees as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import facts, grid, shown
from p2pfl.core.explanations import FeatureImportance, FittedRegression
from p2pfl.results.pages.features import coefficient_table, fit_facts, importance_table

MOST = 20
"""Penalties of a path that are printed."""


def show(found: FittedRegression) -> None:
    """Print the coefficients, as statistics software does."""
    console = terminal.console()
    console.print(shown(coefficient_table(found)))
    if found.path:
        console.print()
        console.print(_path(found))
    for note in found.notes():
        console.print()
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    facts(fit_facts(found))


def show_importances(found: Sequence[FeatureImportance]) -> None:
    """Print the importances of the features of trees, the most important first."""
    terminal.console().print(shown(importance_table(found)))


def _path(found: FittedRegression) -> Table:
    """Return the penalties of a path, of many every few and the chosen one."""
    validated = "validation" in found.path[0]
    table = grid("lambda", "features", "deviance", *(["validation"] if validated else []))
    table.columns[0].justify = "right"
    chosen, every = int(found.facts["chosen"] or 0), max(1, len(found.path) // MOST)
    for place, each in enumerate(found.path):
        if place % every == 0 or place == chosen:
            cells = [f"{each['lambda']:.4g}", str(each["features"]), f"{each['deviance']:.5g}"]
            cells += [f"{each['validation']:.5g}"] if validated else []
            table.add_row(*cells, style="bold" if place == chosen else None)
    return table
