"""Scores of a saved model as tables."""

from __future__ import annotations

import math

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import grid
from p2pfl.results.formats import number
from p2pfl.results.models import Evaluation
from p2pfl.results.models.evaluating import Score


def show(found: Evaluation) -> None:
    """Print the scores of all samples, and below them those of each group."""
    console = terminal.console()
    table = grid("score", "value", "95 % interval")
    for name, score in found.whole.scores.items():
        table.add_row(name.replace("_", " "), number(score.value, unknown="-"), _interval(score))
    console.print(f"{found.whole.samples} samples")
    console.print(table)
    if (test := found.goodness) is not None:
        said = f"statistic {number(test.statistic)} with {test.groups} degrees of freedom, p = {test.p:.4f}"
        console.print(f"\nHosmer-Lemeshow test, {test.groups} groups by probability: {said}.")
    if found.by is not None:
        first = "auc" if "auc" in found.whole.scores else "r2"
        groups = grid(found.by, "samples", "loss", "95 % interval", first, "95 % interval")
        for group in found.groups:
            cells = [cell for name in ("loss", first) for cell in _cells(group.scores[name])]
            groups.add_row(Text(group.name), str(group.samples), *cells)
        console.print()
        console.print(groups)
    console.print(f"\nIntervals are percentiles of {found.draws} bootstrap samples, drawn with seed {found.seed}.")


def _cells(score: Score) -> tuple[str, str]:
    return number(score.value, unknown="-"), _interval(score)


def _interval(score: Score) -> str:
    return "-" if math.isnan(score.low) else f"{number(score.low)} to {number(score.high)}"
