""":class:`Description`, statistics of each column from exact totals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.learning.small_cells import AgreedCheck, Bools, CellCheck
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.design_cells import LEFT_OUT, Design, check_design
from p2pfl.plugins.exact.leverage import DOMINANT, RowSums, WeightedRows
from p2pfl.plugins.exact.sketch import EXPONENTS, FINE, Sketch, coarse, fine, live, sketches
from p2pfl.plugins.exact.statistics.group_totals import Groups
from p2pfl.plugins.exact.statistics.site_comparison import KEY, far_columns, sentences
from p2pfl.plugins.exact.statistics.stratified_odds import Strata
from p2pfl.plugins.exact.tensor_model import Shapes, Statistic, check_least, parts_of

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the quantiles."""

MAX_PAIRED_COLUMNS = 128
"""Columns of which pairs are counted; their totals have four numbers for each pair."""

FINEST = 24
"""Most fraction bits of a centred value."""


@dataclass(frozen=True, kw_only=True)
class Description(Statistic):
    """Counts, means, deviations, quantiles, histograms and correlations of all columns, over the data of all peers.

    One round takes four totals: samples, sums and magnitudes; finer cells with squares; histograms; products of pairs.

    Parameters
    ----------
    features, classes
        Number of features, and of classes; ``None`` where the target is a number.
    owned
        True if peers own their data, so that the test part of each is its own and is described as well.
    bins
        Number of bins of a histogram.
    least
        Smallest number of samples that anything is stated of. Levels with fewer samples are merged and columns of two
        values left out before anything is counted; other cells of fewer samples, such as bins, are left out of the
        result, though all peers have seen the totals. A peer with fewer samples takes no part.
    correlations
        True to count pairs of columns.
    event
        True if the target is a time with an event, as of a table with ``event``.
    by
        Name of a column with levels, or ``target`` for classes: statistics of each level as well; none if ``None``.
    strata
        With ``by`` of two levels, a column with levels, or ``peer`` for each peer by itself: the Mantel-Haenszel odds
        ratio of each column of two levels over these strata; none if ``None``.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> Description(features=3, classes=2).layout.names[:3]
    ('samples', 'present', 'distinct')
    """

    name: ClassVar[str] = "description"
    shows: ClassVar[str] = (
        "how many samples have each value of each column, to a relative width of 1/128, how many different values "
        "peers have, exact sums and squares of each column, and the correlation of each pair of columns"
    )
    checks: ClassVar[str] = (
        "a level, or one of two values of a column (a value of another number can be that of one person)"
    )
    subject: ClassVar[str] = "a description"
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, test=0.0, command="describe")

    features: int
    classes: int | None
    owned: bool = False
    bins: int = 20
    least: int = 5
    correlations: bool = True
    event: bool = False
    by: str | None = None
    strata: str | None = None
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        if not (1 <= self.bins <= 1000 and self.least >= 1):
            raise ModelError(
                f"model.options.bins = {self.bins} and least = {self.least} describe nothing; set bins to 1 to 1000 "
                "and least to at least 1"
            )
        if self.event and self.classes is not None:
            raise ModelError("model.options.event = true needs a target that is a time, not classes; set it to false")
        if self.correlations and self.width > MAX_PAIRED_COLUMNS:
            raise ModelError(
                f"model.options.correlations = true takes at most {MAX_PAIRED_COLUMNS} columns, not {self.width}, as "
                "totals count each pair; set it to false, or choose fewer columns"
            )

        _ = self.groups, self.stratification  # check the options

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        shown = super().shown(options) + (", all but correlations also by group" if options.get("by") else "")
        if options.get("strata"):
            shown += ", and how many samples of each group and stratum have each of two levels"
        return shown

    @property
    def groups(self) -> Groups | None:
        """Groups that statistics are taken of as well."""
        if self.by is None:
            return None
        return Groups.of(self.by, features=self.features, classes=self.classes, fields=self.fields)

    @property
    def stratification(self) -> Strata | None:
        """Strata of the comparison of groups."""
        if self.strata is None:
            return None
        return Strata.of(
            self.strata, groups=self.groups, features=self.features, classes=self.classes, fields=self.fields
        )

    @property
    def width(self) -> int:
        """K, number of columns: features, then each class as a column of zeros and ones, or a number and its event."""
        return self.features + (self.classes or 1) + self.event

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        width = self.width
        shapes: Shapes = {"samples": (1,)}
        shapes |= dict.fromkeys(("present", "distinct", "mean", "deviation", "whole", "low", "high"), (width,))
        shapes |= {"quantiles": (width, len(QUANTILES)), "edges": (width, self.bins + 1), "counts": (width, self.bins)}
        shapes |= {"levels": (width,)}
        shapes |= self.groups.shapes(width) if self.groups else {}
        shapes |= self.stratification.shapes if self.stratification else {}
        return shapes | (self._pair_shapes if self.correlations else {})

    @property
    def _pair_shapes(self) -> Shapes:
        return dict.fromkeys(("pairs", "correlation"), (self.width, self.width)) | {"paired": (self.width,)}

    @property
    def design(self) -> Design:
        """All columns, each class as a level of the target."""
        target = Field("target", None if self.classes is None else tuple(map(str, range(self.classes))))
        event = [Field("event")] if self.event else []
        return Design.of(
            self.width, [*(field for field, _ in located(self.features, self.fields)), target, *event], others=False
        )

    def start(self) -> Tensors:
        """Return the description of no samples, with no level merged."""
        strata = self.stratification
        kept = {} if strata is None else {"odds_kept": np.ones(len(strata.places))}
        paired = {"paired": np.ones(self.width)} if self.correlations else {}
        return {**super().start(), "levels": np.arange(self.width, dtype=np.float64), **kept, **paired}

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Merge levels that few samples have, and leave out columns of two values of which few samples have one."""
        agreed = yield from check.agree()
        if agreed.least == 1:
            return tensors

        def values(own: Own) -> Part:
            columns = self.values(own)
            return Part(columns, np.zeros(len(columns), np.int64) if groups is None else groups.of_samples(columns))

        groups = self.groups
        design = yield from self.design.find_pairs(agreed, parts=lambda own: [values(own)])
        design = yield from check_design(
            design,
            agreed,
            outcomes=("",) if groups is None else groups.outcomes(),
            count=lambda cells, own: cells.count(values(own), values(own).targets),
            merges=True,
            drops=True,
        )
        if groups is not None:
            design = yield from groups.check_present(design, agreed, self.values)
        tensors = {**tensors, "levels": design.levels.astype(np.float64)}
        if self.correlations:
            tensors |= {"paired": (yield from self._paired(agreed, design)).astype(np.float64)}
        if (strata := self.stratification) is not None:
            kept = yield from strata.check(agreed, lambda own: self._merged(design, own))
            tensors |= {"odds_kept": kept.astype(np.float64)}
        return tensors

    def _paired(self, check: AgreedCheck[Own], design: Design) -> Asked[Bools]:
        """Return the columns that are correlated: one after the other is left out, until no row is nearly alone."""
        paired = np.ones(self.width, np.bool_)

        def rows(own: Own, paired: Bools) -> WeightedRows:
            known = np.where(paired, np.nan_to_num(self._merged(design, own)), 0.0)
            constant = np.ones((len(known), 1))
            return WeightedRows.of(np.column_stack([known, constant]), constant)

        while paired.any():
            sums = RowSums(partial(rows, paired=paired), [""] * (self.width + 1))
            crowding = yield from sums.crowding(check)
            if not crowding.any():
                break
            left_out = np.flatnonzero(crowding[:-1] & paired)[-1:]
            paired = paired & ~np.isin(np.arange(self.width), left_out) & bool(len(left_out))
        return paired

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take all totals; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        width, size, values = self.width, sums.size(self.width), self.merged_values(tensors, own)
        first = 1 + 3 * width + size
        total = yield Question(lambda peer: self._first(peer, values(peer)), size=first + width * EXPONENTS)
        samples, (present, distinct, fractions) = int(total[0]), total[1 : 1 + 3 * width].reshape(3, width)
        if not samples:
            return Outcome(tensors, over=True)
        mean = sums.numbers(total[1 + 3 * width : first]) / np.maximum(present, 1)
        used, whole = live(total[first:]), fractions == 0
        total = yield Question(lambda peer: self._second(values(peer), mean, used), size=size + len(used) * FINE)
        cells = sketches(used, total[size:], columns=width)
        squares = sums.numbers(total[:size])
        deviation = np.sqrt(np.where(present > 1, squares / np.maximum(present - 1, 1), np.nan))
        stated: dict[str, Any] = {"samples": [samples], "present": present, "distinct": distinct}
        stated |= {"mean": mean, "deviation": deviation, "whole": whole} | self._ranges(cells, whole)
        edges = stated["edges"]

        def histograms(peer: str) -> Ints:
            """Return what a peer adds; it knows the cells of all now, and keeps which of its columns are far off."""
            mine = values(peer)
            own(peer).train.kept[KEY] = far_columns(mine, cells)
            return self._histograms(mine, edges)

        total = yield Question(histograms, size=width * self.bins)
        stated["counts"] = total.reshape(width, self.bins)
        if self.correlations:
            reach = np.array([_reach(each, middle) for each, middle in zip(cells, mean.tolist(), strict=True)])
            bits = fraction(samples)
            total = yield Question(
                lambda peer: products(
                    np.where(tensors["paired"] > 0, values(peer), np.nan), middle=mean, reach=reach, bits=bits
                ),
                size=4 * width**2,
            )
            stated["paired"] = tensors["paired"]
            stated["pairs"], stated["correlation"] = correlations(total, columns=width)
            two = np.array([len(each.counts) == 2 for each in cells])
            upper = np.array([each.counts[-1] if len(each.counts) else 0 for each in cells]) / np.maximum(present, 1)
            together = counts_together(total, upper=upper, deviation=deviation / reach, bits=bits)
            stated["scarce"] = self._scarce(together, two, stated["pairs"])
        if (groups := self.groups) is not None:
            stated |= yield from groups.totals(
                values,
                lambda peer: groups.of_samples(self.values(own(peer))),
                width=width,
                whole=whole,
                dominates=dominates,
                least=self.least,
            )
        if (strata := self.stratification) is not None:
            stated |= yield from strata.totals(values, tensors["odds_kept"])
            stated["odds_kept"] = tensors["odds_kept"]
        dominated = [dominates(each, total) for each, total in zip(cells, (mean * present).tolist(), strict=True)]
        return Outcome({**self._kept(stated, np.array(dominated)), "levels": tensors["levels"]}, over=True)

    def merged_values(self, tensors: Tensors, own: Owns) -> Callable[[str], FloatArray]:
        """Return the function that returns the columns of a peer, merged, and missing where they are left out."""
        design = self.design.merging(tensors["levels"])
        return lambda peer: self._merged(design, own(peer))

    def _merged(self, design: Design, own: Own) -> FloatArray:
        """Return the columns of a peer, merged, and missing where they are left out."""
        return np.where(design.levels == LEFT_OUT, np.nan, design.joined(self.values(own)))

    def compared(self, own: Own, meaning: Meaning) -> tuple[str, ...]:
        """Return sentences for an owner on columns whose median is far from the values of all others."""
        names: list[str | None] = [None] * self.width
        for field, where in located(self.features, meaning.columns):
            if field.levels is None:
                names[where.start] = field.name
        if self.classes is None:
            names[self.features] = meaning.target or "target"
        middle, scale = self.units(meaning)
        return sentences(own, names=names, scale=scale, middle=middle)

    def units(self, meaning: Meaning) -> tuple[Floats, Floats]:
        """Return mean and deviation that turn each column into the units of the table, ``[K]``."""
        middle, scale = np.zeros(self.width), np.ones(self.width)
        middle[: self.features], scale[: self.features] = meaning.mean, meaning.deviation
        if self.classes is None:
            middle[self.features], scale[self.features] = meaning.target_mean, meaning.target_deviation
        return middle, scale

    def values(self, own: Own) -> FloatArray:
        """Return the columns of the samples of a peer, ``[n, K]``."""
        return np.concatenate([self._columns(part) for part in parts_of(own, owned=self.owned)])

    def _columns(self, part: Part) -> FloatArray:
        if self.classes is not None:
            target: FloatArray = np.eye(self.classes)[part.targets.astype(np.int64)]
        elif self.event:  # a time that is negative without the event
            target = np.column_stack([np.abs(part.targets), ~np.signbit(part.targets)])
        else:
            target = part.targets[:, None]
        return np.concatenate([part.features, target], axis=1)

    def _first(self, peer: str, values: FloatArray) -> Ints:
        """Return samples, values, different ones and fractions by column, their sums, and the magnitudes of values."""
        check_least(peer, len(values), least=self.least)
        there = ~np.isnan(values)
        known = np.where(there, values, 0.0).astype(np.float64)
        fractions = (known != np.rint(known)).sum(axis=0)
        distinct = [len(np.unique(column[here])) for column, here in zip(known.T, there.T, strict=True)]
        total = sums.summed(len(values), self.width, lambda where: known[where])
        counts = there.sum(axis=0), distinct, fractions
        return np.concatenate([[len(values)], *counts, total, coarse(list(values.T))])

    def _second(self, values: FloatArray, mean: Floats, used: Ints) -> Ints:
        """Return sums of squares about the mean, and values by cell."""
        centred = np.where(np.isnan(values), 0.0, values.astype(np.float64) - mean)
        total = sums.summed(len(values), self.width, lambda where: centred[where] * centred[where])
        return np.concatenate([total, fine(list(values.T), used)])

    def _histograms(self, values: FloatArray, edges: Floats) -> Ints:
        """Return values by bin; the first and the last bin have those beyond them as well."""
        counts = []
        for column, ends in zip(values.T, edges, strict=True):
            known = column[~np.isnan(column)].astype(np.float64)
            index = np.searchsorted(ends[1:-1], known, side="right")
            counts.append(np.bincount(index, minlength=self.bins))
        return np.concatenate(counts).astype(np.int64)

    def _ranges(self, pooled: list[Sketch], whole: npt.NDArray[np.bool_]) -> dict[str, Floats]:
        """Return ends, quantiles and edges of each column; ends that at least ``least`` samples lie at or beyond."""
        low, high = np.full(self.width, np.nan), np.full(self.width, np.nan)
        quantiles, edges = np.full((self.width, len(QUANTILES)), np.nan), np.zeros((self.width, self.bins + 1))
        for column, (sketch, integers) in enumerate(zip(pooled, whole.tolist(), strict=True)):
            count = int(sketch.counts.sum())
            if count < self.least:
                continue
            lowest, highest = sketch.reached(self.least), sketch.reached(count - self.least + 1)
            low[column] = math.ceil(sketch.low[lowest]) if integers else sketch.low[lowest]
            high[column] = math.ceil(sketch.low[highest]) if integers else sketch.high[highest]
            low[column], high[column] = sorted((low[column] + 0.0, high[column] + 0.0))
            quantiles[column] = [
                sketch.quantile(share, whole=integers) if self._common(share, count) else np.nan for share in QUANTILES
            ]
            first, width = low[column], (high[column] - low[column]) / self.bins
            if integers:  # each bin has as many whole numbers
                first, width = low[column] - 0.5, math.ceil((high[column] - low[column] + 1) / self.bins)
            edges[column] = first + width * np.arange(self.bins + 1)
        return {"low": low, "high": high, "quantiles": quantiles, "edges": edges}

    def _common(self, share: float, count: int) -> bool:
        """Return whether ``least`` values lie at or beyond a quantile of so many, on either side."""
        index = share * (count - 1)
        return math.floor(index) + 1 >= self.least and count - math.ceil(index) >= self.least

    def _kept(self, given: Mapping[str, Any], dominated: Bools) -> Tensors:
        """Return the tensors without what concerns fewer than ``least`` samples, which is NaN."""
        facts = {name: np.asarray(value, np.float64) for name, value in given.items()}
        few = facts["present"] < self.least
        if self.least > 1:
            few |= self._rare(facts)
        facts["counts"] = np.stack(
            [suppressed(counts, least=self.least, total=float(counts.sum())) for counts in facts["counts"]]
        )
        # Where a bin is one whole number, mean and deviation are two more equations for what is hidden.
        solved = (facts["whole"] > 0) & (np.diff(facts["edges"])[:, 0] <= 1) & np.isnan(facts["counts"]).any(axis=1)
        for name in ("mean", "deviation"):
            facts[name] = np.where(few | solved | (dominated & (self.least > 1)), np.nan, facts[name])
        facts["counts"][few] = np.nan
        if self.groups is not None:  # what all samples may not show may not follow from the groups
            for name in ("mean", "deviation"):
                facts[f"group_{name}"] = np.where(np.isnan(facts[name]), np.nan, facts[f"group_{name}"])
        if self.event:  # survival curves state the numbers at risk at other times, and the difference is of few people
            facts["counts"][self.features] = np.nan
        if self.correlations:
            scarce = (facts.pop("scarce") > 0) | (facts["pairs"] < self.least) | few[:, None] | few[None, :]
            facts["correlation"] = np.where(scarce, np.nan, facts["correlation"])
            facts["pairs"] = np.where((facts["pairs"] > 0) & (facts["pairs"] < self.least), np.nan, facts["pairs"])
        return facts

    def _scarce(self, together: Floats, two: Bools, pairs: Ints) -> Bools:
        """Return the pairs of columns of which few samples have two of two values each, ``[K, K]``.

        From the correlation of two such columns and their counts follows how many samples have both values. Of a column
        with levels all pairs are hidden if one of them is, because one follows from the others.
        """
        few = (together > 0) & (together < self.least) & two[:, None] & two[None, :] & (self.least > 1)
        blocks = [where for _, where in self.design.columns]
        hidden = np.zeros(pairs.shape, np.bool_)
        for one in blocks:
            for other in blocks:
                hidden[one, other] = one != other and few[:, one, other].any()
        return hidden

    def _rare(self, statistics: Tensors) -> npt.NDArray[np.bool_]:
        """Return the columns of zeros and ones of which fewer than ``least`` are zeros, or ones."""
        ones = statistics["present"] * statistics["mean"]
        spread = statistics["deviation"] ** 2 * (statistics["present"] - 1)
        binary = (statistics["whole"] > 0) & (
            np.abs(spread - ones * (1 - statistics["mean"])) < 1e-6 * np.maximum(1.0, ones)
        )
        fewest = np.rint(np.minimum(ones, statistics["present"] - ones))
        return np.asarray(binary & (fewest > 0) & (fewest < self.least))


def dominates(sketch: Sketch, total: float) -> bool:
    r"""Return whether a sum shows the value of the largest contributor, by the p% rule of statistical offices.

    The second largest contributor :math:`x_2` knows the largest one :math:`x_1` to within the rest of the sum, which
    must be at least p = 10 % of it: :math:`S - x_1 - x_2 < x_1 / 10`. Both are known to 1/128. The rule is about sums
    of values that are not negative.

    Examples
    --------
    >>> one = Sketch(np.array([1.0, 900.0]), np.array([1.5, 904.0]), np.array([9, 1]))
    >>> dominates(one, 909.0), dominates(Sketch(one.low, one.high, np.array([900, 1])), 1800.0)
    (True, False)

    References
    ----------
    Hundepool et al., Statistical disclosure control, 2012, section 4.2.
    """
    if total <= 0 or sketch.low[0] < 0:
        return False
    largest = float(sketch.low[-1])
    second = largest if sketch.counts[-1] > 1 or len(sketch.counts) < 2 else float(sketch.low[-2])
    return total - largest - second < DOMINANT * largest


def _reach(sketch: Sketch, middle: float) -> float:
    """Return by how much a value can differ from the mean; 1 for a column without values."""
    if not len(sketch.counts):
        return 1.0
    return max(abs(float(sketch.high[-1]) - middle), abs(float(sketch.low[0]) - middle)) or 1.0


def fraction(samples: int) -> int:
    """Return the fraction bits with which sums of products over all samples fit into 62 bits.

    Examples
    --------
    >>> fraction(1000), fraction(10**6)
    (24, 21)
    """
    return min(FINEST, (62 - math.ceil(math.log2(max(2, samples)))) // 2)


def products(values: FloatArray, *, middle: Floats, reach: Floats, bits: int) -> Ints:
    r"""Return what a peer adds: numbers of pairs, and sums of centred values and products over these, ``[4 K K]``.

    Parameters
    ----------
    values
        ``[n, K]``, NaN where one is missing.
    middle, reach
        A value counts as ``(value - middle) / reach``, at most 1 in magnitude, ``[K]``.
    bits
        Fraction bits.
    """
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        shares = np.clip((values.astype(np.float64) - middle) / reach, -1.0, 1.0)
    centred = np.where(there, np.rint(np.ldexp(np.where(there, shares, 0.0), bits)), 0.0).astype(np.int64)
    mask = there.astype(np.int64)
    blocks = (mask.T @ mask, centred.T @ mask, (centred * centred).T @ mask, centred.T @ centred)
    return np.concatenate([each.ravel() for each in blocks])


def correlations(total: Ints, *, columns: int) -> tuple[Ints, Floats]:
    """Return the number of samples of each pair, and Pearson's correlations ``[K, K]``; NaN without variation."""
    count, first, second, both = total.reshape(4, columns, columns)
    number = np.maximum(count, 1).astype(np.float64)
    one, two = first.astype(np.float64), first.T.astype(np.float64)  # sums of the row's column, and of the column's
    covariance = both.astype(np.float64) - one * two / number
    spread = second.astype(np.float64) - one * one / number
    scale = np.maximum(spread, 0.0) * np.maximum(spread.T, 0.0)
    correlation = np.where(scale > 0, covariance / np.sqrt(np.where(scale > 0, scale, 1.0)), np.nan)
    return count, np.clip(correlation, -1.0, 1.0)


def counts_together(total: Ints, *, upper: Floats, deviation: Floats, bits: int) -> Floats:
    r"""Return how many samples have the upper or the lower of two values in each of two columns, ``[4, K, K]``.

    For columns of two values with difference d, of which the upper one has share p, the sum of centred products is
    :math:`d_1 d_2 (n_{11} - n p q)`. Meaningless for columns of more values.

    Parameters
    ----------
    total
        What peers have added, see :func:`products`.
    upper
        Share of the upper value of each column, ``[K]``.
    deviation
        Standard deviation of each column with n - 1 degrees of freedom, in units of its reach, ``[K]``.
    bits
        Fraction bits.
    """
    size = len(upper)
    count, first, _, both = total.reshape(4, size, size).astype(np.float64)
    known, n = np.maximum(count, 1.0), np.maximum(np.diag(count), 2.0)
    spread = np.sqrt(np.maximum(upper * (1 - upper) * n / (n - 1), 0.0))
    gap = np.ldexp(np.divide(deviation, spread, out=np.zeros(size), where=spread > 0), bits)  # between the two values
    inverse = np.divide(1.0, gap, out=np.zeros(size), where=gap > 0)
    one = count * upper[:, None] + first * inverse[:, None]
    other = count * upper[None, :] + first.T * inverse[None, :]
    covariance = (both - first * first.T / known) * inverse[:, None] * inverse[None, :]
    cell = covariance + one * other / known
    counts: Floats = np.rint(np.stack([cell, one - cell, other - cell, count - one - other + cell]))
    return counts


def suppressed(counts: Floats, *, least: int, total: float) -> Floats:
    """Return counts of samples without small ones, and without others from which those would follow.

    Readers know the sum, this rule, and which cells are hidden. The hidden cells are at least two, have ``least``
    samples together, and are not all equal, so each of them may have the count of another. Where no cell with samples
    would be left, empty cells are hidden, too.

    Parameters
    ----------
    counts
        Samples by cell; NaN where a cell is hidden already because it has at least one sample and fewer than ``least``.
    least
        Smallest number of samples that is stated, apart from zero.
    total
        Sum of all cells.

    Returns
    -------
    numpy.ndarray
        The counts, NaN where they are hidden.

    Examples
    --------
    >>> suppressed(np.array([30.0, 27.0, 3.0]), least=5, total=60)
    array([30., nan, nan])
    >>> suppressed(np.array([30.0, 27.0, 0.0, 3.0, 12.0]), least=5, total=72)
    array([30., 27.,  0., nan, nan])
    """
    shown = np.where((counts > 0) & (counts < least), np.nan, counts)
    if total <= least:
        return np.full_like(shown, np.nan)
    gone = np.isnan(shown)
    if not gone.any():
        return shown
    rest = total - np.nansum(shown)
    # A cell that is not small differs from all small ones; small ones may be equal where they divide the rest.
    lacking = gone.sum() < 2 or rest < least or rest % gone.sum() == 0
    while lacking and (shown > 0).any():
        shown[shown == shown[shown > 0].min()] = np.nan  # all of the same size, whichever comes first
        lacking = np.isnan(shown).sum() < 2 or total - np.nansum(shown) < least
    return shown if (shown > 0).any() else np.full_like(shown, np.nan)
