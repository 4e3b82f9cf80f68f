"""Best splits of nodes, a public function of histograms.

Ties have one rule: the first feature, then the first cut, then missing values to the right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.encodings import Floats, Ints
from p2pfl.exact.bins import Bins

TINY = 1e-15
"""Added to sums of second derivatives, as scikit-learn does, so that nothing is divided by zero."""

ROUNDING = 1e-12
"""Gain, as a share of the scores of the children, that could be rounding: such a split gains nothing."""

BLOCK = 2**20
"""Numbers of histograms that are searched at once."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of splits and of their gains.

    Parameters
    ----------
    min_samples_leaf
        Smallest number of samples of a leaf.
    min_hessian
        Smallest sum of second derivatives in a leaf.
    l2
        Regularisation of the value of a leaf.
    unit
        First and second derivatives are integers in this unit.
    """

    min_samples_leaf: int
    min_hessian: float
    l2: float
    unit: float

    def weight(self, sums: Ints) -> Floats:
        """Return sums of second derivatives plus regularisation, for sums ``[..., 3]``."""
        return sums[..., 1].astype(np.float64) * self.unit + (self.l2 + TINY)

    def score(self, sums: Ints) -> Floats:
        r"""Return :math:`G^2 / (H + \lambda)` for sums ``[..., 3]`` of first and second derivatives and samples."""
        slope = sums[..., 0].astype(np.float64) * self.unit
        return slope * slope / self.weight(sums)

    def allowed(self, sums: Ints) -> npt.NDArray[np.bool_]:
        """Return whether a leaf may have these sums ``[..., 3]``."""
        return (sums[..., 2] >= self.min_samples_leaf) & (sums[..., 1] * self.unit >= self.min_hessian)


@dataclass(frozen=True)
class Split:
    """Split of a node.

    Parameters
    ----------
    gain
        By how much the scores of the children exceed that of the node.
    feature, cut
        Samples in bins up to the number of the cut go left.
    missing_left
        Whether samples without a value go left.
    left, right
        Sums ``[3]`` of the children.
    """

    gain: float
    feature: int
    cut: int
    missing_left: bool
    left: Ints
    right: Ints


class Search:
    """Search for the best split among all features and cuts.

    Parameters
    ----------
    bins
        Bins of the features.
    limits
        Which splits are allowed.
    """

    def __init__(self, bins: Bins, limits: Limits) -> None:
        self.limits = limits
        self._first = int(bins.sizes[0])
        self.cells = int(bins.sizes.sum())
        widest = int(bins.counts.max(initial=0)) + 1
        cut = np.arange(widest)
        starts, counts, missing = bins.starts[:, None], bins.counts[:, None], bins.missing[:, None]
        self._place = np.where(cut <= counts, starts + cut, self.cells)  # [F, B]; the last one is empty
        self._missing = np.where(bins.missing, bins.starts + bins.counts + 1, self.cells)  # [F]
        right = (cut < counts) | ((cut == counts) & missing)  # [F, B]
        left = (cut < counts) & missing
        self._cuts = np.stack([right, left], axis=-1)  # [F, B, 2]: missing values go right, or left

    def whole(self, histogram: Ints) -> Ints:
        """Return the sums ``[3]`` of a node, those over all bins of any feature."""
        found: Ints = histogram[: self._first].sum(0)
        return found

    def best(self, histograms: Ints) -> list[Split | None]:
        """Return the best split of each node, ``None`` where none gains anything.

        Parameters
        ----------
        histograms
            Sums of first and second derivatives and samples by node and bin, ``[m, cells, 3]``.
        """
        step = max(1, BLOCK // max(1, self._cuts.size * 3))
        blocks = [histograms[low : low + step] for low in range(0, len(histograms), step)]
        return [split for block in blocks for split in self._block(block)]

    def _block(self, histograms: Ints) -> list[Split | None]:
        count, features = len(histograms), len(self._place)
        ended = np.concatenate([histograms, np.zeros((count, 1, 3), np.int64)], axis=1)  # [m, cells + 1, 3]
        below = np.cumsum(ended[:, self._place], axis=2)  # [m, F, B, 3]
        lacking = ended[:, self._missing][:, :, None]  # [m, F, 1, 3]
        left = np.stack([below, below + lacking], axis=3)  # [m, F, B, 2, 3]
        whole = (below[:, :1, -1] + lacking[:, :1, 0]).reshape(count, 1, 1, 1, 3)
        right = whole - left
        valid = self._cuts & self.limits.allowed(left) & self.limits.allowed(right)  # [m, F, B, 2]
        scores = self.limits.score(left) + self.limits.score(right)
        gains = scores - self.limits.score(whole)
        gains = np.where(valid & (gains > ROUNDING * scores), gains, -np.inf).reshape(count, features, -1)
        flat = gains.reshape(count, -1)
        found = flat.argmax(axis=1) if flat.shape[1] else np.zeros(count, np.int64)
        shape = self._cuts.shape
        splits: list[Split | None] = []
        for node, place in enumerate(found.tolist()):
            if not flat.shape[1] or np.isneginf(flat[node, place]):
                splits.append(None)
                continue
            feature, cut, way = np.unravel_index(place, shape)
            where = (node, feature, cut, way)
            splits.append(Split(float(flat[node, place]), int(feature), int(cut), bool(way), left[where], right[where]))
        return splits
