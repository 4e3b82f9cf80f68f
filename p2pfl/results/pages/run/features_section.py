"""The features of a model: importances of trees, coefficients of a regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.core.explanations import FeatureImportance, FittedCoefficient, FittedRegression
from p2pfl.results.pages.bars import Segment, stacked
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import beside, pairs, table
from p2pfl.results.reading import explained_of

MOST_BARS, MOST_ROWS = 20, 200
"""Importances, and coefficients, that a page shows."""

NAMES = 180
"""Width of the names of features."""

LEAST = 1e-4
"""Least p-value that is printed as it is."""

ABOUT = (
    "The importance of a feature is its share of what splits gain on the training data of all peers. A feature with "
    "many values splits more often by chance, and of two features that say the same, either can have it all."
)
"""Explanation of importances below their table."""


HEADS = ("feature", "importance", "total gain", "splits")
"""Columns of importances."""


def features(summary: Mapping[str, Any]) -> Markup | None:
    """Return importances or coefficients; ``None`` of a model without them."""
    found = explained_of(summary)
    if found is None:
        return None
    if found.regression is not None:
        return _regression(found.regression)
    return _importances(found.importances) if found.importances else None


def listed(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return importances or coefficients as a table of texts with notes; ``None`` of a model without them."""
    found = explained_of(summary)
    if found is None or not (found.importances or found.regression):
        return None
    if found.regression is None:
        rows, more = [importance(each) for each in found.importances[:MOST_BARS]], len(found.importances) - MOST_BARS
        made = {"caption": "Importance by feature", "heads": list(HEADS), "rows": rows, "notes": [ABOUT]}
    else:
        heads, rows = _coefficients(found.regression)
        more = len(found.regression.coefficients) - MOST_ROWS
        made = {"caption": "Coefficients", "heads": heads, "rows": rows, "notes": found.regression.notes()}
    return made | {"more": max(0, more)}


def _importances(found: Sequence[FeatureImportance]) -> Markup:
    bars = stacked(
        {each.name: [each.importance] for each in found[:MOST_BARS]},
        [Segment("importance", "c0")],
        title="Importance",
        name="importances",
        form=lambda share: f"{100 * share:.1f} %",
        names=NAMES,
    )
    rows = [*map(importance, found[:MOST_BARS]), *_more(len(found) - MOST_BARS, HEADS)]
    made = table("Importance by feature", HEADS, rows)
    return join([tag("div", bars, made, class_="figures"), tag("p", ABOUT, class_="small")])


def _regression(found: FittedRegression) -> Markup:
    heads, rows = _coefficients(found)
    rows += _more(len(found.coefficients) - MOST_ROWS, heads)
    facts = {
        key.replace("_", " "): "-" if value is None else f"{value:.6g}"
        for key, value in found.facts.items()
        if key != "converged"
    }
    notes = [tag("p", note, class_="small") for note in found.notes()]
    return join([beside(table("Coefficients", heads, rows), pairs("Fit", facts)), *notes])


def _coefficients(found: FittedRegression) -> tuple[list[str], list[list[str]]]:
    """Return the heads and cells of the columns that have something."""
    heads = ("feature", "estimate", "std. error", "z", "p", "95 % interval")
    rows = [coefficient(each) for each in found.coefficients[:MOST_ROWS]]
    kept = [place for place in range(len(heads)) if any(row[place] != "-" for row in rows)]
    return [heads[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _more(count: int, heads: Sequence[str]) -> list[list[str]]:
    """Return a row on features that are left out."""
    return [[f"and {count} more, in summary.json", *[""] * (len(heads) - 1)]] if count > 0 else []


def importance(found: FeatureImportance) -> list[str]:
    """Return the cells of an importance: name, share, total gain and splits.

    Examples
    --------
    >>> importance(FeatureImportance("age", 0.25, 31.5, 4))
    ['age', '0.2500', '31.5', '4']
    """
    return [found.name, f"{found.importance:.4f}", f"{found.total_gain:.5g}", str(found.weight)]


def coefficient(found: FittedCoefficient) -> list[str]:
    """Return the cells of a coefficient: name, estimate, standard error, z, p and interval.

    Examples
    --------
    >>> coefficient(FittedCoefficient("age", 0.5, 0.125, 4.0, 6.3e-5, 0.255, 0.745))
    ['age', '0.5', '0.125', '4.000', '< 0.0001', '0.255 to 0.745']
    """
    likely = "-" if found.p is None else "< 0.0001" if found.p < LEAST else f"{found.p:.4f}"
    between = "-" if found.low is None else f"{found.low:.5g} to {found.high:.5g}"
    numbers = (_shown(found.estimate, ".5g"), _shown(found.error, ".5g"), _shown(found.z, ".3f"))
    return [found.name, *numbers, likely, between]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
