"""Best splits of nodes, a public function of histograms.

Ties have one rule: the first feature, then the first cut, then missing values to the right.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.categories import Categories
from p2pfl.plugins.exact.trees.split_limits import Limits, gained

BLOCK = 2**20
"""Numbers of histograms that are searched at once."""


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
        found: Ints = histogram[self._first].sum(0)
        return found

    def best(
        self, histograms: Ints, bounds: Floats, features: npt.NDArray[np.bool_] | None = None
    ) -> list[Split | None]:
        """Return the best split of each node, ``None`` where none gains anything.

        Parameters
        ----------
        histograms
            Sums of first and second derivatives and samples by node and bin, ``[m, cells, 3]``.
        bounds
            Bounds of the values of their children, ``[m, 2]``.
        features
            Features that may split each node, ``[m, F]``; ``None`` for all.
        """
        every = np.ones((len(histograms), len(self._place)), np.bool_) if features is None else features
        step = max(1, BLOCK // max(1, self._cuts.size * 3))
        blocks = [slice(low, low + step) for low in range(0, len(histograms), step)]
        return [split for where in blocks for split in self._block(histograms[where], bounds[where], every[where])]

    def _block(self, histograms: Ints, bounds: Floats, features: npt.NDArray[np.bool_]) -> list[Split | None]:
        count = len(histograms)
        if not len(self._place):
            return [None] * count
        left, whole = self._sums(histograms)  # [m, F, B, 2, 3]
        right, near = whole - left, bounds.reshape(count, 1, 1, 1, 2)
        valid = self._cuts & self.limits.allowed(left) & self.limits.allowed(right)  # [m, F, B, 2]
        if self.limits.signs is not None:
            valid &= self.limits.ordered(left, right, near)
        scores = self.limits.score(left, near) + self.limits.score(right, near)
        before = self.limits.score(whole, near)
        gains = gained(scores, before, valid).reshape(*features.shape, -1)
        best = gains.max(axis=2, initial=-np.inf)  # [m, F]
        each = {int(one.feature): one.best(histograms, bounds, before.reshape(count)) for one in self._categories}
        for feature, found in each.items():
            best[:, feature] = found.gains
        best = np.where(features, best, -np.inf)
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
