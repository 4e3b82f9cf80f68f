""":class:`TreeBlock`, the part of boosted trees that one party keeps: splits of its columns, or the trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.explanations import Explained, FeatureImportance
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.tensor_model import Shapes, StatisticModule
from p2pfl.plugins.exact.trees.tree_model import WORDS
from p2pfl.plugins.vertical.block import LearnsTogether
from p2pfl.plugins.vertical.label_trees import AlignedBoosting
from p2pfl.plugins.vertical.tree_columns import SPLIT_FIELDS, sides, tree_values

NAME = "vertical_trees"
"""Name of the model in a file."""

JOINT = "joint_"
"""Prefix of the tensors of the trees of all parties."""

COUNTS = ("samples", "held_out", "splits")
"""Numbers that every party has: training rows, test rows, and splits of all parties without labels."""

UNUSED = -1.0
"""Place of a split that is not used."""


@dataclass(frozen=True, kw_only=True)
class TreeBlock(LearnsTogether, AlignedBoosting):
    """Part of boosted trees that one party keeps.

    The label holder has the trees, in which the features after its own are splits of other parties, and the trees of
    its own columns alone. Another party has its splits, and their numbers among those of all.

    Parameters
    ----------
    label
        True for the label holder.
    parties
        Names of all parties, at the label holder.
    may_lack
        True if the party could lack rows, whose values were then missing.
    trees
        Trees of a round, one for each of more than two classes.

    Examples
    --------
    >>> block = TreeBlock(features=2, classes=None, rounds=3, max_depth=2, max_leaf_nodes=None)
    >>> block.shapes["split_threshold"]
    (9,)
    """

    name: ClassVar[str] = NAME
    shows: ClassVar[str] = "nothing by itself"

    label: bool = False
    parties: tuple[str, ...] = ()
    may_lack: bool = False
    trees: int = 1

    @property
    def predicts_alone(self) -> bool:
        """True for the label holder, whose file has its own trees alone."""
        return self.label

    @property
    def whole(self) -> AlignedBoosting:
        """The model of the same columns in one place."""
        return AlignedBoosting(**{each.name: getattr(self, each.name) for each in fields(AlignedBoosting)})

    @property
    def capacity(self) -> int:
        """Largest number of splits of all parties."""
        return self.rounds * self.trees * (self.leaves - 1)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        counts = Shapes(dict.fromkeys(COUNTS, (1,)))
        if not self.label:
            own: Shapes = {f"split_{name}": (self.capacity,) for name in SPLIT_FIELDS}
            return counts | own | {"split_categories": (self.capacity, WORDS), "place": (self.capacity,)}
        alone = super().shapes
        trees = [name for name in alone if name in self.node_shapes(1, 1) and name != "trees"]
        joint = {f"{JOINT}{name}": alone[name] for name in trees}
        return counts | alone | joint | dict.fromkeys(("owner", "owned"), (self.capacity,))

    def known_to_both(self, tensors: Tensors, peer: str) -> Sequence[Floats]:
        """Return the numbers that all parties have, and of each split of a feature holder its number and its column."""
        counts = [tensors[name] for name in COUNTS]
        if not self.label:
            used = np.flatnonzero(tensors["place"] != UNUSED)
            order = used[np.argsort(tensors["place"][used])]
            return [*counts, tensors["place"][order], tensors["split_feature"][order]]
        splits = slice(int(tensors["splits"][0]))
        places = np.flatnonzero(tensors["owner"][splits] == self.parties.index(peer))
        return [*counts, places.astype(np.float64), tensors["owned"][places]]

    def module(self) -> torch.nn.Module:
        """Return the module of the label holder's own trees; splits of another party predict nothing."""
        return super().module() if self.label else StatisticModule(self.shapes, subject="the part of one party")

    def predictor_of(self, tensors: Tensors, features: Floats) -> Floats:
        """Return what a party adds to predictions, ``[n, S]``: 1 for each of its splits where a row goes right.

        The label holder adds nothing.
        """
        added = np.zeros((len(features), int(tensors["splits"][0])))
        if self.label:
            return added
        used = np.flatnonzero(tensors["place"] != UNUSED)
        splits = {name: tensors[f"split_{name}"][used] for name in SPLIT_FIELDS}
        left = sides(splits, self._seen(features), self.seen.categorical)
        added[:, tensors["place"][used].astype(np.int64)] = ~left.T
        return added

    def absent_predictor(self, tensors: Tensors) -> Floats:
        """Return what a party adds for a person whom it lacks, as if all values were missing, ``[S]``."""
        return np.asarray(self.predictor_of(tensors, np.full((1, self.features), np.nan))[0])

    def outputs_together(self, tensors: Tensors, features: Floats, foreign: Floats) -> Floats:
        """Return the outputs of the trees of all columns, ``[n, C]``.

        Parameters
        ----------
        tensors, features
            Part of the label holder, and its features ``[n, F]``.
        foreign
            Sum of what the others add, ``[n, S]``.
        """
        left, own = (foreign < 0.5).T, self._seen(features)
        base, trees = tensors[f"{JOINT}base"], joint_trees(tensors)
        margins = np.zeros((len(features), self.columns)) + base
        for number in range(self.rounds * self.columns):
            tree = {name: each[number] for name, each in trees.items()}
            margins[:, number % self.columns] += tree_values(tree, own, self.seen.categorical, left.__getitem__)
        return np.asarray(self.outputs(margins))

    def outputs_alone(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the outputs of the label holder's own trees, ``[n, C]``."""
        return np.asarray(self.predicted(tensors, Part(features.astype(np.float32), np.zeros(len(features)))))

    def _seen(self, features: Floats) -> FloatArray:
        part = Part(features.astype(np.float32), np.zeros(len(features)))
        return self.seen.seen(part).features

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> Explained | None:
        """Return the importances in the trees of all columns, at the label holder, without names of others' columns."""
        del fields, classes
        if not self.label:
            return None
        gains, weights = dict[str, float](), dict[str, int]()
        trees = joint_trees(tensors)
        for feature, gain in zip(trees["feature"].ravel().tolist(), trees["gain"].ravel().tolist(), strict=True):
            if feature < 0:
                continue
            name = self._feature_name(tensors, int(feature))
            gains[name], weights[name] = gains.get(name, 0.0) + gain, weights.get(name, 0) + 1
        whole = sum(gains.values()) or 1.0
        ranked = sorted(gains, key=lambda name: -gains[name])
        return Explained(
            tuple(FeatureImportance(each, gains[each] / whole, gains[each], weights[each]) for each in ranked)
        )

    def _feature_name(self, tensors: Tensors, feature: int) -> str:
        """Return the name of an own feature, or the owner of another one with its number."""
        if feature < len(self.seen):
            return self.seen.names[feature]
        split = feature - len(self.seen)
        return f"column {int(tensors['owned'][split]) + 1} of {self.parties[int(tensors['owner'][split])]}"


def joint_trees(tensors: Tensors) -> dict[str, Floats]:
    """Return the arrays of the trees of all parties, ``[T, M]`` each by name."""
    prefixed = {name: each for name, each in tensors.items() if name.startswith(JOINT)}
    return {name.removeprefix(JOINT): each for name, each in prefixed.items() if each.ndim > 1}
