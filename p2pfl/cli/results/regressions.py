"""Coefficients of a saved regression as a table."""

from __future__ import annotations

from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import facts, grid
from p2pfl.inference.fits import Fit

LEAST = 1e-4
"""Least p-value that is printed as it is."""


def show(found: Fit) -> None:
    """Print the coefficients, as statistics software does."""
    console = terminal.console()
    table = grid("", "estimate", "std. error", "z", "p", "95 % interval")
    for each in found.coefficients:
        if each.estimate is None or each.error is None or each.z is None or each.p is None:
            table.add_row(Text(each.name), *5 * ["-"])
            continue
        likely = "< 0.0001" if each.p < LEAST else f"{each.p:.4f}"
        interval = f"{each.low:.5g} to {each.high:.5g}"
        table.add_row(Text(each.name), f"{each.estimate:.5g}", f"{each.error:.5g}", f"{each.z:.3f}", likely, interval)
    console.print(table)
    if any(each.estimate is None for each in found.coefficients):
        console.print("\n-: the features above determine it, so it has no coefficient of its own")
    console.print()
    facts({key.replace("_", " "): f"{value:.6g}" for key, value in found.facts.items() if key != "converged"})
