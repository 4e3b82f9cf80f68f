""":class:`RandomForest`, a random forest whose trees follow from exact totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.bins import MAX_BINS, Bins, sketched
from p2pfl.plugins.exact.tensor_model import Shapes, scalars
from p2pfl.plugins.exact.trees.checked_trees import CheckedTreeModel
from p2pfl.plugins.exact.trees.draws import features, shares, weights
from p2pfl.plugins.exact.trees.growing import Splits
from p2pfl.plugins.exact.trees.losses import Numbers, Several, fraction
from p2pfl.plugins.exact.trees.parallel_trees import BaggedSamples, GrowingTrees, Level, Purity, binned
from p2pfl.plugins.exact.trees.tree_model import RAREST, Mean, bin_tensors, with_trees

MAX_DEPTH = 15
"""Largest depth, which bounds the size of a model."""

MAX_WEIGHT = 16.0
"""Bound of the weight of a sample in a tree."""


SHOWN = (
    "how many samples have each value of each feature, to a relative width of 1/128, how many there are of each class "
    "or how large targets are, to a factor of 2, and, for each node that a tree tries to split, how many samples of "
    "each class, or which sum of targets, lie {}"
)
"""Sentence on what totals show, with a place for where the samples of a node are counted."""


@dataclass(frozen=True, kw_only=True)
class RandomForest(CheckedTreeModel):
    r"""Random forest from histograms, with the parameters of scikit-learn's ``RandomForest*``.

    All trees of a round grow together, level by level. A sample has a weight in each tree that is drawn by a key from
    its values, and a node has its own features, drawn by a key. So the forest does not depend on who holds which
    sample. Predictions are means over trees.

    Parameters
    ----------
    features, classes, rounds, seed
        Number of features; of classes, ``None`` for a regression; of rounds, over which the trees are shared out; and
        the seed of all draws.
    n_estimators
        Number of trees.
    max_depth
        Largest depth, 15 at most.
    min_samples_leaf
        Smallest number of samples of a leaf, counted with their weights.
    max_features
        Number of features of a node, as a number, as a share, or ``"sqrt"``; without it the square root for classes and
        all for numbers.
    bootstrap
        True if samples have random weights; else each is in each tree once. Without it true unless ``extra`` is.
    extra
        True for extremely randomised trees: a node has one random cut of each of its features, drawn by a key between
        the cuts of that feature above it, as in scikit-learn's ``ExtraTrees*``.
    max_bins
        Largest number of bins of a feature, besides that of missing values.
    least
        Least number of samples of a level by class, and of a bin of the roots; see
        :class:`p2pfl.plugins.exact.trees.checked_trees.CheckedTreeModel`.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> RandomForest(features=9, classes=2, rounds=1).wanted
    3

    References
    ----------
    Breiman, Random forests, Machine Learning 45, 2001; Geurts, Ernst and Wehenkel, Extremely randomized trees, Machine
    Learning 63, 2006.
    """

    name: ClassVar[str] = "forest"
    shows: ClassVar[str] = SHOWN.format("in each bin of its features")

    n_estimators: int = 100
    max_depth: int = 10
    min_samples_leaf: int = 1
    max_features: int | float | str | None = None
    bootstrap: bool | None = None
    max_bins: int = 64
    extra: bool = False

    def __post_init__(self) -> None:
        wanted = self.max_features
        known = wanted is None or wanted == "sqrt"
        known |= isinstance(wanted, int) and 1 <= wanted <= self.features
        known |= isinstance(wanted, float) and 0 < wanted <= 1
        self.check_ranges(
            n_estimators=(self.n_estimators >= 1, "at least 1"),
            max_depth=(1 <= self.max_depth <= MAX_DEPTH, f"from 1 to {MAX_DEPTH}"),
            min_samples_leaf=(self.min_samples_leaf >= 1, "at least 1"),
            max_features=(known, f'of "sqrt", a number from 1 to {self.features}, or a share up to 1.0'),
            max_bins=(2 <= self.max_bins <= MAX_BINS, f"from 2 to {MAX_BINS}"),
        )

    @classmethod
    def shown(cls, options: Mapping[str, object]) -> str:
        """Return what totals show with some options: a node of extra trees counts samples beside one cut alone."""
        if not options.get("extra"):
            return cls.shows
        return SHOWN.format("on either side of one drawn cut of each of its features, and without a value of them")

    @property
    def wanted(self) -> int:
        """Number of features of a node."""
        wanted = self.max_features or ("sqrt" if self.classes else 1.0)
        if wanted == "sqrt":
            return max(1, math.isqrt(self.features))
        return max(1, int(wanted * self.features)) if isinstance(wanted, float) else int(wanted)

    @property
    def columns(self) -> int:
        """Number of values of a leaf: shares of classes, or one mean."""
        return self.classes or 1

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        size = 2 ** (self.max_depth + 1) - 1
        nodes = self.node_shapes(self.n_estimators, size) | {"value": (self.n_estimators, size, self.columns)}
        return nodes | self.bin_shapes(self.max_bins) | self.level_shapes

    def module(self) -> Mean:
        """Return the torch module for predictions, whose tensors are those of the model."""
        return Mean(self.shapes, classes=self.classes, deepest=self.max_depth, seen=self.seen)

    def grown(self, tensors: Tensors) -> int:
        """Return the number of trees that a model has."""
        return int(tensors["trees"][0])

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Grow the trees of a round."""
        if not tensors["samples"][0]:
            tensors = yield from self.begin(tensors, own)
        done = int(tensors["trees"][0])
        more = min(-(-self.n_estimators // self.rounds), self.n_estimators - done)
        if not more or not tensors["samples"][0]:
            return Outcome(tensors, over=True)
        grown = yield from self._grown(tensors, own, first=done, trees=more)
        model = with_trees(tensors, grown, slice(done, done + more)) | scalars(trees=done + more)
        return Outcome(model, over=done + more == self.n_estimators)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logarithms of probabilities ``[n, C]``, or predicted numbers ``[n, 1]``."""
        mean = self.margins(tensors, part) / max(1, self.grown(tensors))
        return mean if self.classes is None else np.log(np.maximum(mean, RAREST))

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained:
        """Return the importances of the features, the most important first."""
        del fields, classes
        return Explained(self.importances(tensors, averaged=True))

    def begin(self, tensors: Tensors, own: Owns) -> Asked[Tensors]:
        """Agree on bins, on the number of samples and on the unit of the targets."""
        bins = yield from sketched(own, features=self.features, max_bins=self.max_bins, least=self.least)
        loss = Numbers() if self.classes is None else Several(self.classes)
        samples, scale, _ = yield from loss.begin(own)
        return {**tensors, **bin_tensors(bins), **scalars(samples=samples, scale=scale)}

    def _grown(self, tensors: Tensors, own: Owns, *, first: int, trees: int) -> Asked[dict[str, Floats]]:
        """Grow some trees together, and return their tensors."""
        growing = self.growing(tensors, trees=trees)
        width, depth, peers = (2 if self.classes is None else self.classes), 0, dict[str, BaggedSamples]()

        def answer(peer: str, block: Level) -> Ints:
            if peer not in peers:
                peers[peer] = self.bagged(own(peer).train, tensors, first=first, trees=trees)
            return peers[peer].count(growing, block)

        while growing.open:
            level = self.level(growing, first=first, depth=depth)
            splits: Splits = {}
            for block in level.blocks(width):
                total = yield Question(partial(answer, block=block), size=block.size * width)
                splits |= growing.split(block, total.reshape(-1, width))
            for routed in peers.values():
                routed.move(splits)
            growing.proceed(level)
            depth += 1
        return growing.arrays(size=2 ** (self.max_depth + 1) - 1, width=self.columns, unit=self._unit(tensors))

    def growing(self, tensors: Tensors, *, trees: int) -> GrowingTrees:
        """Return some trees that have a root each."""
        bins = self.bins(tensors)
        useful = _useful(bins)
        purity = Purity(self.classes is not None, max(self.min_samples_leaf, self.least))
        return GrowingTrees(trees, bins, purity, self.max_depth, tries=-(-len(useful) // min(self.wanted, len(useful))))

    def _unit(self, tensors: Tensors) -> float:
        """Return the unit in which targets are integers."""
        return float(tensors["scale"][0]) * 2.0 ** -fraction(int(tensors["samples"][0]), bound=MAX_WEIGHT)

    def level(self, growing: GrowingTrees, *, first: int, depth: int) -> Level:
        """Draw the features of all open nodes; ``first`` is the number of the first of the trees."""
        useful = _useful(growing.bins)
        nodes = np.array(growing.open)
        trees = np.array([growing.nodes[number].tree for number in growing.open])
        counts = [
            (first + int(tree), int(count)) for tree, count in zip(*np.unique(trees, return_counts=True), strict=True)
        ]
        key = {"wanted": min(self.wanted, len(useful)), "seed": self.seed, "level": depth}
        drawn = np.concatenate([features(count, among=useful, tree=tree, **key) for tree, count in counts])
        if not self.extra:
            return Level(growing.bins, nodes, drawn)
        uniform = np.concatenate([shares(count, tree=tree, **key) for tree, count in counts])
        return Level(growing.bins, nodes, drawn, growing.cuts(nodes, drawn, uniform))

    def bagged(self, part: Part, tensors: Tensors, *, first: int, trees: int) -> BaggedSamples:
        """Return the samples of a peer with their weights in some trees."""
        bootstrap = not self.extra if self.bootstrap is None else self.bootstrap
        ones = np.ones(len(part), np.int64)
        each = [weights(part, seed=self.seed, tree=first + tree) if bootstrap else ones for tree in range(trees)]
        targets = part.targets if self.classes else np.rint(part.targets / self._unit(tensors)).astype(np.int64)
        return BaggedSamples(binned(part, self.bins(tensors)), np.stack(each), targets, self.classes)


def _useful(bins: Bins) -> Ints:
    """Return the features that can split a node, and at least one."""
    useful = np.flatnonzero(bins.sizes > 1)
    return useful if len(useful) else np.zeros(1, np.int64)
