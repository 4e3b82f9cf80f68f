"""Counts of a peer's own samples: histograms of derivatives by node and bin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import MAX_BINS, Bins
from p2pfl.plugins.exact.trees.growing import GrowthTask, Splits

OUT = -1
"""Node of a sample that is not drawn."""


class BinnedSamples:
    """Samples of a peer as numbers of bins.

    The most frequent bin of a feature is left out of the entries: its sums are what the others leave of the sums of the
    node. For features that are mostly zero this is most of the work.

    Parameters
    ----------
    part
        Samples.
    bins
        Bins of the features.
    """

    def __init__(self, part: Part, bins: Bins) -> None:
        self.bins = bins
        self.codes = bins.codes(part.features)  # [F, n]
        self.cells = int(bins.sizes.sum())
        features, count = self.codes.shape
        starts = bins.starts
        usual = np.array(
            [np.bincount(codes, minlength=1).argmax() if count else 0 for codes in self.codes], np.int64
        )  # [F]
        self._usual = starts + usual
        entries = [np.flatnonzero(self.codes[number] != usual[number]) for number in range(features)]
        columns = [starts[number] + self.codes[number, where] for number, where in enumerate(entries)]
        rows = np.concatenate([*entries, np.empty(0, np.int64)])
        self._entries = scipy.sparse.csr_array(
            (np.ones(len(rows)), (rows, np.concatenate([*columns, np.empty(0, np.int64)]))),
            shape=(count, self.cells),
        )

    @staticmethod
    def of(part: Part, bins: Bins) -> BinnedSamples:
        """Return the samples as numbers of bins, kept with them."""
        kept: BinnedSamples | None = part.kept.get("binned")
        if kept is None or not kept.bins.same(bins):
            kept = BinnedSamples(part, bins)
            part.kept["binned"] = kept
        return kept

    def histograms(self, slots: Ints, count: int, values: Sequence[Floats]) -> Ints:
        """Return sums of values by slot and bin, ``[count, cells, V]``.

        Parameters
        ----------
        slots
            Slot of each sample, ``[n]``; -1 for samples that are not counted.
        count
            Number of slots.
        values
            V arrays ``[n]`` of whole numbers, whose sums stay below 2^53.
        """
        chosen = np.flatnonzero(slots >= 0)
        entries = self._entries if len(chosen) == len(slots) else self._entries[chosen]
        slots = slots[chosen]
        lengths = np.diff(entries.indptr)
        keys = np.repeat(slots * self.cells, lengths) + entries.indices
        found = np.empty((count, self.cells, len(values)), np.int64)
        for number, value in enumerate(values):
            own = value[chosen]
            sums = np.bincount(keys, weights=np.repeat(own, lengths), minlength=count * self.cells)
            table = sums.reshape(count, self.cells).astype(np.int64)
            whole = np.bincount(slots, weights=own, minlength=count).astype(np.int64)  # [count]
            if len(self._usual):
                rest = whole[:, None] - np.add.reduceat(table, self.bins.starts, axis=1)  # [count, F]
                table[:, self._usual] += rest
            found[..., number] = table
        return found


class RoutedSamples:
    """Samples of a peer, and the node that each has reached in each tree of a round.

    Parameters
    ----------
    codes
        Bins of the samples, ``[F, n]``.
    drawn
        Whether a tree has each sample, ``[trees, n]``; other samples are in no node.
    """

    def __init__(self, codes: npt.NDArray[np.uint8], drawn: npt.NDArray[np.bool_]) -> None:
        self.codes = codes
        self.nodes = np.where(drawn, np.arange(len(drawn))[:, None], OUT)  # [trees, n]

    def move(self, splits: Splits) -> None:
        """Move samples of nodes that were split to their children."""
        if not splits:
            return
        size = 1 + max(splits)
        feature, child = np.full(size, -1, np.int64), np.zeros(size, np.int64)
        lower = np.zeros((size, MAX_BINS + 2), np.bool_)  # [nodes, bins]
        for number, (chosen, bins, left) in splits.items():
            feature[number], lower[number, : len(bins)], child[number] = chosen, bins, left
        for nodes in self.nodes:
            known = np.where((nodes >= 0) & (nodes < size), nodes, 0)
            moving = np.flatnonzero((nodes == known) & (feature[known] >= 0))
            at = nodes[moving]
            nodes[moving] = child[at] + ~lower[at, self.codes[feature[at], moving]]


class BoostedSamples(RoutedSamples):
    """Samples of a peer in the trees of a round of boosting, and their values.

    Parameters
    ----------
    binned
        Samples.
    trees
        Number of trees.
    drawn
        Which samples are counted, ``[n]``.
    """

    def __init__(self, binned: BinnedSamples, trees: int, drawn: npt.NDArray[np.bool_]) -> None:
        super().__init__(binned.codes, np.broadcast_to(drawn, (trees, len(drawn))))
        self.binned = binned

    def count(self, task: GrowthTask, values: Sequence[npt.NDArray[np.float64]]) -> Ints:
        """Return sums of V values ``[trees, n]`` by counted node and bin, ``[m, cells, V]``.

        Nodes of one tree follow each other in the task.
        """
        slot = np.full(1 + max(task.counted), -1, np.int64)
        slot[list(task.counted)] = np.arange(len(task.counted))
        found = np.zeros((len(task.counted), self.binned.cells, len(values)), np.int64)
        for tree, nodes in enumerate(self.nodes):
            slots = np.where((nodes >= 0) & (nodes < len(slot)), slot[np.minimum(nodes, len(slot) - 1)], -1)
            if (slots >= 0).any():
                here = slots[slots >= 0]
                low, high = int(here.min()), int(here.max()) + 1
                own = np.where(slots >= 0, slots - low, -1)
                found[low:high] += self.binned.histograms(own, high - low, [value[tree] for value in values])
        return found
