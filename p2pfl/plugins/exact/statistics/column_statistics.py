""":class:`Description`, statistics of each column from exact totals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.rows import Layout
from p2pfl.core.traits import ModelTraits
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Round, Tensors
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.sketch import EXPONENTS, FINE, Sketch, coarse, fine, live, sketches
from p2pfl.plugins.exact.statistics.columns import Columns
from p2pfl.plugins.exact.statistics.correlations import correlations, fraction, products
from p2pfl.plugins.exact.statistics.suppression import suppressed
from p2pfl.plugins.exact.statistics.tensors import Statistic

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of the quantiles."""

MOST_PAIRED = 128
"""Columns of which pairs are counted; their totals have four numbers for each pair."""


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
        Smallest number of samples that anything is stated of: a peer with fewer takes no part, and smaller cells of the
        result are left out. All peers have seen the totals before.
    correlations
        True to count pairs of columns.
    event
        True if the target is a time with an event, as of a table with ``event``.

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
    subject: ClassVar[str] = "a description"
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, command="describe")

    features: int
    classes: int | None
    owned: bool = False
    bins: int = 20
    least: int = 5
    correlations: bool = True
    event: bool = False

    def __post_init__(self) -> None:
        if not (1 <= self.bins <= 1000 and self.least >= 1):
            raise ModelError(
                f"model.options.bins = {self.bins} and least = {self.least} describe nothing; set bins to 1 to 1000 "
                "and least to at least 1"
            )
        if self.event and self.classes is not None:
            raise ModelError("model.options.event = true needs a target that is a time, not classes; set it to false")
        if self.correlations and self.width > MOST_PAIRED:
            raise ModelError(
                f"model.options.correlations = true takes at most {MOST_PAIRED} columns, not {self.width}, as totals "
                "count each pair; set it to false, or choose fewer columns"
            )

    @property
    def columns(self) -> Columns:
        """Columns that are described."""
        return Columns(self.features, self.classes, self.event)

    @property
    def width(self) -> int:
        """K, number of columns."""
        return len(self.columns)

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        width = self.width
        shapes: dict[str, tuple[int, ...]] = {"samples": (1,)}
        shapes |= dict.fromkeys(("present", "distinct", "mean", "deviation", "whole", "low", "high"), (width,))
        shapes |= {"quantiles": (width, len(QUANTILES)), "edges": (width, self.bins + 1), "counts": (width, self.bins)}
        if self.correlations:
            shapes |= {"pairs": (width, width), "correlation": (width, width)}
        return Layout(tuple(shapes), tuple(shapes.values()))

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take all totals; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        width = self.width
        first = 1 + 3 * width + sums.size(width)
        total = yield Question(lambda peer: self._first(peer, own), size=first + width * EXPONENTS)
        samples, (present, distinct, fractions) = int(total[0]), total[1 : 1 + 3 * width].reshape(3, width)
        if not samples:
            return Outcome(tensors, over=True)
        known = np.maximum(present, 1)
        mean = sums.numbers(total[1 + 3 * width : first]) / known
        used = live(total[first:])
        size = sums.size(width)
        total = yield Question(lambda peer: self._second(own, peer, mean, used), size=size + len(used) * FINE)
        found = sketches(used, total[size:], columns=width)
        squares = sums.numbers(total[:size])
        deviation = np.sqrt(np.where(present > 1, squares / np.maximum(present - 1, 1), np.nan))
        given: dict[str, Any] = {
            "samples": [samples],
            "present": present,
            "distinct": distinct,
            "mean": mean,
            "deviation": deviation,
            "whole": fractions == 0,
        }
        given |= self._ranges(found, fractions == 0)
        edges = given["edges"]
        total = yield Question(lambda peer: self._histograms(own, peer, edges), size=width * self.bins)
        given["counts"] = total.reshape(width, self.bins)
        if self.correlations:
            reach = np.array([self._reach(each, middle) for each, middle in zip(found, mean.tolist(), strict=True)])
            given |= yield from self._paired(own, samples, mean, reach)
        return Outcome(self._kept(given), over=True)

    def _values(self, own: Owns, peer: str) -> npt.NDArray[np.float32]:
        return self.columns.values(own(peer), whole=self.owned)

    def _first(self, peer: str, own: Owns) -> Ints:
        """Return samples, values, different ones and fractions by column, their sums, and the magnitudes of values."""
        values = self._values(own, peer)
        if 0 < len(values) < self.least:
            raise DataError(
                f"{peer} has {len(values)} samples, fewer than model.options.least = {self.least}, so its statistics "
                "would show single samples; take part with more, or leave this peer out"
            )
        there = ~np.isnan(values)
        known = np.where(there, values, 0.0).astype(np.float64)
        fractions = (known != np.rint(known)).sum(axis=0)
        distinct = [len(np.unique(column[here])) for column, here in zip(known.T, there.T, strict=True)]
        total = sums.summed(len(values), self.width, lambda where: known[where])
        counts = there.sum(axis=0), distinct, fractions
        return np.concatenate([[len(values)], *counts, total, coarse(list(values.T))])

    def _second(self, own: Owns, peer: str, mean: Floats, used: Ints) -> Ints:
        """Return sums of squares about the mean, and values by cell."""
        values = self._values(own, peer)
        centred = np.where(np.isnan(values), 0.0, values.astype(np.float64) - mean)
        total = sums.summed(len(values), self.width, lambda where: centred[where] * centred[where])
        return np.concatenate([total, fine(list(values.T), used)])

    def _histograms(self, own: Owns, peer: str, edges: Floats) -> Ints:
        """Return values by bin; the first and the last bin have those beyond them as well."""
        found = []
        for column, ends in zip(self._values(own, peer).T, edges, strict=True):
            known = column[~np.isnan(column)].astype(np.float64)
            place = np.searchsorted(ends[1:-1], known, side="right")
            found.append(np.bincount(place, minlength=self.bins))
        return np.concatenate(found).astype(np.int64)

    def _paired(self, own: Owns, samples: int, mean: Floats, reach: Floats) -> Asked[Mapping[str, Any]]:
        """Return correlations of all pairs of columns."""
        bits = fraction(samples)
        total = yield Question(
            lambda peer: products(self._values(own, peer), middle=mean, reach=reach, bits=bits), size=4 * self.width**2
        )
        pairs, found = correlations(total, columns=self.width)
        return {"pairs": pairs, "correlation": found}

    def _ranges(self, found: list[Sketch], whole: npt.NDArray[np.bool_]) -> dict[str, Floats]:
        """Return ends, quantiles and edges of each column; ends that at least ``least`` samples lie at or beyond."""
        low, high = np.full(self.width, np.nan), np.full(self.width, np.nan)
        quantiles, edges = np.full((self.width, len(QUANTILES)), np.nan), np.zeros((self.width, self.bins + 1))
        for column, (sketch, integers) in enumerate(zip(found, whole.tolist(), strict=True)):
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
        place = share * (count - 1)
        return math.floor(place) + 1 >= self.least and count - math.ceil(place) >= self.least

    def _reach(self, sketch: Sketch, middle: float) -> float:
        """Return by how much a value can differ from the mean; 1 for a column without values."""
        if not len(sketch.counts):
            return 1.0
        return max(abs(float(sketch.high[-1]) - middle), abs(float(sketch.low[0]) - middle)) or 1.0

    def _kept(self, given: Mapping[str, Any]) -> Tensors:
        """Return the tensors without what concerns fewer than ``least`` samples, which is NaN."""
        found = {name: np.asarray(value, np.float64) for name, value in given.items()}
        few = found["present"] < self.least
        if self.least > 1:
            few |= self._rare(found)
        for name in ("mean", "deviation"):
            found[name] = np.where(few, np.nan, found[name])
        found["counts"] = np.stack(
            [suppressed(counts, least=self.least, total=float(counts.sum())) for counts in found["counts"]]
        )
        # Where a bin is one whole number, mean and deviation are two more equations for what is hidden.
        solved = (found["whole"] > 0) & (np.diff(found["edges"])[:, 0] <= 1) & np.isnan(found["counts"]).any(axis=1)
        for name in ("mean", "deviation"):
            found[name] = np.where(solved, np.nan, found[name])
        found["counts"][few] = np.nan
        if self.correlations:
            scarce = (found["pairs"] < self.least) | few[:, None] | few[None, :]
            found["correlation"] = np.where(scarce, np.nan, found["correlation"])
            found["pairs"] = np.where((found["pairs"] > 0) & (found["pairs"] < self.least), np.nan, found["pairs"])
        return found

    def _rare(self, found: Tensors) -> npt.NDArray[np.bool_]:
        """Return the columns of zeros and ones of which fewer than ``least`` are zeros, or ones."""
        ones = found["present"] * found["mean"]
        spread = found["deviation"] ** 2 * (found["present"] - 1)
        binary = (found["whole"] > 0) & (np.abs(spread - ones * (1 - found["mean"])) < 1e-6 * np.maximum(1.0, ones))
        fewest = np.rint(np.minimum(ones, found["present"] - ones))
        rare: npt.NDArray[np.bool_] = binary & (fewest > 0) & (fewest < self.least)
        return rare
