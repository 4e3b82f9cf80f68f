"""Trees of a forest that grow together, level by level: a total has histograms of nodes of all trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import MOST, Bins
from p2pfl.plugins.exact.trees.purity import Cut, HistogramCells, Purity

LARGEST = 2**21
"""Integers of a total; a level with more takes several totals."""

OUT = -1
"""Node of a sample that a tree leaves out."""


@dataclass
class Node:
    """Node of a tree that grows; it is the result of a split, or a root.

    Parameters
    ----------
    tree, depth
        Tree, and distance from its root.
    sums
        Sums ``[V]``; ``None`` for a root that is not counted yet.
    ends
        First and last bin that its values can have, by feature; features that no split above it has are left out.
    """

    tree: int
    depth: int
    sums: Ints | None = None
    cut: Cut | None = None
    left: int = -1
    tries: int = 0
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Level:
    """Nodes that are counted next.

    Parameters
    ----------
    nodes
        Their numbers, in the order of their trees.
    features
        Features of each, ``[m, K]``.
    cuts
        The only cut of each of these features, ``[m, K]``; ``None`` for all cuts.
    """

    nodes: Ints
    features: Ints
    cuts: Ints | None = None

    def cells(self, bins: Bins) -> HistogramCells:
        """Return the places of the histograms in a total."""
        return HistogramCells(bins, self.features, self.cuts)

    def blocks(self, bins: Bins, width: int) -> Iterator[Level]:
        """Yield parts of the level whose totals are not too large."""
        sizes = np.cumsum(self.cells(bins).sizes.sum(axis=1) * width)
        block = sizes // LARGEST
        for number in np.unique(block).tolist():
            where = block == number
            yield Level(self.nodes[where], self.features[where], None if self.cuts is None else self.cuts[where])


@dataclass
class GrowingTrees:
    """Trees that grow together.

    Parameters
    ----------
    trees
        Number of trees; their roots are the nodes 0, 1, ...
    bins
        Bins of the features.
    purity
        Search for splits.
    max_depth
        Largest depth.
    tries
        Number of times that a node draws features until one of them gives a split.
    """

    trees: int
    bins: Bins
    purity: Purity
    max_depth: int
    tries: int
    nodes: list[Node] = field(init=False)
    open: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [Node(tree, 0) for tree in range(self.trees)]
        self.open = [*range(self.trees)]

    def split(self, level: Level, total: Ints) -> dict[int, int]:
        """Continue with the histograms of some nodes ``[cells, V]``; return the left child of each that is split."""
        cuts, sums = self.purity.best(total, level.cells(self.bins))
        found = dict[int, int]()
        for number, cut, whole in zip(level.nodes.tolist(), cuts, sums, strict=True):
            node = self.nodes[number]
            node.sums, node.cut = whole, cut
            node.tries += 1
            if cut is not None:
                found[number] = node.left = len(self.nodes)
                low, high = self.ends(number, cut.feature)
                sides = ((cut.left, (low, min(cut.bin, high))), (cut.right, (min(cut.bin + 1, high), high)))
                self.nodes += [
                    Node(node.tree, node.depth + 1, each, ends=node.ends | {cut.feature: ends}) for each, ends in sides
                ]
        return found

    def ends(self, number: int, feature: int) -> tuple[int, int]:
        """Return the first and the last bin that values of a feature can have in a node, by the splits above it."""
        return self.nodes[number].ends.get(feature, (0, int(self.bins.counts[feature])))

    def cuts(self, nodes: Ints, features: Ints, uniform: Floats) -> Ints:
        """Return one cut of each feature of some nodes, ``[m, K]``, uniform between the ends of the node."""
        ends = [
            [self.ends(number, feature) for feature in row]
            for number, row in zip(nodes, features.tolist(), strict=True)
        ]
        low, high = np.moveaxis(np.array(ends), -1, 0)  # [m, K]
        found: Ints = low + np.floor(uniform * (high - low)).astype(np.int64)
        return found

    def proceed(self, level: Level) -> None:
        """Find the nodes of the next level: children of this one, and nodes that draw features once more."""
        found = list[int]()
        for number in level.nodes.tolist():
            node = self.nodes[number]
            found += [number] if node.cut is None else [node.left, node.left + 1]
        self.open = sorted(
            (number for number in found if self._may_split(number)), key=lambda n: (self.nodes[n].tree, n)
        )

    def _may_split(self, number: int) -> bool:
        node = self.nodes[number]
        assert node.sums is not None  # noqa: S101 (it was counted, or its parent)
        count = int(self.purity.count(node.sums))
        pure = self.purity.classes and int(node.sums.max()) == count
        enough = count >= max(2, 2 * self.purity.min_samples_leaf)
        return enough and not pure and node.depth < self.max_depth and node.tries < self.tries

    def arrays(self, *, size: int, width: int, unit: float) -> dict[str, Floats]:
        """Return the trees as arrays ``[trees, size]``, their values ``[trees, size, width]``.

        Parameters
        ----------
        size
            Number of nodes for which there is room.
        width
            Number of values of a leaf: shares of classes, or one mean.
        unit
            Sums of targets are integers in this unit.
        """
        names = ("feature", "threshold", "left", "missing", "gain", "count")
        found = {name: np.zeros((self.trees, size)) for name in names} | {"value": np.zeros((self.trees, size, width))}
        found["feature"][:] = -1
        places, used = dict.fromkeys(range(self.trees), 0), [1] * self.trees
        for number, node in enumerate(self.nodes):  # a parent comes before its children
            where = (node.tree, places[number])
            assert node.sums is not None  # noqa: S101 (all nodes are counted)
            count = int(self.purity.count(node.sums))
            found["count"][where] = count
            if node.cut is None:
                whole = node.sums.astype(np.float64) if self.purity.classes else node.sums[:1] * unit
                found["value"][where] = whole / max(1, count)
                continue
            left = used[node.tree]
            used[node.tree] += 2
            places |= {node.left: left, node.left + 1: left + 1}
            self._describe(found, node.cut, where, left, 1.0 if self.purity.classes else unit * unit)
        drawn = found["count"][:, 0] > 0
        if not drawn.all() and drawn.any():  # a tree without samples predicts what the roots of the others do
            found["value"][~drawn, 0] = found["value"][drawn, 0].mean(axis=0)
        return found

    def _describe(self, found: dict[str, Floats], cut: Cut, where: tuple[int, int], left: int, square: float) -> None:
        seen = bool(self.bins.missing[cut.feature])
        larger = bool(self.purity.count(cut.left) > self.purity.count(cut.right))
        last = cut.bin == self.bins.counts[cut.feature]
        values = {
            "feature": cut.feature,
            "threshold": np.finfo(np.float32).max if last else self.bins.cuts[cut.feature, cut.bin],
            "left": left,
            "missing": cut.missing_left if seen else larger,
            "gain": cut.gain * square,
        }
        for name, value in values.items():
            found[name][where] = value


class Bagged:
    """Samples of a peer: their bins, their weight in each tree, and the node that each has reached.

    Parameters
    ----------
    codes
        Bins of the samples, ``[F, n]``.
    weights
        Weights by tree, ``[trees, n]``; a sample of weight 0 is left out.
    targets
        Classes ``[n]``, or integers that stand for the targets.
    classes
        Number of classes; ``None`` for a regression.
    """

    def __init__(self, codes: np.ndarray, weights: Ints, targets: Ints, classes: int | None) -> None:
        self.codes, self.weights, self.targets, self.classes = codes, weights, targets, classes
        trees = np.arange(len(weights), dtype=np.int32)[:, None]
        self.nodes = np.where(weights > 0, trees, OUT).astype(np.int32)  # [trees, n]

    def count(self, growing: GrowingTrees, level: Level) -> Ints:
        """Return sums by node, feature and bin, flattened."""
        cells = level.cells(growing.bins)
        offsets, width = cells.offsets, 2 if self.classes is None else self.classes
        found = np.zeros(cells.size * width, np.int64)
        slot = _table(level.nodes, np.arange(len(level.nodes)), OUT)
        trees = np.array([growing.nodes[number].tree for number in level.nodes.tolist()])
        for tree in np.unique(trees).tolist():
            nodes = self.nodes[tree]
            known = np.flatnonzero((nodes >= 0) & (nodes < len(slot)))
            slots = slot[nodes[known]]
            chosen, slots = known[slots >= 0], slots[slots >= 0]
            own = np.flatnonzero(trees == tree)  # they follow each other
            low = int(offsets[own[0], 0])
            high = int(offsets[own[-1], -1] + cells.sizes[own[-1], -1])
            weight, target, size = self.weights[tree, chosen], self.targets[chosen], (high - low) * width
            for column in range(level.features.shape[1]):
                codes = self.codes[level.features[slots, column], chosen]
                keys = cells.placed(codes, slots, column) - low
                if self.classes is not None:
                    sums = _sums(keys * width + target, weight, size)
                else:
                    sums = _sums(keys * 2, weight * target, size) + _sums(keys * 2 + 1, weight, size)
                found[low * width : high * width] += sums
        return found

    def move(self, growing: GrowingTrees, splits: dict[int, int]) -> None:
        """Move samples of nodes that were split to their children."""
        if not splits:
            return
        numbers = np.array(sorted(splits))
        cuts = [growing.nodes[number].cut for number in numbers.tolist()]
        lower = np.zeros((len(numbers), MOST + 2), np.bool_)
        for place, cut in enumerate(cuts):
            assert cut is not None  # noqa: S101 (the node is split)
            lower[place, : cut.bin + 1] = True
            lower[place, growing.bins.counts[cut.feature] + 1] = cut.missing_left
        feature = np.array([cut.feature for cut in cuts if cut is not None])
        slot = _table(numbers, np.arange(len(numbers)), OUT)
        left = np.array([splits[number] for number in numbers.tolist()])
        for tree in np.unique([growing.nodes[number].tree for number in numbers.tolist()]).tolist():
            nodes = self.nodes[tree]
            known = np.flatnonzero((nodes >= 0) & (nodes < len(slot)))
            slots = slot[nodes[known]]
            moving, at = known[slots >= 0], slots[slots >= 0]
            nodes[moving] = left[at] + ~lower[at, self.codes[feature[at], moving]]


def _table(keys: Ints, values: Ints, other: int) -> Ints:
    found = np.full(1 + int(keys.max(initial=-1)), other, np.int64)
    found[keys] = values
    return found


def _sums(keys: Ints, weights: Ints, size: int) -> Ints:
    """Return sums of weights by key, ``[size]``; they stay below 2^53."""
    return np.bincount(keys, weights=weights.astype(np.float64), minlength=size).astype(np.int64)


def binned(part: Part, bins: Bins) -> np.ndarray:
    """Return the bins of samples ``[F, n]``, kept with them."""
    kept: tuple[Bins, np.ndarray] | None = part.kept.get("codes")
    if kept is None or not kept[0].same(bins):
        kept = part.kept["codes"] = bins, bins.codes(part.features)
    return kept[1]
