"""Trees of a forest that grow together, level by level: a total has histograms of nodes of all trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.growing import OUT, RoutedSamples, Splits
from p2pfl.plugins.exact.trees.node_splits import Split, gained
from p2pfl.plugins.exact.trees.tree_model import FIELDS

MAX_TOTAL = 2**21
"""Integers of a total; a level with more takes several totals."""


@dataclass
class ForestNode:
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
    split: Split | None = None
    left: int = -1
    tries: int = 0
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes that are counted next, and the places of their histograms in one total.

    Parameters
    ----------
    bins
        Bins of the features.
    nodes
        Numbers of the nodes, in the order of their trees.
    features
        Features of each, ``[m, K]``.
    cuts
        The only cut of each of these features, ``[m, K]``, the number of the last bin that goes left; ``None`` for all
        cuts. With it a histogram has the samples on both sides, and those without a value.
    """

    bins: Bins
    nodes: Ints
    features: Ints
    cuts: Ints | None = None

    def blocks(self, width: int) -> Iterator[Level]:
        """Yield parts of the level whose totals are not too large."""
        block = np.cumsum(self.sizes.sum(axis=1) * width) // MAX_TOTAL
        for number in np.unique(block).tolist():
            where = block == number
            cuts = None if self.cuts is None else self.cuts[where]
            yield Level(self.bins, self.nodes[where], self.features[where], cuts)

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
    r"""Search for the best split of each node among its features.

    A split is best where

    .. math:: \frac{\lVert S_L \rVert^2}{n_L} + \frac{\lVert S_R \rVert^2}{n_R}

    is largest, with S the numbers of samples by class, or the sum of the targets, and n the number of samples. So it
    lowers the Gini impurity, or the squared error, most.

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

    def best(self, flat: Ints, level: Level) -> tuple[list[Split | None], Ints]:
        """Return the best split of each node, ``None`` where none gains anything, and the sums of the nodes ``[m, V]``.

        Parameters
        ----------
        flat
            Sums by bin of the histograms, ``[cells, V]``.
        level
            Places of the histograms.
        """
        bins, chosen = level.bins, level.features
        counts, missing = level.counts[..., None], bins.missing[chosen][..., None]  # [m, K, 1]
        cut = np.arange(int(counts.max(initial=0)) + 1)  # [B]
        ended = np.concatenate([flat, np.zeros((1, flat.shape[1]), np.int64)])  # the last one is empty
        start = level.offsets[..., None]
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
        for node, index in enumerate(gains.argmax(axis=1).tolist()):
            if np.isneginf(gains[node, index]):
                cuts.append(None)
                continue
            at, bin_, way = np.unravel_index(index, left.shape[1:4])
            where = (node, at, bin_, way)
            cuts.append(
                Split(
                    gain=float(gains[node, index]),
                    feature=int(chosen[node, at]),
                    cut=level.bin(node, int(at), int(bin_)),
                    missing_left=bool(way),
                    left=left[where],
                    right=right[where],
                )
            )
        return cuts, whole[:, 0, 0, 0]


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
    nodes: list[ForestNode] = field(init=False)
    open: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [ForestNode(tree, 0) for tree in range(self.trees)]
        self.open = [*range(self.trees)]

    def split(self, level: Level, total: Ints) -> Splits:
        """Continue with the histograms of some nodes ``[cells, V]``; return those that are split."""
        cuts, sums = self.purity.best(total, level)
        splits: Splits = {}
        for number, split, whole in zip(level.nodes.tolist(), cuts, sums, strict=True):
            node = self.nodes[number]
            node.sums, node.split = whole, split
            node.tries += 1
            if split is not None:
                node.left = len(self.nodes)
                splits[number] = split.feature, split.lower(self.bins), node.left
                low, high = self.ends(number, split.feature)
                sides = ((split.left, (low, min(split.cut, high))), (split.right, (min(split.cut + 1, high), high)))
                self.nodes += [
                    ForestNode(node.tree, node.depth + 1, each, ends=node.ends | {split.feature: ends})
                    for each, ends in sides
                ]
        return splits

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
        return np.asarray(low + np.floor(uniform * (high - low)).astype(np.int64))

    def proceed(self, level: Level) -> None:
        """Find the nodes of the next level: children of this one, and nodes that draw features once more."""
        leaves = list[int]()
        for number in level.nodes.tolist():
            node = self.nodes[number]
            leaves += [number] if node.split is None else [node.left, node.left + 1]
        self.open = sorted(
            (number for number in leaves if self._may_split(number)), key=lambda n: (self.nodes[n].tree, n)
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
        arrays = {name: np.zeros((self.trees, size)) for name in FIELDS} | {
            "value": np.zeros((self.trees, size, width))
        }
        arrays["feature"][:] = -1
        places, used = dict.fromkeys(range(self.trees), 0), [1] * self.trees
        for number, node in enumerate(self.nodes):  # a parent comes before its children
            where = (node.tree, places[number])
            assert node.sums is not None  # noqa: S101 (all nodes are counted)
            count = int(self.purity.count(node.sums))
            arrays["count"][where] = count
            if node.split is None:
                whole = node.sums.astype(np.float64) if self.purity.classes else node.sums[:1] * unit
                arrays["value"][where] = whole / max(1, count)
                continue
            left = used[node.tree]
            used[node.tree] += 2
            places |= {node.left: left, node.left + 1: left + 1}
            larger = bool(self.purity.count(node.split.left) > self.purity.count(node.split.right))
            entries = node.split.entries(self.bins, child=left, larger=larger)
            entries["gain"] *= 1.0 if self.purity.classes else unit * unit
            for name, value in entries.items():
                arrays[name][where] = value
        drawn = arrays["count"][:, 0] > 0
        if not drawn.all() and drawn.any():  # a tree without samples predicts what the roots of the others do
            arrays["value"][~drawn, 0] = arrays["value"][drawn, 0].mean(axis=0)
        return arrays


class BaggedSamples(RoutedSamples):
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
        super().__init__(codes, weights > 0)
        self.weights, self.targets, self.classes = weights, targets, classes

    def count(self, growing: GrowingTrees, level: Level) -> Ints:
        """Return sums by node, feature and bin, flattened."""
        offsets, sizes, width = level.offsets, level.sizes, 2 if self.classes is None else self.classes
        sums_of_level = np.zeros(level.size * width, np.int64)
        slot = np.full(1 + int(level.nodes.max(initial=-1)), OUT, np.int64)
        slot[level.nodes] = np.arange(len(level.nodes))
        trees = np.array([growing.nodes[number].tree for number in level.nodes.tolist()])
        for tree in np.unique(trees).tolist():
            nodes = self.nodes[tree]
            known = np.flatnonzero((nodes >= 0) & (nodes < len(slot)))
            slots = slot[nodes[known]]
            chosen, slots = known[slots >= 0], slots[slots >= 0]
            own = np.flatnonzero(trees == tree)  # they follow each other
            low = int(offsets[own[0], 0])
            high = int(offsets[own[-1], -1] + sizes[own[-1], -1])
            weight, target, size = self.weights[tree, chosen], self.targets[chosen], (high - low) * width
            for column in range(level.features.shape[1]):
                codes = self.codes[level.features[slots, column], chosen]
                keys = level.placed(codes, slots, column) - low
                if self.classes is not None:
                    sums = _sums(keys * width + target, weight, size)
                else:
                    sums = _sums(keys * 2, weight * target, size) + _sums(keys * 2 + 1, weight, size)
                sums_of_level[low * width : high * width] += sums
        return sums_of_level


def _sums(keys: Ints, weights: Ints, size: int) -> Ints:
    """Return sums of weights by key, ``[size]``; they stay below 2^53."""
    return np.bincount(keys, weights=weights.astype(np.float64), minlength=size).astype(np.int64)


def binned(part: Part, bins: Bins) -> np.ndarray:
    """Return the bins of samples ``[F, n]``, kept with them."""
    kept: tuple[Bins, np.ndarray] | None = part.kept.get("codes")
    if kept is None or not kept[0].same(bins):
        kept = part.kept["codes"] = bins, bins.codes(part.features)
    return kept[1]
