r"""Best splits of categories, as scikit-learn finds them.

Categories are sorted by :math:`G / (H + 10)`, which is best for a contiguous split (Fisher), and those that are best
sent left form one end of the order, at most half of them. Categories with fewer than 10 samples go right, and missing
values are a category.

References
----------
Fisher, On grouping for maximum homogeneity, Journal of the American Statistical Association 53, 1958.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.split_limits import Limits, gained

SUPPORT = 10.0
"""Samples that a category needs to go left; also added to the sums of second derivatives that sort them."""


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
        place, bins = int(self.places[node]), self.order.shape[1]
        members = self.order[node, : place + 1] if place < bins else self.order[node, place - bins : self.used[node]]
        known = tuple(sorted(int(number) for number in members if number != self.missing))
        return known, bool((members == self.missing).any()), self.sums[node, place]


class Categories:
    """Search for the best split by one category.

    Parameters
    ----------
    feature
        Number of the feature.
    bins
        Bins of the features.
    limits
        Which splits are allowed.
    """

    def __init__(self, feature: int, bins: Bins, limits: Limits) -> None:
        self.feature, self.limits = int(feature), limits
        start = int(bins.starts[feature])
        self._cells = slice(start, start + int(bins.sizes[feature]))
        self._missing = int(bins.counts[feature]) + 1 if bins.missing[feature] else -1

    def best(self, histograms: Ints, bounds: Floats, before: Floats) -> CategorySplits:
        """Return the best split of each node.

        Parameters
        ----------
        histograms
            Sums of first and second derivatives and samples by node and bin, ``[m, cells, 3]``.
        bounds
            Bounds of the values of their children, ``[m, 2]``.
        before
            Scores of the nodes, ``[m]``.
        """
        own = histograms[:, self._cells]  # [m, B, 3]
        whole, number = own.sum(axis=1), own.shape[1]  # [m, 3]
        slopes, curves = own[..., 0] * self.limits.slope, own[..., 1] * self.limits.curve
        share = whole[:, 2] / np.maximum(whole[:, 1] * self.limits.curve, np.finfo(np.float64).tiny)  # [m]
        counted = curves * share[:, None] >= SUPPORT
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
