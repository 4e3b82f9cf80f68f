"""Growth of trees level by level, a public function of totals.

One total brings the histograms of a level. Of two siblings only the smaller is counted; the other one is the difference
from their parent, exactly. With ``max_leaf_nodes`` a tree grows best first, as in scikit-learn, and still takes one
total a level: a node is split early if it could be among the best, whatever its unknown descendants gain, and the tree
keeps those splits that best-first growth makes.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from p2pfl.encodings import Floats, Ints
from p2pfl.exact.bins import Bins
from p2pfl.exact.trees.splits import Search, Split

FIELDS = ("feature", "threshold", "left", "missing", "value", "gain", "count")
"""Numbers of a node: feature (-1 for a leaf), threshold (below it left), number of the left child (the right one
follows it), whether missing values go left, value, gain, and number of samples."""


@dataclass(frozen=True)
class Task:
    """Next work of the peers: move samples to the children of split nodes, and count some nodes.

    Parameters
    ----------
    splits
        By number of a node its feature, cut, whether missing values go left, and the number of its left child.
    counted
        Numbers of the nodes to count.
    """

    splits: dict[int, tuple[int, int, bool, int]]
    counted: tuple[int, ...]


@dataclass
class Node:
    """Node of a tree that grows.

    Parameters
    ----------
    tree, depth
        Tree, and distance from its root.
    sums
        First and second derivatives and samples, ``[3]``.
    """

    tree: int
    depth: int
    sums: Ints | None = None
    histogram: Ints | None = None
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
    nodes: list[Node] = field(init=False)
    _siblings: list[tuple[int, int, int]] = field(default_factory=list, init=False)  # parent, counted child, other
    _task: Task | None = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [Node(tree, 0) for tree in range(self.trees)]
        self._task = Task({}, tuple(range(self.trees)))

    @property
    def task(self) -> Task | None:
        """Next work of the peers; ``None`` if the trees are complete."""
        return self._task

    def tell(self, histograms: Ints) -> None:
        """Continue with the histograms ``[m, cells, 3]`` of the counted nodes."""
        assert self._task is not None  # noqa: S101 (there was a question)
        counted = self._task.counted
        for number, histogram in zip(counted, histograms, strict=True):
            self.nodes[number].histogram = histogram
        for parent, child, other in self._siblings:
            whole, part = self.nodes[parent].histogram, self.nodes[child].histogram
            assert whole is not None and part is not None  # noqa: S101, PT018 (counted before)
            self.nodes[other].histogram = whole - part
            self.nodes[parent].histogram = None
        new = [*counted, *(other for _, _, other in self._siblings)]
        found = np.stack([self.nodes[number].histogram for number in new])  # type: ignore[misc]
        for number, split in zip(new, self.search.best(found), strict=True):
            node = self.nodes[number]
            node.split = split
            if node.sums is None:  # a root
                node.sums = self.search.whole(found[new.index(number)])
            if split is None:
                node.histogram = None
        self._expand()

    def _expand(self) -> None:
        """Split the nodes that may be among the best, and find what is to be counted of their children."""
        splits: dict[int, tuple[int, int, bool, int]] = {}
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
                self.nodes += [Node(tree, node.depth + 1, sums) for sums in (split.left, split.right)]
                splits[number] = (split.feature, split.cut, split.missing_left, node.left)
                if not any(map(self._may_split, (node.left, node.left + 1))):
                    node.histogram = None
                    continue
                smaller = node.left + int(split.left[2] > split.right[2])
                counted.append(smaller)
                self._siblings.append((number, smaller, 2 * node.left + 1 - smaller))
        self._task = Task(splits, tuple(counted)) if counted else None

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
        found = {name: np.zeros((self.trees, size)) for name in FIELDS}
        found["feature"][:] = -1
        for tree in range(self.trees):
            places, used = {tree: 0}, 1
            for number in self._best_first(tree):
                left = self.nodes[number].left
                places |= {left: used, left + 1: used + 1}
                self._describe(found, self.nodes[number], (tree, places[number]), left=used, bins=bins)
                used += 2
            split = {*self._best_first(tree)}
            for number, place in places.items():
                node = self.nodes[number]
                if node.sums is not None:
                    found["count"][tree, place] = node.sums[2]
                    if number not in split:
                        slope = float(node.sums[0] * self.search.limits.unit)
                        found["value"][tree, place] = -rate * slope / float(self.search.limits.weight(node.sums))
        return found

    @staticmethod
    def _describe(found: dict[str, Floats], node: Node, where: tuple[int, int], *, left: int, bins: Bins) -> None:
        split = node.split
        assert split is not None  # noqa: S101 (the node is split)
        found["feature"][where] = split.feature
        found["left"][where] = left
        seen = bins.missing[split.feature]  # else they follow the larger child, as in scikit-learn
        found["missing"][where] = split.missing_left if seen else split.left[2] > split.right[2]
        found["gain"][where] = split.gain
        last = split.cut == bins.counts[split.feature]  # all known values go left
        found["threshold"][where] = np.finfo(np.float32).max if last else bins.cuts[split.feature, split.cut]
