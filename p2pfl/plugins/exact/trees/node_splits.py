"""Best splits of nodes, a public function of histograms.

Ties have one rule: the first feature, then the first cut, then missing values to the right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.tree_model import BITS, WORDS

BLOCK = 2**20
"""Numbers of histograms that are searched at once."""

TINY = 1e-15
"""Added to sums of second derivatives, as scikit-learn does, so that nothing is divided by zero."""

ROUNDING = 1e-12
"""Gain, as a share of the scores of the children, that could be rounding: such a split gains nothing."""

UNBOUNDED = (-np.inf, np.inf)
"""Bounds of the value of a node."""

SUPPORT = 10.0
"""Samples that a category needs to go left; also added to the sums of second derivatives that sort them."""


@dataclass(frozen=True)
class Split:
    """Split of a node.

    Parameters
    ----------
    gain
        By how much the scores of the children exceed that of the node.
    feature, cut
        Samples in bins up to the number of the cut go left; -1 for a category.
    missing_left
        True if samples without a value go left.
    left, right
        Sums ``[3]`` of the children.
    category
        Bins that go left, if the feature is a category; else empty.
    """

    gain: float
    feature: int
    cut: int
    missing_left: bool
    left: Ints = field(repr=False)
    right: Ints = field(repr=False)
    category: tuple[int, ...] = ()

    def lower(self, bins: Bins) -> npt.NDArray[np.bool_]:
        """Return which bins go left, ``[B + 1]``; the last one has the missing values."""
        numbers = np.arange(bins.counts[self.feature] + 1)
        known = np.isin(numbers, self.category) if self.cut < 0 else numbers <= self.cut
        return np.append(known, self.missing_left)

    def entries(self, bins: Bins, *, child: int, larger: bool) -> dict[str, Any]:
        """Return what the arrays of a tree have of the node, by name.

        Parameters
        ----------
        bins
            Bins of the features.
        child
            Number of the left child.
        larger
            True if that is the larger child, which missing values follow where nobody has any, as in scikit-learn.
        """
        missing = self.missing_left if bins.missing[self.feature] else larger
        entries = {"feature": self.feature, "left": child, "missing": missing, "gain": self.gain}
        if self.cut < 0:
            assert bins.known is not None  # noqa: S101 (the feature is a category)
            lower = np.full(WORDS * BITS, bool(missing))  # categories that nobody has
            known = np.flatnonzero(bins.known[self.feature])
            lower[known] = np.isin(np.arange(len(known)), self.category)
            return entries | {"categories": lower.reshape(WORDS, BITS) @ 2.0 ** np.arange(BITS)}
        last = self.cut == bins.counts[self.feature]  # all known values go left
        return entries | {"threshold": np.finfo(np.float32).max if last else bins.cuts[self.feature, self.cut]}

    def boosted_entries(self, bins: Bins, *, child: int) -> dict[str, Any]:
        """Return the entries of a node of boosting, whose sums are first and second derivatives and samples."""
        return self.entries(bins, child=child, larger=bool(self.left[2] > self.right[2]))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of splits, and their gains.

    Parameters
    ----------
    min_samples_leaf
        Smallest number of samples of a leaf.
    min_hessian
        Smallest sum of second derivatives in a leaf.
    l2
        Regularisation of the value of a leaf.
    slope, curve
        First and second derivatives are integers in these units.
    signs
        By feature whether predictions must rise (1) or fall (-1) with it, ``[F]``; ``None`` if all are free.
    """

    min_samples_leaf: int
    min_hessian: float
    l2: float
    slope: float
    curve: float
    signs: Ints | None = None

    def weight(self, sums: Ints) -> Floats:
        """Return sums of second derivatives plus regularisation, for sums ``[..., 3]``."""
        return sums[..., 1].astype(np.float64) * self.curve + (self.l2 + TINY)

    def value(self, sums: Ints, bounds: Floats) -> Floats:
        """Return the values of leaves with sums ``[..., 3]``, within bounds ``[..., 2]``."""
        values: Floats = -(sums[..., 0].astype(np.float64) * self.slope) / self.weight(sums)
        return np.minimum(np.maximum(values, bounds[..., 0]), bounds[..., 1])

    def score(self, sums: Ints, bounds: Floats) -> Floats:
        r"""Return by how much leaves lower the loss, times two: :math:`G^2 / (H + \lambda)` without bounds.

        Parameters
        ----------
        sums
            Sums of first and second derivatives and samples, ``[..., 3]``.
        bounds
            Bounds of the values of the leaves, ``[..., 2]``.
        """
        slope = sums[..., 0].astype(np.float64) * self.slope
        return slope * slope / self.weight(sums) if self.signs is None else -slope * self.value(sums, bounds)

    def allowed(self, sums: Ints) -> npt.NDArray[np.bool_]:
        """Return whether a leaf may have these sums ``[..., 3]``."""
        return (sums[..., 2] >= self.min_samples_leaf) & (sums[..., 1] * self.curve >= self.min_hessian)

    def ordered(self, left: Ints, right: Ints, bounds: Floats) -> npt.NDArray[np.bool_]:
        """Return whether the children of splits ``[m, F, ..., 3]`` have values in the order of their features."""
        assert self.signs is not None  # noqa: S101 (checked by the caller)
        signs = self.signs.reshape(-1, *[1] * (left.ndim - 3))  # [F, ...]
        return np.asarray((self.value(right, bounds) - self.value(left, bounds)) * signs >= 0)


def gained(scores: Floats, before: Floats, valid: npt.NDArray[np.bool_]) -> Floats:
    """Return the gains of splits, minus infinity where one is not allowed or its gain could be rounding.

    Parameters
    ----------
    scores, before
        Scores of the children together, and of the node.
    valid
        True if a split is allowed.
    """
    gains = scores - before
    return np.asarray(np.where(valid & (gains > ROUNDING * np.abs(scores)), gains, -np.inf))


@dataclass(frozen=True, eq=False)
class CategorySplits:
    """Best splits of nodes by one category.

    Parameters
    ----------
    gains
        ``[m]``; minus infinity where none gains anything.
    places
        Number of the best candidate of each node, ``[m]``.
    order, used
        Bins in their order ``[m, B]``, and how many of them count ``[m]``.
    sums
        Sums left of each candidate, ``[m, 2 B, 3]``.
    missing
        Bin of missing values; -1 if there is none.
    """

    gains: Floats
    places: Ints
    order: Ints
    used: Ints
    sums: Ints
    missing: int

    def split(self, node: int) -> tuple[tuple[int, ...], bool, Ints]:
        """Return the bins that go left, whether missing values do, and the sums ``[3]`` of the left child."""
        index, bins = int(self.places[node]), self.order.shape[1]
        members = self.order[node, : index + 1] if index < bins else self.order[node, index - bins : self.used[node]]
        known = tuple(sorted(int(number) for number in members if number != self.missing))
        return known, bool((members == self.missing).any()), self.sums[node, index]


class Categories:
    r"""Search for the best split by one category, as scikit-learn finds it.

    Categories are sorted by :math:`G / (H + 10)`, which is best for a contiguous split (Fisher), and those that are
    best sent left form one end of the order, at most half of them. Categories with fewer than 10 samples go right, and
    missing values are a category.

    Parameters
    ----------
    feature
        Number of the feature.
    bins
        Bins of the features.
    limits
        Which splits are allowed.

    References
    ----------
    Fisher, On grouping for maximum homogeneity, Journal of the American Statistical Association 53, 1958.
    """

    def __init__(self, feature: int, bins: Bins, limits: Limits) -> None:
        self.feature, self.limits = int(feature), limits
        start = int(bins.starts[feature])
        self._cells = slice(start, start + int(bins.sizes[feature]))
        self._missing = int(bins.counts[feature]) + 1 if bins.missing[feature] else -1

    def best(self, histograms: Ints, bounds: Floats, before: Floats, unused: npt.NDArray[np.bool_]) -> CategorySplits:
        """Return the best split of each node.

        Parameters
        ----------
        histograms
            Sums of first and second derivatives and samples by node and bin, ``[m, cells, 3]``.
        bounds
            Bounds of the values of their children, ``[m, 2]``.
        before
            Scores of the nodes, ``[m]``.
        unused
            Categories that no split sends left, ``[m, cells]``.
        """
        own = histograms[:, self._cells]  # [m, B, 3]
        whole, number = own.sum(axis=1), own.shape[1]  # [m, 3]
        slopes, curves = own[..., 0] * self.limits.slope, own[..., 1] * self.limits.curve
        share = whole[:, 2] / np.maximum(whole[:, 1] * self.limits.curve, np.finfo(np.float64).tiny)  # [m]
        counted = curves * share[:, None] >= SUPPORT
        counted &= ~unused[:, self._cells]
        order = np.argsort(np.where(counted, slopes / (curves + SUPPORT), np.inf), axis=1, kind="stable")  # [m, B]
        used = counted.sum(axis=1)  # [m]
        ranked = np.take_along_axis(np.where(counted[..., None], own, 0), order[..., None], axis=1)
        rising = np.cumsum(ranked, axis=1)  # [m, B, 3]
        falling = rising[:, -1:] - rising + ranked  # from a place on
        left = np.concatenate([rising, falling], axis=1)  # [m, 2 B, 3]
        right, near = whole[:, None] - left, bounds[:, None]
        at = np.arange(number)
        first = at < ((used + 1) // 2)[:, None]
        last = (at > used[:, None] // 2) & (at < used[:, None])
        valid = np.concatenate([first, last], axis=1) & (used > 1)[:, None]
        valid &= self.limits.allowed(left) & self.limits.allowed(right)
        scores = self.limits.score(left, near) + self.limits.score(right, near)
        gains = gained(scores, before[:, None], valid)
        turned = np.concatenate([gains[:, :number], gains[:, : number - 1 : -1]], axis=1)  # the last places in turn
        places = turned.argmax(axis=1)
        places = np.where(places < number, places, 3 * number - 1 - places)
        return CategorySplits(turned.max(axis=1), places, order, used, left, self._missing)


class Search:
    """Search for the best split among all features and cuts.

    Parameters
    ----------
    bins
        Bins of the features.
    limits
        Which splits are allowed.
    counted
        A feature that is counted, from which sums of nodes follow; features that are not counted have no samples.
    """

    def __init__(self, bins: Bins, limits: Limits, counted: int = 0) -> None:
        self.limits, self.bins, self._counted = limits, bins, counted
        first = int(bins.starts[counted]) if len(bins.sizes) else 0
        self._first = slice(first, first + int(bins.sizes[counted]) if len(bins.sizes) else 0)
        self.cells = int(bins.sizes.sum())
        widest = int(bins.counts.max(initial=0)) + 1
        cut = np.arange(widest)
        starts, counts, missing = bins.starts[:, None], bins.counts[:, None], bins.missing[:, None]
        self._place = np.where(cut <= counts, starts + cut, self.cells)  # [F, B]; the last one is empty
        self._missing = np.where(bins.missing, bins.starts + bins.counts + 1, self.cells)  # [F]
        right = (cut < counts) | ((cut == counts) & missing)  # [F, B]
        left = (cut < counts) & missing
        self._cuts = np.stack([right, left], axis=-1)  # [F, B, 2]: missing values go right, or left
        self._categories = [Categories(number, bins, limits) for number in np.flatnonzero(bins.categorical).tolist()]
        self._cuts[bins.categorical] = False

    def whole(self, histogram: Ints) -> Ints:
        """Return the sums ``[3]`` of a node, those over all bins of any feature."""
        return np.asarray(histogram[self._first].sum(0))

    def best(self, histograms: Ints, bounds: Floats, unused: npt.NDArray[np.bool_] | None = None) -> list[Split | None]:
        """Return the best split of each node, ``None`` where none gains anything.

        Parameters
        ----------
        histograms
            Sums of first and second derivatives and samples by node and bin, ``[m, cells, 3]``.
        bounds
            Bounds of the values of their children, ``[m, 2]``.
        unused
            Bins after which no cut is made, and categories that no split sends left, ``[m, cells]``.
        """
        step = max(1, BLOCK // max(1, self._cuts.size * 3))
        blocks = [slice(low, low + step) for low in range(0, len(histograms), step)]
        out = np.zeros(histograms.shape[:2], np.bool_) if unused is None else unused
        return [split for where in blocks for split in self._block(histograms[where], bounds[where], out[where])]

    def _block(self, histograms: Ints, bounds: Floats, unused: npt.NDArray[np.bool_]) -> list[Split | None]:
        count = len(histograms)
        if not len(self._place):
            return [None] * count
        left, whole = self._sums(histograms)  # [m, F, B, 2, 3]
        right, near = whole - left, bounds.reshape(count, 1, 1, 1, 2)
        valid = self._cuts & self.limits.allowed(left) & self.limits.allowed(right)  # [m, F, B, 2]
        valid &= ~np.pad(unused, ((0, 0), (0, 1)))[:, self._place][..., None]
        if self.limits.signs is not None:
            valid &= self.limits.ordered(left, right, near)
        scores = self.limits.score(left, near) + self.limits.score(right, near)
        before = self.limits.score(whole, near)
        gains = gained(scores, before, valid).reshape(*valid.shape[:2], -1)
        best = gains.max(axis=2, initial=-np.inf)  # [m, F]
        each = {
            int(one.feature): one.best(histograms, bounds, before.reshape(count), unused) for one in self._categories
        }
        for feature, split in each.items():
            best[:, feature] = split.gains
        splits: list[Split | None] = []
        for node, chosen in enumerate(best.argmax(axis=1).tolist()):
            gain = float(best[node, chosen])
            if np.isneginf(gain):
                splits.append(None)
            elif chosen in each:
                members, missing, sums = each[chosen].split(node)
                splits.append(Split(gain, chosen, -1, missing, sums, whole[node, 0, 0, 0] - sums, members))
            else:
                cut, way = np.unravel_index(int(gains[node, chosen].argmax()), self._cuts.shape[1:])
                where = (node, chosen, cut, way)
                splits.append(Split(gain, chosen, int(cut), bool(way), left[where], right[where]))
        return splits

    def _sums(self, histograms: Ints) -> tuple[Ints, Ints]:
        """Return the sums left of each cut ``[m, F, B, 2, 3]`` (missing values right, or left), and of the nodes."""
        count = len(histograms)
        ended = np.concatenate([histograms, np.zeros((count, 1, 3), np.int64)], axis=1)  # [m, cells + 1, 3]
        below = np.cumsum(ended[:, self._place], axis=2)  # [m, F, B, 3]
        lacking = ended[:, self._missing][:, :, None]  # [m, F, 1, 3]
        whole = below[:, self._counted, -1] + lacking[:, self._counted, 0]  # [m, 3]
        whole = whole.reshape(count, 1, 1, 1, 3)
        return np.stack([below, below + lacking], axis=3), whole
