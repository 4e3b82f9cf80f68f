r"""Mantel-Haenszel odds ratios of two groups over strata, which are the levels of a column, or the peers.

With the table :math:`a, b, c, d` of a stratum of n samples (rows are groups, columns levels) and sums over strata,

.. math:: R = \frac{ad}{n}, \quad S = \frac{bc}{n}, \quad P = \frac{a + d}{n}, \quad Q = \frac{b + c}{n}, \quad
          \psi = \frac{\sum R}{\sum S}, \quad
          \operatorname{var}(\ln \psi) = \frac{\sum P R}{2 (\sum R)^2} + \frac{\sum (P S + Q R)}{2 \sum R \sum S}
          + \frac{\sum Q S}{2 (\sum S)^2}

and the test of Cochran, Mantel and Haenszel is :math:`(\sum (a - E a))^2 / \sum \operatorname{var} a`, without a
correction for continuity.

References
----------
Mantel and Haenszel, JNCI 22, 1959; Robins, Breslow and Greenland, Biometrics 42, 1986.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Own, Tensors
from p2pfl.learning.small_cells import AgreedCheck, Bools, Cells
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.elementary import added_along
from p2pfl.plugins.exact.regression.inference import REACH, chi_squared_tail
from p2pfl.plugins.exact.sketch import possible
from p2pfl.plugins.exact.statistics.group_totals import PAIR, Groups, level_of_samples
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.results.facts import FactTable
from p2pfl.results.pages.features import p_value

PEERS = "peer"
"""Name of strata that are the peers."""

TERMS = 7
"""Sums of a column: those of R, S, PR, PS + QR, QS, of the differences of a and their variances."""

KNOWN = slice(0, PAIR)
"""Groups and levels that samples have; the last one is of samples without any."""


@dataclass(frozen=True)
class Strata:
    """Strata of a comparison of two groups.

    Parameters
    ----------
    groups
        The two groups.
    column
        Levels of the column of strata; ``None`` if each peer is a stratum.
    places
        Place of the first level of each of the C columns of two levels that groups are compared by.
    """

    groups: Groups
    column: Groups | None
    places: tuple[int, ...]

    @classmethod
    def of(
        cls, name: str, *, groups: Groups | None, features: int, classes: int | None, fields: Sequence[Field] | None
    ) -> Strata:
        """Return the strata of a column of levels, or each peer as ``peer`` where no column has this name.

        Raises
        ------
        ModelError
            There is no such column, or there are not two groups to compare.
        """
        if groups is None or len(groups.levels) != PAIR:
            raise ModelError(
                "model.options.strata is for the odds ratio of two groups; name a column of two levels in "
                "model.options.by, or leave strata out"
            )
        named = {field.name for field, _ in located(features, fields)}
        column = None
        if name != PEERS or name in named:
            column = Groups.of(name, features=features, classes=classes, fields=fields, option="strata")
        if column is not None and column.where == groups.where:
            raise ModelError(f'model.options.strata and by both name "{name}"; name another column in one of them')
        every = [where for field, where in located(features, fields) if field.levels is not None]
        every += [] if classes is None else [slice(features, features + classes)]
        taken = (groups.where, None if column is None else column.where)
        places = [each.start for each in every if each.stop - each.start == PAIR and each not in taken]
        return cls(groups, column, tuple(places))

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        number = len(self.places)
        return {"odds_sums": (number, TERMS), "odds_strata": (number,), "odds_kept": (number,)}

    def counts(self, values: FloatArray) -> Ints:
        """Return the samples by stratum, column, group and level, ``[S, C, 3, 3]``, of columns ``[n, K]``.

        The last group, level and, of a column of strata, stratum are those of samples without any.
        """
        stratum = np.zeros(len(values), np.int64) if self.column is None else self.column.of_samples(values)
        number = 1 if self.column is None else len(self.column.levels) + 1
        counts = np.zeros((number, len(self.places), PAIR + 1, PAIR + 1), np.int64)
        for column, start in enumerate(self.places):
            level = level_of_samples(values, slice(start, start + PAIR))
            np.add.at(counts[:, column], (stratum, self.groups.of_samples(values), level), 1)
        return counts

    def check(self, check: AgreedCheck[Own], values: Callable[[Own], FloatArray]) -> Asked[Bools]:
        """Ask which columns have no small cell of stratum, group and level, ``[C]``; the other ones are left out.

        Where peers are strata, each looks at its own cells: their table could be solved from the exact sums.
        """
        if self.column is None:
            few = yield from check.any_of(
                lambda own: np.asarray(_few(self.counts(values(own)), check.least).any(axis=(0, 2, 3)), np.bool_),
                size=len(self.places),
            )
            return np.asarray(~few, np.bool_)
        columns = tuple(map(str, self.places))
        cells = Cells(columns, np.repeat(np.arange(len(columns)), (len(self.column.levels) + 1) * (PAIR + 1) ** 2))
        small = yield from check.find(cells, lambda own: self.counts(values(own)).swapaxes(0, 1).ravel())
        return ~np.isin(np.arange(len(columns)), small)

    def totals(self, values: Callable[[str], FloatArray], kept: Floats) -> Asked[Tensors]:
        """Ask for the sums over strata of the columns that are kept, ``[C, 7]``, and how many strata have a table."""
        chosen = np.flatnonzero(kept)
        odds, strata = np.zeros((len(self.places), TERMS)), np.zeros(len(self.places))
        if not len(chosen):
            return {"odds_sums": odds, "odds_strata": strata}

        def tables(peer: str) -> Ints:
            return self.counts(values(peer))[:, chosen, KNOWN, KNOWN]

        if self.column is None:
            size = sums.size(len(chosen) * TERMS)

            def answer(peer: str) -> Ints:
                terms, used = _terms(tables(peer)[0])
                own = terms.reshape(1, -1)
                return np.concatenate([sums.summed(1, own.size, lambda _: own), used]).astype(np.int64)

            total = yield Question(answer, size=size + len(chosen))
            odds[chosen] = sums.numbers(total[:size]).reshape(-1, TERMS)
            strata[chosen] = possible(total[size:])
        else:
            number = len(self.column.levels)
            shape = number, len(chosen), PAIR, PAIR
            total = yield Question(lambda peer: tables(peer)[:number].ravel(), size=math.prod(shape))
            terms, used = _terms(possible(total).reshape(shape))
            odds[chosen] = added_along(np.moveaxis(terms, 0, -1))
            strata[chosen] = used.sum(axis=0)
        return {"odds_sums": odds, "odds_strata": strata}


def _few(counts: Ints, least: int) -> Bools:
    return np.asarray((counts > 0) & (counts < least))


def _terms(tables: Ints) -> tuple[Floats, Ints]:
    """Return what each table ``[..., 2, 2]`` adds to the sums, ``[..., 7]``, and whether it has two samples."""
    whole = tables.astype(np.float64)
    n = whole.sum(axis=(-2, -1))
    used = n > 1
    n = np.where(used, n, 2.0)
    (a, b), (c, d) = np.moveaxis(whole, (-2, -1), (0, 1))
    r, s, p, q = a * d / n, b * c / n, (a + d) / n, (b + c) / n
    difference = a - (a + b) * (a + c) / n
    variance = (a + b) * (c + d) * (a + c) * (b + d) / (n * n * (n - 1))
    terms = np.stack([r, s, p * r, p * s + q * r, q * s, difference, variance], axis=-1)
    return np.where(used[..., None], terms, 0.0), used.astype(np.int64)


def stratified_odds(
    tensors: Mapping[str, Floats], strata: Strata, columns: Sequence[tuple[Field, slice, Sequence[str]]], *, stated: str
) -> dict[str, Any]:
    """Return the odds ratios of a description by strata, as JSON values; ``None`` for what is not defined.

    Parameters
    ----------
    tensors, strata
        The description.
    columns
        Columns with their places, and names of the levels after merging.
    stated
        Name of the strata.
    """
    named = {where.start: (field.name, levels) for field, where, levels in columns}
    groups = next(field.levels or () for field, where, _ in columns if where == strata.groups.where)
    rows = [
        {"name": named[index][0], "level": named[index][1][1], **_odds(tensors["odds_sums"][column].tolist())}
        | {"strata": int(tensors["odds_strata"][column])}
        for column, index in enumerate(strata.places)
        if tensors["odds_kept"][column] and all(named[index][1])
    ]
    return {"by": stated, "group": groups[1], "columns": rows}


def _odds(sums_of_terms: Sequence[float]) -> dict[str, float | None]:
    """Return the odds ratio with its interval, and the test of one odds ratio of 1 in all strata."""
    r, s, pr, mixed, qs, difference, variance = sums_of_terms
    ratio = low = high = statistic = p = None
    if r > 0 and s > 0:
        ratio = r / s
        error = math.sqrt(pr / (2 * r * r) + mixed / (2 * r * s) + qs / (2 * s * s))
        low, high = ratio * math.exp(-REACH * error), ratio * math.exp(REACH * error)
    if variance > 0:
        statistic = difference * difference / variance
        p = chi_squared_tail(statistic, 1)
    return {"odds_ratio": ratio, "low": low, "high": high, "statistic": statistic, "p": p}


def odds_table(results: Mapping[str, Any]) -> FactTable:
    """Return the odds ratios of the results of a description by group and strata."""
    groups = results["groups"]
    stratified = groups["stratified"]
    rows = [
        [
            f"{each['name']} = {each['level']}",
            "-" if each["odds_ratio"] is None else f"{each['odds_ratio']:.4g}",
            "-" if each["odds_ratio"] is None else f"{each['low']:.4g} to {each['high']:.4g}",
            "-" if each["statistic"] is None else f"{each['statistic']:.3f}",
            p_value(each["p"]) or "-",
            each["strata"],
        ]
        for each in stratified["columns"]
    ]
    by = "the peer" if stratified["by"] == PEERS else stratified["by"]
    caption = f"Odds of a level if {groups['by']} = {stratified['group']}, stratified by {by}"
    return FactTable(caption, ("level", "odds ratio", "95 % interval", "CMH chi2", "p", "strata"), rows)


ODDS_NOTE = (
    "Odds ratios are those of Mantel and Haenszel with intervals of Robins, Breslow and Greenland; the test is that of "
    "Cochran, Mantel and Haenszel without a correction for continuity."
)
"""Note below the odds ratios."""
