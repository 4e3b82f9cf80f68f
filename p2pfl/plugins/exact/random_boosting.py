""":class:`RandomBoosting`, boosting of trees whose structure is random, for differential privacy of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.learning.exact_model import Outcome, Owns, Part, Round, Tensors
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.bins import MAX_BINS, even_cuts
from p2pfl.plugins.exact.tensor_model import Shapes, scalars
from p2pfl.plugins.exact.tree_features import FROM_DTYPE, TreeFeatures
from p2pfl.plugins.exact.trees.losses import Loss, Several, Two
from p2pfl.plugins.exact.trees.tree_model import BITS, WORDS, Forest, TreeModel, with_trees
from p2pfl.plugins.exact.trees.tree_model import leaves as leaves_of

CURVATURE = 0.5
"""Factor of second derivatives in a total: they need less precision, so the noise beside them may be larger."""

STEEPEST = 2.0
"""Bound of the value of a leaf in units of the learning rate."""

SPARE = 64
"""Numbers of a total to which no peer adds anything, so that they show how large the noise is."""

NOISY = 2.0
"""Deviations of the noise of a first derivative that are added to the sum of second ones."""

MAX_DEPTH = 10
"""Largest depth, at which a tree has 1,024 leaves."""


@dataclass(frozen=True, kw_only=True)
class RandomBoosting(TreeModel):
    r"""Gradient boosting of trees whose splits are drawn by a key, before any data are seen.

    Each level of a tree has one feature and one cut, so a sample belongs to one leaf, and a round is one total of
    first and second derivatives by leaf. A sample changes it by a norm of at most :attr:`change`, whatever the number
    of features, which is why private noise costs little accuracy here. Nothing else is taken from the data: bins follow
    from public bounds, and the prediction without trees is 0.

    Parameters
    ----------
    features, classes, rounds, seed
        Number of features, of classes and of trees for each output; and the seed of all draws.
    bounds
        By name of a feature that is a number its public bounds ``[low, high]`` or ``[low, high, "log"]``; values beyond
        them count as these.
    learning_rate
        Factor of the values of the leaves.
    max_depth
        Depth of the trees.
    max_bins
        Number of bins of a feature.
    l2_regularization
        Added to the sum of second derivatives, together with twice the deviation of the noise, which totals show.
    clip
        Bound of the first derivative of a sample, as a share of the largest one possible. A sample changes a total
        less, and so does noise; samples that the model gets very wrong count less.
    categorical_features
        Columns whose values are categories, as in :class:`p2pfl.plugins.exact.boosting.Boosting`; by default all
        columns of levels. A split sends one random level left, or a random half of the categories where a column of
        numbers has no list of levels.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> model = RandomBoosting(features=1, classes=2, rounds=5, bounds={"x0": [0.0, 1.0]})
    >>> round(model.change, 3)
    0.711

    References
    ----------
    S. Maddock, G. Cormode, T. Wang, C. Maple, S. Jha, "Federated boosted decision trees with differential privacy",
    CCS 2022.
    """

    name: ClassVar[str] = "random_boosting"
    shows: ClassVar[str] = (
        "for each leaf of each tree, whose splits do not depend on data, a sum from which the number of samples and "
        "their classes follow"
    )
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, single=True)

    bounds: dict[str, list[float | str]]
    learning_rate: float = 0.25
    max_depth: int = 5
    max_bins: int = 32
    l2_regularization: float = 150.0
    clip: float = 0.7
    categorical_features: list[str | int] | str | None = FROM_DTYPE

    def __post_init__(self) -> None:
        if self.classes is None:
            raise ModelError(
                "random_boosting predicts classes, because the range of a number is private; take boosting, or declare "
                "classes of the target"
            )
        self.check_ranges(
            learning_rate=(self.learning_rate > 0, "above 0"),
            max_depth=(1 <= self.max_depth <= MAX_DEPTH, f"from 1 to {MAX_DEPTH}"),
            max_bins=(2 <= self.max_bins <= MAX_BINS, f"from 2 to {MAX_BINS}"),
            l2_regularization=(self.l2_regularization > 0, "above 0"),
            clip=(0 < self.clip <= 1, "above 0, at most 1"),
        )
        _ = self._cuts  # checks the bounds

    @cached_property
    def seen(self) -> TreeFeatures:
        """Features that the trees split."""
        return TreeFeatures.of(self.features, self.fields, categorical=self.categorical_features)

    @property
    def objective(self) -> Loss:
        """Loss that the trees minimise."""
        return Two() if self.classes == 2 else Several(self.classes or 2)

    @property
    def columns(self) -> int:
        """Number of margins of a sample, and of trees of a round."""
        return self.objective.columns

    @property
    def steepest(self) -> float:
        r"""Norm to which the first derivatives of a sample are clipped; unclipped it is up to 1, or :math:`\sqrt 2`."""
        return self.clip * (1.0 if self.columns == 1 else math.sqrt(2))

    @property
    def change(self) -> float:
        r"""L2 norm by which one sample can change a total, in units of a first derivative.

        First derivatives are clipped to :attr:`steepest`. With two classes :math:`h \le 1/4`; with more
        :math:`\lVert h \rVert^2 \le \frac14 \sum_c p_c (1 - p_c) \le \frac14`. Half a grid point for each number
        covers their rounding.
        """
        curves = 1 / 16 if self.columns == 1 else 1 / 4
        exact = math.sqrt(self.steepest**2 + CURVATURE**2 * curves)
        return exact + sums.rounding(2 * self.columns)

    @cached_property
    def _cuts(self) -> tuple[tuple[float, ...], ...]:
        """Cuts of each feature; none of a category."""
        return even_cuts(self.seen, self.bounds, max_bins=self.max_bins)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        return self.node_shapes(self.rounds * self.columns, 2 ** (self.max_depth + 1) - 1)

    def module(self) -> Forest:
        """Return the torch module for predictions, whose tensors are those of the model."""
        return Forest(self.shapes, classes=self.classes, deepest=self.max_depth, seen=self.seen)

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Add a tree for each margin, all of the same structure."""
        done = int(tensors["trees"][0])
        if done >= self.rounds:
            return Outcome(tensors, over=True)
        own, structure = self.seen.owned(own), self._structure(done)
        leaves = 2**self.max_depth

        def answer(peer: str) -> Floats:
            part = own(peer).train
            first = leaves_of(structure, part.features, self.seen.categorical) - (leaves - 1)  # [n]
            slopes, curves = self.objective.derivatives(self.margins(tensors, part), part.targets, 1.0)
            assert curves is not None  # noqa: S101 (log losses curve)
            slopes = slopes * (self.steepest / np.maximum(np.sqrt((slopes * slopes).sum(axis=0)), self.steepest))
            grid = 2.0**sums.NOISY_FRACTION
            values = np.concatenate([np.rint(slopes * grid), np.rint(curves * (CURVATURE * grid))])  # [2 C, n]
            return np.concatenate([np.bincount(first, weights=each, minlength=leaves) for each in values])

        size = 2 * self.columns * leaves
        total, noise = yield from sums.noisy_total(answer, size=size, change=self.change, spare=SPARE)
        slopes, curves = total.reshape(2, self.columns, leaves)
        weight = np.maximum(curves / CURVATURE, 0.0) + self.l2_regularization + NOISY * noise
        values = np.clip(-slopes / weight, -STEEPEST, STEEPEST) * self.learning_rate  # [C, leaves]
        where = slice(done * self.columns, (done + 1) * self.columns)
        model = with_trees(tensors, {**structure, "value": np.pad(values, ((0, 0), (leaves - 1, 0)))}, where)
        return Outcome(model | scalars(trees=done + 1), over=done + 1 == self.rounds)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return logits ``[n, C]``."""
        return self.logits(self.margins(tensors, part))

    def _structure(self, round: int) -> dict[str, Floats]:
        """Return the splits of the trees of a round: one feature and one cut for each level."""
        rng = draw(self.seed, "random splits", round=round)
        size = 2 ** (self.max_depth + 1) - 1
        names = ("feature", "threshold", "left", "missing")
        fields = {name: np.zeros(size) for name in names}
        fields["feature"] -= 1.0
        if not self.seen.plain:
            fields["categories"] = np.zeros((size, WORDS))
        for level in range(self.max_depth):
            nodes = np.arange(2**level - 1, 2 ** (level + 1) - 1)
            feature = int(rng.integers(len(self.seen)))
            fields["feature"][nodes], fields["left"][nodes] = feature, 2 * nodes + 1
            fields["missing"][nodes] = rng.integers(2)
            if self.seen.categorical[feature]:
                fields["categories"][nodes] = self._members(rng, feature)
            else:
                fields["threshold"][nodes] = np.float32(rng.choice(self._cuts[feature]))
        return fields

    def _members(self, rng: np.random.Generator, feature: int) -> Floats:
        """Return the categories that go left, as words of bits: one level of a column, or a half of all numbers."""
        first, end = self.seen.places[feature]
        if end - first > 1:
            members = (np.arange(WORDS * BITS) == rng.integers(end - first)).reshape(WORDS, BITS)
        else:
            members = rng.integers(0, 2, (WORDS, BITS)) > 0
        return np.asarray(members @ 2.0 ** np.arange(BITS))
