"""The tables of a comparison, as facts and as text."""

from __future__ import annotations

from collections.abc import Sequence

from p2pfl.core.texts import printable
from p2pfl.results.comparisons import wording
from p2pfl.results.comparisons.comparison import Comparison
from p2pfl.results.facts import FactTable, Styled
from p2pfl.results.formats import size

STYLES = {"better": "good", "worse": "bad"}


def scores(comparison: Comparison) -> FactTable:
    """Return the scores and differences of each setting, the leading scores in bold."""
    differences = {each.setting: each for each in comparison.differences}
    references = {each.reference for each in comparison.differences}
    rows = []
    for index, each in enumerate(comparison.settings):
        difference = differences.get(index)
        compared = ["", "", "reference" if index in references else ""]
        if difference is not None:
            verdict = wording.verdict(comparison, difference)
            estimate = wording.number(difference.difference, sign=True)
            compared = [estimate, wording.probability(difference.adjusted), Styled(verdict, STYLES.get(verdict, ""))]
        seeds = f"{len(each.by_seed)}" + (f" of {len(each.by_seed) + each.failed}" if each.failed else "")
        score = Styled(wording.number(each.score), "best" if each.leading else "")
        rows.append([*_values(comparison, index), seeds, score, *compared])
    caption = f"{comparison.metric}, {'lower' if comparison.lower else 'higher'} is better"
    return _table(comparison, caption, ["seeds", comparison.metric, "difference", "p", ""], rows)


def costs(comparison: Comparison) -> FactTable:
    """Return the mean costs of a run of each setting."""
    rows = []
    for index, each in enumerate(comparison.settings):
        gradients = "" if each.gradients is None else f"{each.gradients:,.0f}"
        cost = f"{each.rounds:g}", size(each.bytes_sent), gradients, f"{each.seconds:.1f} s"
        rows.append([*_values(comparison, index), *cost])
    return _table(comparison, "means over the seeds", ["rounds", "sent", "gradients", "time"], rows)


def scores_by_seed(comparison: Comparison) -> FactTable:
    """Return the score of every run."""
    seeds = sorted({seed for each in comparison.settings for seed in each.by_seed})
    rows = [
        [*_values(comparison, index), *(f"{each.by_seed[s]:.3f}" if s in each.by_seed else "" for s in seeds)]
        for index, each in enumerate(comparison.settings)
    ]
    return _table(comparison, f"{comparison.metric} by seed", [f"seed {seed}" for seed in seeds], rows)


def text(comparison: Comparison) -> str:
    """Return scores and costs, and what one must know to read them."""
    notes = [*wording.notes(comparison), *(f"WARNING: {each}" for each in wording.warnings(comparison))]
    tables = ["\n".join(table.lines()) for table in (scores(comparison), costs(comparison))]
    return printable("\n\n".join([*tables, "\n".join(notes)]).rstrip(), keep="\n")


def _table(comparison: Comparison, caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> FactTable:
    """Return a table whose first columns describe a setting."""
    first = wording.heads(comparison.keys) or ["setting"]
    return FactTable(caption, [*first, *heads], rows, text=len(first))


def _values(comparison: Comparison, index: int) -> list[str]:
    values = comparison.settings[index].values
    return [*values.values()] or [wording.setting(values)]
