"""Coefficients of a regression and importances of trees as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import facts, grid
from p2pfl.core.explanations import FeatureImportance, FittedRegression
from p2pfl.results.pages.run.features_section import HEADS, coefficient, importance

MOST = 20
"""Penalties of a path, and features of trees, that are printed."""


def show(found: FittedRegression) -> None:
    """Print the coefficients, as statistics software does."""
    console = terminal.console()
    table = grid("", "estimate", "std. error", "z", "p", "95 % interval")
    for each in found.coefficients:
        name, *cells = coefficient(each)
        table.add_row(Text(name), *cells)
    console.print(table)
    if found.path:
        console.print()
        console.print(_path(found))
    for note in found.notes():
        console.print()
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    facts(
        {
            key.replace("_", " "): _number(value, ".6g") or "-"
            for key, value in found.facts.items()
            if key != "converged"
        }
    )


def show_importances(found: Sequence[FeatureImportance]) -> None:
    """Print the importances of the features of trees, the most important first."""
    console = terminal.console()
    table = grid(*HEADS)
    for each in found[:MOST]:
        name, *cells = importance(each)
        table.add_row(Text(name), *cells)
    if len(found) > MOST:
        table.add_row(f"and {len(found) - MOST} more")
    console.print(table)


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


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
