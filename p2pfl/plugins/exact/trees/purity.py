r"""Splits of trees that predict shares of classes or means, a public function of histograms.

A split is best where

.. math:: \frac{\lVert S_L \rVert^2}{n_L} + \frac{\lVert S_R \rVert^2}{n_R}

is largest, with S the numbers of samples by class, or the sum of the targets, and n the number of samples. So it lowers
the Gini impurity, or the squared error, most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.node_splits import Split, gained


@dataclass(frozen=True, eq=False)
class HistogramCells:
    """Places of the histograms of some nodes, each of K features, in one total.

    Parameters
    ----------
    bins
        Bins of the features.
    features
        Features of each node, ``[m, K]``.
    cuts
        The only cut of each of them, ``[m, K]``, the number of the last bin that goes left; ``None`` for all cuts. With
        it a histogram has the samples on both sides, and those without a value.
    """

    bins: Bins
    features: Ints
    cuts: Ints | None = None

    @property
    def counts(self) -> Ints:
        """Number of cuts of each histogram, ``[m, K]``."""
        counts: Ints = self.bins.counts[self.features]
        return counts if self.cuts is None else np.minimum(counts, 1)

    @property
    def sizes(self) -> Ints:
        """Number of cells of each histogram, that of missing values included, ``[m, K]``."""
        return np.asarray(self.counts + 1 + self.bins.missing[self.features])

    @property
    def offsets(self) -> Ints:
        """Place of the first cell of each histogram, ``[m, K]``."""
        sizes = self.sizes.ravel()
        return (np.cumsum(sizes) - sizes).reshape(self.features.shape)

    @property
    def size(self) -> int:
        """Number of cells of all histograms."""
        return int(self.sizes.sum())

    def placed(self, codes: np.ndarray, slots: Ints, column: int) -> Ints:
        """Return the place of samples in the histograms of a column.

        Parameters
        ----------
        codes
            Bins of the samples, ``[n]``.
        slots
            Node of each sample, ``[n]``.
        column
            Number of the feature of each node.
        """
        features = self.features[slots, column]
        cells = codes.astype(np.int64)  # [n]
        if self.cuts is not None:
            lacking = cells > self.bins.counts[features]
            cells = np.where(lacking, self.counts[slots, column] + 1, cells > self.cuts[slots, column])
        return np.asarray(self.offsets[slots, column] + cells)

    def bin(self, node: int, column: int, cut: int) -> int:
        """Return the last bin that goes left by a cut of a histogram."""
        if self.cuts is None:
            return cut
        if cut == self.counts[node, column]:  # all samples with a value
            return int(self.bins.counts[self.features[node, column]])
        return int(self.cuts[node, column])


@dataclass(frozen=True)
class Purity:
    """Search for the best split of each node among its features.

    Parameters
    ----------
    classes
        True if sums are numbers of samples by class ``[C]``; else they are the sum of the targets and the number of
        samples, ``[2]``.
    min_samples_leaf
        Smallest number of samples of a leaf.
    """

    classes: bool
    min_samples_leaf: int

    def count(self, sums: Ints) -> Ints:
        """Return the number of samples in sums ``[..., V]``."""
        return sums.sum(-1) if self.classes else sums[..., 1]

    def score(self, sums: Ints) -> Floats:
        """Return the score of nodes with sums ``[..., V]``."""
        count = np.maximum(self.count(sums), 1).astype(np.float64)
        if self.classes:  # exact: the squares of fewer than 2^26 samples
            squares: Floats = np.square(sums).sum(-1).astype(np.float64)
            return squares / count
        whole = sums[..., 0].astype(np.float64)
        return whole * whole / count

    def best(self, flat: Ints, cells: HistogramCells) -> tuple[list[Split | None], Ints]:
        """Return the best split of each node, ``None`` where none gains anything, and the sums of the nodes ``[m, V]``.

        Parameters
        ----------
        flat
            Sums by bin of the histograms, ``[cells, V]``.
        cells
            Places of the histograms.
        """
        bins, chosen = cells.bins, cells.features
        counts, missing = cells.counts[..., None], bins.missing[chosen][..., None]  # [m, K, 1]
        cut = np.arange(int(counts.max(initial=0)) + 1)  # [B]
        ended = np.concatenate([flat, np.zeros((1, flat.shape[1]), np.int64)])  # the last one is empty
        start = cells.offsets[..., None]
        below = np.cumsum(ended[np.where(cut <= counts, start + cut, len(flat))], axis=2)  # [m, K, B, V]
        lacking = ended[np.where(missing, start + counts + 1, len(flat))]  # [m, K, 1, V]
        whole = (below[:, :1, -1:] + lacking[:, :1])[:, :, :, None]  # [m, 1, 1, 1, V]
        ways = [below, below + lacking] if bins.missing.any() else [below]  # missing values go right, or left
        left = np.stack(ways, axis=3)  # [m, K, B, 2, V]
        right = whole - left
        valid = np.stack([(cut < counts) | ((cut == counts) & missing), (cut < counts) & missing], axis=-1)
        valid = valid[..., : len(ways)]
        valid &= (self.count(left) >= self.min_samples_leaf) & (self.count(right) >= self.min_samples_leaf)
        gains = gained(self.score(left) + self.score(right), self.score(whole), valid).reshape(len(chosen), -1)
        cuts = list[Split | None]()
        for node, place in enumerate(gains.argmax(axis=1).tolist()):
            if np.isneginf(gains[node, place]):
                cuts.append(None)
                continue
            at, bin_, way = np.unravel_index(place, left.shape[1:4])
            where = (node, at, bin_, way)
            cuts.append(
                Split(
                    gain=float(gains[node, place]),
                    feature=int(chosen[node, at]),
                    cut=cells.bin(node, int(at), int(bin_)),
                    missing_left=bool(way),
                    left=left[where],
                    right=right[where],
                )
            )
        return cuts, whole[:, 0, 0, 0]
