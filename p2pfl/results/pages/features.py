"""The features of a model: importances of trees, coefficients of a regression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.core.explanations import FeatureImportance, FittedCoefficient, FittedRegression
from p2pfl.results.facts import Block, BlockGroup, FactTable, Note, pairs, shorten
from p2pfl.results.forest_plot import forest_figure
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
    if explained.regression is None:
        return [importance_table(explained.importances), Note(IMPORTANCE_NOTE, style="small")]
    return regression_blocks(explained.regression)


def regression_blocks(regression: FittedRegression) -> list[Block | None]:
    """Return the coefficients of a regression, its facts, and how to read them."""
    coefficients, fit, *tests = regression_tables(regression)
    return [
        BlockGroup([coefficients, fit], "beside"),
        *([forest_figure(regression)] if regression.sites else []),
        *tests,
        *(Note(text, style="small") for text in regression.notes()),
    ]


def regression_tables(regression: FittedRegression) -> list[FactTable]:
    """Return the tables of a regression: coefficients, facts of the fit, and tests of its assumptions."""
    tests = [proportionality_table(regression)] if regression.tests else []
    return [coefficient_table(regression), pairs("Fit", fit_facts(regression)), *tests]


def coefficient_rows(regression: FittedRegression) -> Iterator[Sequence[object]]:
    """Yield a head and a row for each coefficient, with all digits, for a CSV file; an empty cell is not known."""
    statistic = "z" if regression.freedom is None else "t"
    ratio = regression.ratio.replace(" ", "_")
    ratios = [ratio, f"{ratio}_low", f"{ratio}_high"] if ratio else []
    yield ["feature", "estimate", "std_error", statistic, "p", "low", "high", *ratios]
    for each in regression.coefficients:
        values = (each.estimate, each.error, each.z, each.p, each.low, each.high)
        yield [each.name, *values, *(each.ratio if ratio else ())]


def importance_table(importances: Sequence[FeatureImportance]) -> FactTable:
    """Return the importances of the features of trees, the most important first."""
    return FactTable(
        "Importance by feature",
        IMPORTANCE_HEADS,
        shorten(map(importance, importances), MAX_IMPORTANCES, rest=REST_SENTENCE),
    )


def coefficient_table(regression: FittedRegression) -> FactTable:
    """Return the coefficients, in the columns that have something.

    Where exponentials of coefficients mean something, these have the interval.
    """
    statistic = "z" if regression.freedom is None else "t"
    ratio = (regression.ratio,) if regression.ratio else ()
    heads = ("feature", "estimate", "std. error", statistic, "p", *ratio, "95 % interval")
    rows = [coefficient(each, ratio=bool(ratio)) for each in regression.coefficients]
    for row in rows:
        if row[0] in regression.references:
            row[1] = "reference"
    return FactTable("Coefficients", heads, shorten(rows, MAX_COEFFICIENTS, rest=REST_SENTENCE)).dense()


def proportionality_table(fit: FittedRegression) -> FactTable:
    """Return the tests of proportional hazards, or of the same effect at all peers."""
    pooled = fit.errors in {"random", "fixed"}
    caption = "Heterogeneity between peers (Q)" if pooled else "Test of proportional hazards"
    rows = [(each.name, f"{each.statistic:.3f}", each.freedom, p_value(each.p)) for each in fit.tests]
    return FactTable(caption, ("column", "chi2", "df", "p"), rows)


def fit_facts(regression: FittedRegression) -> dict[str, str]:
    """Return the facts of a fit, as text.

    Examples
    --------
    >>> facts = {"samples": 20.0, "r2": 0.5, "f": 18.0, "f_freedom": 1.0, "f_p": 5e-4}
    >>> fit_facts(FittedRegression("glm", (), facts, errors="likelihood", freedom=18.0))
    {'samples': 'n = 20', 'R²': '0.5', 'F': '18 on 1 and 18 degrees of freedom, p = 0.0005'}
    """
    facts = regression.facts
    shown = {"samples": regression.size}
    for key, value in facts.items():
        name, _, rest = key.rpartition("_")
        if key in UNLISTED or (rest in {"freedom", "p"} and name in TESTS):
            continue
        text = "-" if value is None else f"{value:.6g}"
        if key in TESTS and value is not None:
            text += f" on {_freedom(regression, key)} degrees of freedom, p {p_value(facts[f'{key}_p'], sign='= ')}"
        shown[FACT_NAMES.get(key, key.replace("_", " "))] = text
    return shown


UNLISTED = ("samples", "held_out", "parameters", "converged")
"""Facts that no table lists by themselves."""

TESTS = ("f", "chi2")
"""Statistics whose degrees of freedom and p-values are facts of their own."""

FACT_NAMES = {
    "r2": "R²",
    "adjusted_r2": "adjusted R²",
    "f": "F",
    "chi2": "likelihood ratio",
    "likelihood": "log likelihood",
    "null_likelihood": "null log likelihood",
    "aic": "AIC",
    "bic": "BIC",
}
"""Names of facts for people."""


def _freedom(regression: FittedRegression, test: str) -> str:
    above = f"{regression.facts[f'{test}_freedom']:.0f}"
    return above if test != "f" or regression.freedom is None else f"{above} and {regression.freedom:.0f}"


def p_value(p: float | None, *, sign: str = "") -> str:
    """Return a p-value as text; nothing where there is none.

    Examples
    --------
    >>> p_value(0.04999), p_value(1e-9), p_value(0.2, sign="= ")
    ('0.0500', '< 0.0001', '= 0.2000')
    """
    return "" if p is None else "< 0.0001" if p < MIN_PRINTED_P else f"{sign}{p:.4f}"


def importance(score: FeatureImportance) -> list[str]:
    """Return the cells of an importance: name, share, total gain and splits.

    Examples
    --------
    >>> importance(FeatureImportance("age", 0.25, 31.5, 4))
    ['age', '0.2500', '31.5', '4']
    """
    return [score.name, f"{score.importance:.4f}", f"{score.total_gain:.5g}", str(score.weight)]


def coefficient(estimate: FittedCoefficient, *, ratio: bool = False) -> list[str]:
    """Return the cells of a coefficient: name, estimate, standard error, z, p and interval.

    Parameters
    ----------
    estimate
        The coefficient.
    ratio
        Whether its exponential stands before the interval, which is then that of the exponential.

    Examples
    --------
    >>> coefficient(FittedCoefficient("age", 0.5, 0.125, 4.0, 6.3e-5, 0.255, 0.745))
    ['age', '0.5', '0.125', '4.000', '< 0.0001', '0.255 to 0.745']
    >>> coefficient(FittedCoefficient("age", 0.5, 0.125, 4.0, 6.3e-5, 0.255, 0.745), ratio=True)[-2:]
    ['1.649', '1.29 to 2.106']
    """
    exponential, low, high = estimate.ratio if ratio else (None, estimate.low, estimate.high)
    digits = ".4g" if ratio else ".5g"
    between = "" if low is None or high is None else f"{low:{digits}} to {high:{digits}}"
    numbers = (_format(estimate.estimate, ".5g"), _format(estimate.error, ".5g"), _format(estimate.z, ".3f"))
    exponentials = [_format(exponential, digits)] if ratio else []
    return [estimate.name, *numbers, p_value(estimate.p), *exponentials, between]


def _format(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
