"""Table 1: columns of a description by group, with standardised differences and tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.design_cells import LEFT_OUT
from p2pfl.plugins.exact.statistics.group_totals import PAIR, Groups
from p2pfl.plugins.exact.statistics.stratified_odds import ODDS_NOTE, odds_table
from p2pfl.results.facts import FactTable
from p2pfl.results.pages.features import p_value

LEAST_EXPECTED = 5.0
"""Expected count below which a table of two rows and columns has Fisher's test, after Cochran 1954."""

Row = dict[str, Any]
"""Values of a column by group as JSON values."""


def compared_groups(
    tensors: Mapping[str, Floats],
    groups: Groups,
    *,
    columns: Sequence[tuple[Field, slice, Sequence[str]]],
    middle: Floats,
    scale: Floats,
    least: int,
) -> dict[str, Any]:
    """Return the columns of a description by group, as JSON values; ``None`` for what is not stated.

    Parameters
    ----------
    tensors, groups
        The description.
    columns
        Columns with their places, and names of the levels after merging; empty for one merged into another.
    middle, scale
        Mean and deviation that turn each column into the units of the table.
    least
        Smallest number of samples that anything is stated of.
    """
    samples = tensors["group_samples"]
    rows = []
    named = next(field for field, where, _ in columns if where == groups.where)
    for field, where, levels in columns:
        if where == groups.where or (tensors["levels"][where] == LEFT_OUT).all():
            continue
        if field.levels is None:
            rows.append(
                _numbers(tensors, field.name, where.start, float(middle[where.start]), float(scale[where.start]))
            )
            continue
        shares = tensors["group_mean"][:, where] * scale[where] + middle[where]
        counts = np.rint(shares * samples[:, None])[:, [bool(level) for level in levels]]
        counts[samples == 0] = 0
        if np.isnan(counts).any() or ((counts > 0) & (counts < least)).any():  # one would follow from the others
            counts[:] = np.nan
        named_levels = [level for level in levels if level]
        compared = np.column_stack([samples - counts[:, 0], counts]) if len(field.levels) == 1 else counts
        rows.append(_levels(field.name, named_levels, counts, compared=compared))
    return {
        "by": named.name,
        "names": [*(named.levels or ())],
        "samples": samples.astype(int).tolist(),
        "columns": rows,
    }


def _numbers(tensors: Mapping[str, Floats], name: str, index: int, middle: float, scale: float) -> Row:
    counts = tensors["group_present"][:, index]
    means = tensors["group_mean"][:, index] * scale + middle
    deviations = tensors["group_deviation"][:, index] * scale
    quartiles = tensors["group_quantiles"][:, index] * scale + middle
    test, statistic, p = compare_means(counts, means, deviations)
    ranked = rank_test(counts, *tensors["group_ranks"][:, index].tolist())
    return {
        "name": name,
        "kind": "number",
        "counts": counts.astype(int).tolist(),
        "means": [*map(_known, means.tolist())],
        "deviations": [*map(_known, deviations.tolist())],
        "quartiles": [[*map(_known, row)] for row in quartiles.tolist()],
        "smd": _known(mean_difference(means, deviations)),
        "test": test,
        "statistic": _known(statistic),
        "p": _known(p),
        "rank_p": _known(ranked),
    }


def _levels(name: str, levels: Sequence[str], counts: Floats, *, compared: Floats) -> Row:
    """Return the counts of levels, and the comparison of counts that have all samples of a group."""
    test, statistic, p = compare_levels(compared)
    return {
        "name": name,
        "kind": "levels",
        "levels": {
            level: [None if math.isnan(count) else int(count) for count in row]
            for level, row in zip(levels, counts.T.tolist(), strict=True)
        },
        "smd": _known(level_difference(compared)),
        "test": test,
        "statistic": _known(statistic),
        "p": _known(p),
    }


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def mean_difference(means: Floats, deviations: Floats) -> float:
    r"""Return the standardised difference of means, :math:`|m_1 - m_2| / \sqrt{(s_1^2 + s_2^2) / 2}`.

    That of more groups is the mean over all pairs.

    References
    ----------
    Austin, Balance diagnostics for comparing the distribution of baseline covariates, Statistics in Medicine, 2009.
    """
    pairs = [
        abs(means[one] - means[other]) / math.sqrt(spread) if spread > 0 else math.nan
        for one, other in combinations(range(len(means)), 2)
        for spread in [(deviations[one] ** 2 + deviations[other] ** 2) / 2]
    ]
    return float(np.mean(pairs)) if pairs else math.nan


def level_difference(counts: Floats) -> float:
    r"""Return the standardised difference of shares of levels, :math:`\sqrt{d^T S^{-1} d}`, counts ``[G, L]``.

    d are the differences of all shares but the first, and S is the mean of their multinomial covariances. That of more
    groups is the mean over all pairs; NaN where a group is empty or shares have no spread.

    References
    ----------
    Yang, Dalton, A unified approach to measuring the effect size between two groups, SAS Global Forum, 2012.
    """
    differences = []
    for pair in combinations(counts, 2):
        both = np.stack(pair)
        both = both[:, both.sum(axis=0) != 0]
        total = both.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            return math.nan
        shares = (both / total)[:, 1:]
        spread = np.mean([np.diag(share) - np.outer(share, share) for share in shares], axis=0)
        if np.linalg.matrix_rank(spread, hermitian=True) < len(spread):
            return math.nan
        change = shares[0] - shares[1]
        differences.append(math.sqrt(float(change @ np.linalg.solve(spread, change))) if len(spread) else 0.0)
    return float(np.mean(differences)) if differences else math.nan


def compare_means(counts: Floats, means: Floats, deviations: Floats) -> tuple[str, float, float]:
    """Return name, statistic and p of Welch's t of two groups with at least two values, or of ANOVA of more."""
    from scipy.special import fdtrc, stdtr  # noqa: PLC0415 (it takes a third of a second, which --help need not)

    used = counts > 1
    n, m, variance = counts[used], means[used], deviations[used] ** 2
    if len(n) < PAIR or not np.isfinite(m + variance).all() or not variance.any():
        return "", math.nan, math.nan
    if len(n) == PAIR:
        shares = variance / n
        t = float((m[0] - m[1]) / math.sqrt(shares.sum()))
        freedom = shares.sum() ** 2 / (shares**2 / (n - 1)).sum()
        return "Welch t", t, float(2 * stdtr(freedom, -abs(t)))
    middle = (n * m).sum() / n.sum()
    between, within = (len(n) - 1, float(n.sum() - len(n)))
    f = float((n * (m - middle) ** 2).sum() / between / (((n - 1) * variance).sum() / within))
    return "ANOVA", f, float(fdtrc(between, within, f))


def rank_test(counts: Floats, u: float, ties: float) -> float:
    """Return p of the Mann-Whitney test by its normal approximation with ties and a continuity correction, as R."""
    from scipy.special import ndtr  # noqa: PLC0415

    if len(counts) != PAIR or not (counts > 0).all() or math.isnan(u):
        return math.nan
    n = float(counts.sum())
    variance = counts.prod() / 12 * (n + 1 - ties / (n * (n - 1)))
    if variance <= 0:
        return math.nan
    return float(min(1.0, 2 * ndtr(-(abs(u - counts.prod() / 2) - 0.5) / math.sqrt(variance))))


def compare_levels(counts: Floats) -> tuple[str, float, float]:
    """Return name, statistic and p of the chi-square test without correction, or of Fisher's of a small 2 x 2 table."""
    from scipy.stats import chi2_contingency, fisher_exact  # noqa: PLC0415 (they take a second)

    if np.isnan(counts).any():
        return "", math.nan, math.nan
    table = counts[counts.any(axis=1)][:, counts.any(axis=0)]
    if min(table.shape) < PAIR:
        return "", math.nan, math.nan
    chi = chi2_contingency(table, correction=False)
    if table.shape == (PAIR, PAIR) and chi.expected_freq.min() < LEAST_EXPECTED:
        return "Fisher", math.nan, float(fisher_exact(table).pvalue)
    return "chi-square", float(chi.statistic), float(chi.pvalue)


def group_table(results: Mapping[str, Any]) -> FactTable:
    """Return Table 1 of the results of a description by group."""
    groups = results["groups"]
    counts = [f"{name} (n = {samples})" for name, samples in zip(groups["names"], groups["samples"], strict=True)]
    heads = ("characteristic", "", f"all (n = {results['samples']})", *counts, "SMD", "p", "test")
    overall = {column["name"]: column for column in results["columns"]}
    rows = [row for column in groups["columns"] for row in _rows(column, overall[column["name"]], results)]
    return FactTable(f"Characteristics by {groups['by']}", heads, rows, text=2)


def group_notes(results: Mapping[str, Any]) -> list[str]:
    """Return how to read Table 1."""
    tests = {
        "Welch t": "Welch's t test of two means",
        "ANOVA": "one-way analysis of variance",
        "chi-square": "Pearson's chi-square test without correction",
        "Fisher": "Fisher's exact test",
    }
    used = [
        words for test, words in tests.items() if any(each["test"] == test for each in results["groups"]["columns"])
    ]
    if any(each.get("rank_p") is not None for each in results["groups"]["columns"]):
        used.append("Mann-Whitney test of ranks, in which values within 1/128 tie")
    rest = results["samples"] - sum(results["groups"]["samples"])
    notes = ["SMD is the absolute standardised mean difference, of several groups the mean over pairs."]
    if used:
        notes.append(f"Tests: {'; '.join(used)}. No p-value is corrected for the number of tests.")
    notes.append("Quartiles are exact to 1/128. A dash is not defined, or would show few people.")
    notes += [ODDS_NOTE] if "stratified" in results["groups"] else []
    return [*notes, *([f"{rest} samples have no group."] if rest else [])]


def group_tables(results: Mapping[str, Any]) -> list[FactTable]:
    """Return Table 1, and the odds ratios over strata if there are some."""
    return [group_table(results), *([odds_table(results)] if "stratified" in results["groups"] else [])]


def _rows(column: Row, overall: Mapping[str, Any], results: Mapping[str, Any]) -> Iterator[list[str]]:
    smd, p = "-" if column["smd"] is None else f"{column['smd']:.3f}", p_value(column["p"]) or "-"
    if column["kind"] == "levels":
        totals = [results["samples"], *results["groups"]["samples"]]
        for number, (level, counts) in enumerate(column["levels"].items()):
            cells = [
                "-" if count is None or not total else f"{count} ({count / total:.1%})"
                for count, total in zip([overall["levels"][level], *counts], totals, strict=True)
            ]
            first = not number
            name = f"{column['name']}, n (%)" if first else ""
            yield [name, level, *cells, *([smd, p, column["test"]] if first else [""] * 3)]
        return
    quantiles = [overall["quantiles"][share] for share in ("0.25", "0.5", "0.75")]
    present = [overall["count"], *column["counts"]]
    means = zip([overall["mean"], *column["means"]], [overall["deviation"], *column["deviations"]], strict=True)
    yield [f"{column['name']}, mean (SD)", "", *(_pair(*each) for each in means), smd, p, column["test"]]
    ranked = ["", "", ""] if column["rank_p"] is None else ["", p_value(column["rank_p"]), "Mann-Whitney"]
    yield [
        f"{column['name']}, median [Q1, Q3]",
        "",
        *(_median(each) for each in [quantiles, *column["quartiles"]]),
        *ranked,
    ]
    if present != [results["samples"], *results["groups"]["samples"]]:
        yield [f"{column['name']}, n", "", *map(str, present), "", "", ""]


def _pair(mean: float | None, deviation: float | None) -> str:
    if mean is None or deviation is None:
        return "-"
    digits = _digits(deviation)
    return f"{mean:.{digits}f} ({deviation:.{digits}f})"


def _digits(spread: float) -> int:
    """Return the decimals that show a deviation with three digits."""
    return max(0, 2 - math.floor(math.log10(spread))) if 0 < spread < 100 else 0 if spread else 1


def _median(quartiles: Sequence[float | None]) -> str:
    if None in quartiles:
        return "-"
    low, middle, high = (f"{value:.4g}" for value in quartiles)
    return f"{middle} [{low}, {high}]"


def group_rows(results: Mapping[str, Any]) -> Iterator[Sequence[object]]:
    """Yield a head and a row for each column and group, with all digits; an empty cell is not stated."""
    groups = results["groups"]
    odds = {each["name"]: each for each in groups.get("stratified", {}).get("columns", ())}
    more = ["odds_ratio", "low", "high", "cmh_p"] if "stratified" in groups else []
    head = ["column", "level", groups["by"], "count", "mean", "std", "q1", "median", "q3", "smd", "test", "p", "rank_p"]
    yield [*head, *more]
    for each in groups["columns"]:
        tests = [each["smd"], each["test"], each["p"], each.get("rank_p")]
        tests += [odds.get(each["name"], {}).get(key) for key in [*more[:-1], "p"]] if more else []
        if each["kind"] == "levels":
            for level, counts in each["levels"].items():
                yield from (
                    [each["name"], level, name, count, *[None] * 5, *tests]
                    for name, count in zip(groups["names"], counts, strict=True)
                )
            continue
        values = (each["counts"], each["means"], each["deviations"], each["quartiles"])
        for name, count, mean, deviation, quartiles in zip(groups["names"], *values, strict=True):
            yield [each["name"], "", name, count, mean, deviation, *quartiles, *tests]
