"""Coefficients of a saved regression as a table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from p2pfl.cli import terminal
from p2pfl.cli.tables import facts, grid
from p2pfl.inference.fits import Fit

MOST = 20
"""Penalties of a path that are printed."""

LEAST = 1e-4
"""Least p-value that is printed as it is."""


def show(found: Fit) -> None:
    """Print the coefficients, as statistics software does."""
    console = terminal.console()
    table = grid("", "estimate", "std. error", "z", "p", "95 % interval")
    for each in found.coefficients:
        interval = None if each.low is None else f"{each.low:.5g} to {each.high:.5g}"
        likely = None if each.p is None else "< 0.0001" if each.p < LEAST else f"{each.p:.4f}"
        cells = [_number(each.estimate, ".5g"), _number(each.error, ".5g"), _number(each.z, ".3f"), likely, interval]
        table.add_row(Text(each.name), *("-" if cell is None else cell for cell in cells))
    console.print(table)
    if found.path:
        console.print()
        console.print(_path(found))
    for note in _notes(found):
        console.print()
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    facts({key.replace("_", " "): f"{value:.6g}" for key, value in found.facts.items() if key != "converged"})


def _path(found: Fit) -> Table:
    """Return the penalties of a path, of many every few and the chosen one."""
    validated = "validation" in found.path[0]
    table = grid("lambda", "features", "deviance", *(["validation"] if validated else []))
    table.columns[0].justify = "right"
    chosen, every = int(found.facts["chosen"]), max(1, len(found.path) // MOST)
    for place, each in enumerate(found.path):
        if place % every == 0 or place == chosen:
            cells = [f"{each['lambda']:.4g}", str(each["features"]), f"{each['deviance']:.5g}"]
            cells += [f"{each['validation']:.5g}"] if validated else []
            table.add_row(*cells, style="bold" if place == chosen else None)
    return table


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)


def _notes(found: Fit) -> list[str]:
    """Return sentences on what the table lacks."""
    said = []
    if found.errors == "private" and any(each.estimate is None for each in found.coefficients):
        said.append("No estimate: the last level of a column is the one with which the others are compared.")
    elif any(each.estimate is None for each in found.coefficients):
        said.append("No estimate: the features above determine it, so it has no coefficient of its own.")
    if found.errors == "none":
        said.append("No standard errors: the lasso selects features, which no usual test accounts for.")
    elif any(each.estimate is not None and each.error is None for each in found.coefficients):
        said.append("No standard errors: there are no more samples than coefficients.")
    elif found.errors == "private":
        said.append("Standard errors and intervals include the private noise.")
        if found.facts["ridge"] > 0:
            said.append("The noise requires a ridge, which shrinks estimates, so there are no tests.")
    elif found.errors == "posterior":
        said.append(
            "The ridge penalty shrinks estimates. Standard errors and intervals are those of the posterior with the "
            "penalty as a normal prior, so there are no tests."
        )
    return said
