"""The features of a model: importances of trees, coefficients of a regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.core.explanations import Explained, FeatureImportance, FittedCoefficient, FittedRegression
from p2pfl.results.facts import Block, BlockGroup, FactTable, Note, pairs, shorten
from p2pfl.results.run_files import explanation_of

MAX_IMPORTANCES, MAX_COEFFICIENTS = 20, 200
"""Importances, and coefficients, that a page shows."""

REST_SENTENCE = ", in summary.json"
"""Note on features that the table leaves out."""

MIN_PRINTED_P = 1e-4
"""Least p-value that is printed as it is."""

IMPORTANCE_NOTE = (
    "The importance of a feature is its share of what splits gain on the training data of all peers. A feature with "
    "many values splits more often by chance, and of two features that say the same, either can have it all."
)
"""Explanation of importances below their table."""


IMPORTANCE_HEADS = ("feature", "importance", "total gain", "splits")
"""Columns of importances."""


def features(summary: Mapping[str, Any]) -> list[Block | None]:
    """Return importances or coefficients; nothing of a model without them."""
    explained = explanation_of(summary)
    if explained is None or not (explained.importances or explained.regression):
        return []
    notes = [Note(text, style="small") for text in _notes(explained)]
    if explained.regression is None:
        return [importance_table(explained.importances), *notes]
    return [
        BlockGroup([coefficient_table(explained.regression), pairs("Fit", fit_facts(explained.regression))], "beside"),
        proportionality_table(explained.regression) if explained.regression.tests else None,
        *notes,
    ]


def _notes(explained: Explained) -> list[str]:
    return [IMPORTANCE_NOTE] if explained.regression is None else [*explained.regression.notes()]


def importance_table(importances: Sequence[FeatureImportance]) -> FactTable:
    """Return the importances of the features of trees, the most important first."""
    return FactTable(
        "Importance by feature",
        IMPORTANCE_HEADS,
        shorten(map(importance, importances), MAX_IMPORTANCES, rest=REST_SENTENCE),
    )


def coefficient_table(regression: FittedRegression) -> FactTable:
    """Return the coefficients, in the columns that have something."""
    heads = ("feature", "estimate", "std. error", "z", "p", "95 % interval")
    rows = [coefficient(each) for each in regression.coefficients]
    return FactTable("Coefficients", heads, shorten(rows, MAX_COEFFICIENTS, rest=REST_SENTENCE)).dense()


def proportionality_table(found: FittedRegression) -> FactTable:
    """Return the tests of proportional hazards."""
    rows = [(each.name, f"{each.statistic:.3f}", each.freedom, _likely(each.p)) for each in found.tests]
    return FactTable("Test of proportional hazards", ("column", "chi2", "df", "p"), rows)


def fit_facts(regression: FittedRegression) -> dict[str, str]:
    """Return the facts of a fit, as text."""
    return {"samples": regression.size} | {
        key.replace("_", " "): "-" if value is None else f"{value:.6g}"
        for key, value in regression.facts.items()
        if key not in {"samples", "held_out", "converged"}
    }


def importance(score: FeatureImportance) -> list[str]:
    """Return the cells of an importance: name, share, total gain and splits.

    Examples
    --------
    >>> importance(FeatureImportance("age", 0.25, 31.5, 4))
    ['age', '0.2500', '31.5', '4']
    """
    return [score.name, f"{score.importance:.4f}", f"{score.total_gain:.5g}", str(score.weight)]


def coefficient(estimate: FittedCoefficient) -> list[str]:
    """Return the cells of a coefficient: name, estimate, standard error, z, p and interval.

    Examples
    --------
    >>> coefficient(FittedCoefficient("age", 0.5, 0.125, 4.0, 6.3e-5, 0.255, 0.745))
    ['age', '0.5', '0.125', '4.000', '< 0.0001', '0.255 to 0.745']
    """
    likely = "" if estimate.p is None else _likely(estimate.p)
    between = "" if estimate.low is None else f"{estimate.low:.5g} to {estimate.high:.5g}"
    numbers = (_format(estimate.estimate, ".5g"), _format(estimate.error, ".5g"), _format(estimate.z, ".3f"))
    return [estimate.name, *numbers, likely, between]


def _format(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _likely(p: float) -> str:
    return "< 0.0001" if p < MIN_PRINTED_P else f"{p:.4f}"
