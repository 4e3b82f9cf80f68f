"""Bins of a node that are merged where few of its samples are in one, before derivatives are summed.

The bins of two siblings are those of their parent, or several of these as one, so that each has no sample or enough of
either sibling. So no difference of a bin of the parent and one of a child is a sum over few samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.plugins.exact.bins import Bins


def few(counts: Ints, least: int) -> npt.NDArray[np.bool_]:
    """Return where there are samples, but fewer than ``least``."""
    return np.asarray((counts > 0) & (counts < least))


def merged(counts: Ints, least: int) -> Ints:
    """Return the last bin of that which each bin is merged into, in the order of the bins, ``[..., B]``.

    Parameters
    ----------
    counts
        Number of samples of S siblings by bin, ``[..., S, B]``.
    least
        Least number of samples of each sibling in a bin that has any of it.

    Examples
    --------
    >>> merged(np.array([[7, 0, 2, 4, 1]]), 5).tolist()
    [0, 4, 4, 4, 4]
    """
    bins = counts.shape[-1]
    closed, since = np.zeros((*counts.shape[:-2], bins), np.bool_), np.zeros(counts.shape[:-1], np.int64)
    for index in range(bins):
        since = since + counts[..., index]
        closed[..., index] = ~few(since, least).any(axis=-1) & (since > 0).any(axis=-1)
        since = np.where(closed[..., index, None], 0, since)
    after = counts.sum(axis=-1, keepdims=True) - np.cumsum(counts, axis=-1)  # [..., S, B]
    ends = closed & ~few(after, least).any(axis=-2)  # the rest is enough for a bin of its own, or nothing
    last = bins - 1 - ends[..., ::-1].argmax(axis=-1)
    last = np.where(ends.any(axis=-1), last, -1)
    closed &= np.arange(bins) <= last[..., None]
    closed[..., -1] = True
    places = np.where(closed, np.arange(bins), bins)
    return np.asarray(np.minimum.accumulate(places[..., ::-1], axis=-1)[..., ::-1])


def _levels(counts: Ints, least: int) -> Ints:
    """Return the level that each level of a category is merged into ``[B]``: itself, or the last one.

    Examples
    --------
    >>> _levels(np.array([[7, 2, 9, 0]]), 5).tolist(), _levels(np.array([[7, 4, 9, 3]]), 5).tolist()
    ([3, 3, 2, 3], [0, 3, 2, 3])
    """
    order = np.argsort(counts.sum(axis=0), kind="stable")
    last = np.arange(counts.shape[1]) == counts.shape[1] - 1
    joined = few(counts, least).any(axis=0) | last
    for level in order.tolist():
        if not few(counts[:, joined].sum(axis=1), least).any():
            break
        joined = joined | (np.arange(counts.shape[1]) == level)
    return np.where(joined, counts.shape[1] - 1, np.arange(counts.shape[1]))


@dataclass(frozen=True, eq=False)
class MergedBins:
    """Bins of nodes, some of them as one.

    Parameters
    ----------
    cells
        Bin whose sums have those of each bin of a feature, ``[m, cells]``.
    """

    cells: Ints

    @classmethod
    def none(cls, nodes: int, bins: Bins) -> MergedBins:
        """Return the bins of nodes of which none are merged."""
        return cls(np.tile(np.arange(int(bins.sizes.sum())), (nodes, 1)))

    def of(self, sums: Ints) -> Ints:
        """Return sums by node and bin ``[m, cells, V]`` of the bins as they are merged."""
        merged = np.zeros_like(sums)
        for own, cells, each in zip(merged, self.cells, sums, strict=True):
            np.add.at(own, cells, each)
        return merged

    def unused(self, bins: Bins) -> npt.NDArray[np.bool_]:
        """Return bins that are part of another one, and categories that others are part of, ``[m, cells]``."""
        places = np.arange(self.cells.shape[1])
        ends_here: npt.NDArray[np.bool_] = self.cells != places
        for feature in np.flatnonzero(bins.categorical).tolist():
            start, end = int(bins.starts[feature]), int(bins.starts[feature] + bins.sizes[feature])
            ends_here[:, end - 1] = ends_here[:, start : end - 1].any(axis=1)
        return ends_here

    def merging(self, counts: Sequence[Ints], bins: Bins, least: int) -> MergedBins:
        """Return bins of which more are merged, where few samples of a node are in one.

        Missing values go with the last bin, and so to the right of any cut. Levels of a category that few samples have
        go with the last one, which no split then sends left.

        Parameters
        ----------
        counts
            Number of samples by node and bin of the nodes, ``[m, cells]``, and of their siblings if they have any.
        bins
            Bins of the features.
        least
            Least number of samples.
        """
        siblings = np.stack(counts, axis=1)  # [m, S, cells]
        cells = self.cells.copy()
        for feature in np.flatnonzero(bins.sizes > 1).tolist():
            start, end = int(bins.starts[feature]), int(bins.starts[feature] + bins.sizes[feature])
            own = siblings[:, :, start:end]
            rare = np.flatnonzero(few(own, least).any(axis=(1, 2)))
            if not len(rare):
                continue
            if bins.categorical[feature]:
                target = np.stack([_levels(each, least) for each in own[rare]])
            else:
                target = merged(own[rare], least)
                known = int(bins.counts[feature])
                joined = (target[:, known] > known) if bins.missing[feature] else np.zeros(len(rare), np.bool_)
                target = np.where(joined[:, None] & (target > known), known, target)
            before = self.cells[rare, start:end] - start
            cells[rare, start:end] = start + np.take_along_axis(target, before, axis=1)
        return MergedBins(cells)
