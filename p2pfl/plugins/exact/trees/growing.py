"""Growth of trees level by level, a public function of totals.

One total brings the histograms of a level. Of two siblings only the smaller is counted; the other one is the difference
from their parent, exactly. With ``max_leaf_nodes`` a tree grows best first, as in scikit-learn, and still takes one
total a level: a node is split early if it could be among the best, whatever its unknown descendants gain, and the tree
keeps those splits that best-first growth makes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy.sparse

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import MAX_BINS, Bins
from p2pfl.plugins.exact.trees.merged_bins import MergedBins
from p2pfl.plugins.exact.trees.node_splits import UNBOUNDED, Search, Split
from p2pfl.plugins.exact.trees.tree_model import FIELDS, WORDS

Splits = dict[int, tuple[int, npt.NDArray[np.bool_], int]]
"""Feature, bins that go left (the last one has the missing values) and left child of a node, by its number."""

OUT = -1
"""Node of a sample that is not drawn."""


@dataclass(frozen=True)
class GrowthTask:
    """Next work of the peers: move samples to the children of split nodes, and count some nodes.

    Parameters
    ----------
    splits
        Nodes that were split.
    counted
        Numbers of the nodes to count.
    """

    splits: Splits
    counted: tuple[int, ...]


@dataclass
class GrowingNode:
    """Node of a tree that grows.

    Parameters
    ----------
    tree, depth
        Tree, and distance from its root.
    sums
        First and second derivatives and samples, ``[3]``.
    bounds
        Bounds of the value of the node and of its children.
    histogram, cells
        Sums by bin, and which bins are merged, where some are.
    """

    tree: int
    depth: int
    sums: Ints | None = None
    bounds: tuple[float, float] = UNBOUNDED
    histogram: Ints | None = None
    cells: Ints | None = None
    split: Split | None = None
    left: int = -1


@dataclass
class Growth:
    """Trees that grow together.

    Parameters
    ----------
    search
        Search for splits.
    trees
        Number of trees; their roots are the nodes 0, 1, ...
    max_depth, max_leaf_nodes
        Largest depth and number of leaves; no bound if ``None``.
    """

    search: Search
    trees: int
    max_depth: int | None
    max_leaf_nodes: int | None
    nodes: list[GrowingNode] = field(init=False)
    merged: MergedBins | None = field(default=None, init=False)
    _siblings: list[tuple[int, int, int]] = field(default_factory=list, init=False)  # parent, counted child, other
    _task: GrowthTask | None = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [GrowingNode(tree, 0) for tree in range(self.trees)]
        self._task = GrowthTask({}, tuple(range(self.trees)))

    @property
    def task(self) -> GrowthTask | None:
        """Next work of the peers; ``None`` if the trees are complete."""
        return self._task

    def begin_merging(self) -> None:
        """Merge the bins of the counted nodes as those of their parents are, so that they can be counted."""
        assert self._task is not None  # noqa: S101 (there is a question)
        parents = [cells for parent, _, _ in self._siblings if (cells := self.nodes[parent].cells) is not None]
        self.merged = MergedBins(np.stack(parents)) if parents else MergedBins.none(self.trees, self.search.bins)

    def merge(self, counts: Ints, least: int) -> None:
        """Merge bins of the counted nodes and of their siblings in which few samples are, of counts ``[m, cells]``."""
        assert self.merged is not None  # noqa: S101 (merging has begun)
        siblings = [counts]
        if self._siblings:
            wholes = [self.nodes[parent].histogram for parent, _, _ in self._siblings]
            siblings.append(np.stack([whole[:, 2] for whole in wholes if whole is not None]) - counts)
        self.merged = self.merged.merging(siblings, self.search.bins, least)

    def proceed(self, histograms: Ints) -> None:
        """Continue with the histograms ``[m, cells, 3]`` of the counted nodes."""
        assert self._task is not None  # noqa: S101 (there was a question)
        counted = self._task.counted
        for index, (number, histogram) in enumerate(zip(counted, histograms, strict=True)):
            self.nodes[number].histogram = histogram
            self.nodes[number].cells = None if self.merged is None else self.merged.cells[index]
        for parent, child, other in self._siblings:
            whole, part = self.nodes[parent].histogram, self.nodes[child].histogram
            assert whole is not None and part is not None  # noqa: S101, PT018 (counted before)
            cells = self.nodes[other].cells = self.nodes[child].cells
            if cells is not None:
                whole = MergedBins(cells[None]).of(whole[None])[0]
            self.nodes[other].histogram = whole - part
            self.nodes[parent].histogram = None
        new = [*counted, *(other for _, _, other in self._siblings)]
        every = np.stack([self.nodes[number].histogram for number in new])  # type: ignore[misc]
        bounds = np.array([self.nodes[number].bounds for number in new])
        unused = None
        if self.merged is not None:
            again = [counted.index(child) for _, child, _ in self._siblings]
            unused = self.merged.unused(self.search.bins)[[*range(len(counted)), *again]]
        for number, split in zip(new, self.search.best(every, bounds, unused), strict=True):
            node = self.nodes[number]
            node.split = split
            if node.sums is None:  # a root
                node.sums = self.search.whole(every[new.index(number)])
            if split is None:
                node.histogram = None
        self._expand()

    def _expand(self) -> None:
        """Split the nodes that may be among the best, and find what is to be counted of their children."""
        splits: Splits = {}
        counted = list[int]()
        self._siblings = []
        for tree in range(self.trees):
            for number in self._best_first(tree):
                node = self.nodes[number]
                if node.left >= 0:
                    continue
                split = node.split
                assert split is not None  # noqa: S101 (it was chosen)
                node.left = len(self.nodes)
                each = zip((split.left, split.right), self._bounds(node, split), strict=True)
                self.nodes += [GrowingNode(tree, node.depth + 1, sums, bounds) for sums, bounds in each]
                splits[number] = (split.feature, split.lower(self.search.bins), node.left)
                if not any(map(self._may_split, (node.left, node.left + 1))):
                    node.histogram = None
                    continue
                smaller = node.left + int(split.left[2] > split.right[2])
                counted.append(smaller)
                self._siblings.append((number, smaller, 2 * node.left + 1 - smaller))
        self._task = GrowthTask(splits, tuple(counted)) if counted else None

    def _bounds(self, node: GrowingNode, split: Split) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the bounds of the children: a feature with a direction parts them in the middle of their values."""
        limits = self.search.limits
        sign = 0 if limits.signs is None else limits.signs[split.feature]
        if not sign:
            return node.bounds, node.bounds
        near = np.array(node.bounds)
        middle = float(limits.value(split.left, near) + limits.value(split.right, near)) / 2
        lower, upper = (node.bounds[0], middle), (middle, node.bounds[1])
        return (lower, upper) if sign > 0 else (upper, lower)

    def _may_split(self, number: int) -> bool:
        node = self.nodes[number]
        assert node.sums is not None  # noqa: S101 (a child)
        deep = self.max_depth is not None and node.depth >= self.max_depth
        return not deep and bool(node.sums[2] >= 2 * self.search.limits.min_samples_leaf)

    def _best_first(self, tree: int) -> list[int]:
        """Return the nodes of a tree that are split, in the order of best-first growth as far as splits are known."""
        most = len(self.nodes) if self.max_leaf_nodes is None else self.max_leaf_nodes - 1
        heap, order = list[tuple[float, int]](), list[int]()

        def offer(number: int) -> None:
            node = self.nodes[number]
            if node.split is not None and (self.max_depth is None or node.depth < self.max_depth):
                heapq.heappush(heap, (-node.split.gain, number))

        offer(tree)
        while heap and len(order) < most:
            _, number = heapq.heappop(heap)
            order.append(number)
            if self.nodes[number].left >= 0:
                offer(self.nodes[number].left)
                offer(self.nodes[number].left + 1)
        return order

    def _places(self, tree: int) -> dict[int, int]:
        """Return the places of the nodes of a tree in its arrays, by their numbers."""
        places = {tree: 0}
        for number in self._best_first(tree):
            left = self.nodes[number].left
            places |= {left: len(places), left + 1: len(places) + 1}
        return places

    def kept_splits(self, tree: int) -> dict[int, Split]:
        """Return the splits of a complete tree by the places of their nodes in its arrays."""
        places, kept = self._places(tree), self._best_first(tree)
        return {places[number]: split for number in kept if (split := self.nodes[number].split) is not None}

    def arrays(self, bins: Bins, *, size: int, rate: float) -> dict[str, Floats]:
        """Return the trees as arrays ``[trees, size]`` by the names of :data:`FIELDS`.

        Parameters
        ----------
        bins
            Bins of the features.
        size
            Number of nodes for which there is room.
        rate
            Factor of the values.
        """
        arrays = {name: np.zeros((self.trees, size)) for name in FIELDS}
        arrays["feature"][:] = -1
        if bins.known is not None:
            arrays["categories"] = np.zeros((self.trees, size, WORDS))
        for tree in range(self.trees):
            places, splits = self._places(tree), self.kept_splits(tree)
            for number, index in places.items():
                node = self.nodes[number]
                if node.sums is not None:
                    arrays["count"][tree, index] = node.sums[2]
                    if index not in splits:
                        arrays["value"][tree, index] = self._value(node.sums, node.bounds, rate=rate)
                if index in splits:
                    for name, value in splits[index].boosted_entries(bins, child=places[node.left]).items():
                        arrays[name][tree, index] = value
        return arrays

    def _value(self, sums: Ints, bounds: tuple[float, float], *, rate: float) -> float:
        limits = self.search.limits
        if limits.signs is not None:
            return rate * float(limits.value(sums, np.array(bounds)))
        return -rate * float(sums[0] * limits.slope) / float(limits.weight(sums))


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
        histograms = np.empty((count, self.cells, len(values)), np.int64)
        for number, value in enumerate(values):
            own = value[chosen]
            sums = np.bincount(keys, weights=np.repeat(own, lengths), minlength=count * self.cells)
            table = sums.reshape(count, self.cells).astype(np.int64)
            whole = np.bincount(slots, weights=own, minlength=count).astype(np.int64)  # [count]
            if len(self._usual):
                rest = whole[:, None] - np.add.reduceat(table, self.bins.starts, axis=1)  # [count, F]
                table[:, self._usual] += rest
            histograms[..., number] = table
        return histograms


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
        histograms = np.zeros((len(task.counted), self.binned.cells, len(values)), np.int64)
        for tree, nodes in enumerate(self.nodes):
            slots = np.where((nodes >= 0) & (nodes < len(slot)), slot[np.minimum(nodes, len(slot) - 1)], -1)
            if (slots >= 0).any():
                here = slots[slots >= 0]
                low, high = int(here.min()), int(here.max()) + 1
                own = np.where(slots >= 0, slots - low, -1)
                histograms[low:high] += self.binned.histograms(own, high - low, [value[tree] for value in values])
        return histograms
