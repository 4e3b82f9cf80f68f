"""Trees as tensors: :class:`TreeModel`, what models of trees have in common, and torch modules for predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import FeatureImportance
from p2pfl.core.tensors import torch
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.bins import MAX_BINS, Bins
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModel, TensorModule
from p2pfl.plugins.exact.tree_features import TreeFeatures

FIELDS = ("feature", "threshold", "left", "missing", "value", "gain", "count")
"""Numbers of a node: feature (-1 for a leaf), threshold (below it left), number of the left child (the right one
follows it), whether missing values go left, value, gain, and number of samples."""

WORDS, BITS = 8, 32
"""Words of the set of categories that go left, and categories of a word; the name of their field is ``categories``."""


RAREST = 2.0**-30
"""Least probability of a class that no tree has found."""


@dataclass(frozen=True, kw_only=True)
class TreeModel(TensorModel):
    """Model of trees.

    Parameters
    ----------
    features, classes, rounds, seed
        Number of features; of classes, ``None`` for a regression; of rounds; and the seed of all draws.
    fields
        Columns of the table that the features come from; ``None`` if there is none.
    """

    traits: ClassVar[ModelTraits] = ModelTraits(single=True)  # cuts are numbers of single precision

    features: int
    classes: int | None
    rounds: int
    seed: int = 0
    fields: tuple[Field, ...] | None = None

    @property
    @abstractmethod
    def columns(self) -> int:
        """Number of outputs of a sample: margins, shares of classes, or one mean."""

    @cached_property
    def seen(self) -> TreeFeatures:
        """Features that the trees split."""
        return TreeFeatures.of(self.features, self.fields, categorical=None)

    def check_ranges(self, **ranges: tuple[bool, str]) -> None:
        """Refuse options that are not valid, given whether each is and which values are.

        Raises
        ------
        ModelError
            One is not valid.
        """
        for key, (valid, words) in ranges.items():
            if not valid:
                raise ModelError(f"model.options.{key} is {getattr(self, key)!r}; set it to a value {words}")

    def node_shapes(self, trees: int, size: int) -> Shapes:
        """Return the shapes of the tensors of so many trees, each with room for some nodes."""
        sets: Shapes = {} if self.seen.plain else {"categories": (trees, size, WORDS)}
        return dict.fromkeys(FIELDS, (trees, size)) | sets | {"base": (self.columns,), "trees": (1,)}

    def bin_shapes(self, max_bins: int) -> Shapes:
        """Return the shapes of the tensors of bins, and of what else peers agree on before the first tree."""
        features = len(self.seen)
        known: Shapes = {} if self.seen.plain else {"known": (features, MAX_BINS)}
        shapes: Shapes = {"cuts": (features, max_bins - 1), "cut_counts": (features,), "lacking": (features,)}
        return known | shapes | {"samples": (1,), "scale": (1,)}

    def bins(self, tensors: Tensors) -> Bins:
        """Return the bins of a model."""
        known = tensors["known"] > 0 if "known" in tensors else None
        return Bins(tensors["cuts"], tensors["cut_counts"].astype(np.int64), tensors["lacking"] > 0, known)

    def start(self) -> Tensors:
        """Return a model without trees."""
        tensors = dict(super().start())
        tensors["feature"] -= 1.0
        return tensors

    def margins(self, tensors: Tensors, part: Part) -> Floats:
        """Return the base and the values of all trees, added up, ``[n, columns]``."""
        categorical = () if self.seen.plain else self.seen.categorical
        trees = self.grown(tensors)
        return Margins.of(self.seen.seen(part), tensors, columns=self.columns, trees=trees, categorical=categorical)

    def grown(self, tensors: Tensors) -> int:
        """Return the number of trees that a model has."""
        return int(tensors["trees"][0]) * self.columns

    def logits(self, margins: Floats) -> Floats:
        """Return margins of each class; one margin is that of the second of two."""
        return np.concatenate([np.zeros_like(margins), margins], axis=1) if self.columns == 1 else margins

    def importances(self, tensors: Tensors, *, averaged: bool) -> tuple[FeatureImportance, ...]:
        """Return the features that split a node, the most important first; of equals, the first feature.

        Parameters
        ----------
        tensors
            The model.
        averaged
            True for the mean over trees of the share of a feature in the gains of the tree (the mean decrease in
            impurity of a forest); else the importance is its share in the gains of all trees.

        References
        ----------
        Breiman, Friedman, Olshen and Stone, Classification and regression trees, 1984.
        """
        names, trees = self.seen.names, self.grown(tensors)
        count = len(names)
        feature, gain = tensors["feature"][:trees].astype(np.int64), tensors["gain"][:trees]
        split = feature >= 0
        each = np.zeros((trees, count))  # [T, F]
        np.add.at(each, (np.nonzero(split)[0], feature[split]), gain[split])
        weight = np.bincount(feature[split], minlength=count)
        total = each.sum(axis=0)
        if averaged:
            whole = each.sum(axis=1, keepdims=True)
            shares = (each / np.where(whole > 0, whole, 1.0)).sum(axis=0)
        else:
            shares = total
        shares = shares / shares.sum() if shares.any() else shares
        order = np.argsort(-shares, kind="stable")
        return tuple(
            FeatureImportance(names[number], float(shares[number]), float(total[number]), int(weight[number]))
            for number in order.tolist()
            if weight[number]
        )


def bin_tensors(bins: Bins) -> dict[str, Floats]:
    """Return the tensors of bins."""
    known = {} if bins.known is None else {"known": bins.known.astype(np.float64)}
    counts, missing = bins.counts.astype(np.float64), bins.missing.astype(np.float64)
    return {"cuts": bins.cuts, "cut_counts": counts, "lacking": missing, **known}


def with_trees(tensors: Tensors, trees: Mapping[str, Any], where: slice) -> dict[str, Floats]:
    """Return a model with the tensors of some trees at their places."""
    grown = dict(tensors)
    for name, values in trees.items():
        grown[name] = tensors[name].copy()
        grown[name][where] = values
    return grown


def leaves(tree: Mapping[str, Floats], features: np.ndarray, categorical: Sequence[bool] = ()) -> np.ndarray:
    """Return the leaf of each sample, ``[n]``.

    Parameters
    ----------
    tree
        Arrays ``[M]`` of one tree by the names of :data:`p2pfl.plugins.exact.trees.growing.FIELDS`, and ``categories``.
    features
        ``[n, F]`` float32.
    categorical
        By feature whether its values are categories; none are if it is empty.
    """
    feature, left = tree["feature"].astype(np.int64), tree["left"].astype(np.int64)
    threshold, missing = tree["threshold"].astype(np.float32), tree["missing"] > 0
    nodes = np.zeros(len(features), np.int64)  # [n]
    active = np.arange(len(features)) if feature[0] >= 0 else np.empty(0, np.int64)
    for _ in feature:  # a damaged tree may lead a sample in circles
        if not len(active):
            break
        at = nodes[active]
        values = features[active, feature[at]]
        lower = np.where(np.isnan(values), missing[at], values < threshold[at])
        if any(categorical):
            chosen = np.flatnonzero(np.asarray(categorical)[feature[at]])
            lower[chosen] = _members(tree["categories"], at[chosen], values[chosen], missing[at[chosen]])
        at = left[at] + ~lower
        nodes[active] = at
        active = active[feature[at] >= 0]
    return nodes


def _members(categories: Floats, nodes: np.ndarray, values: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Return whether categories go left, ``[n]``; those that are no category follow the missing values."""
    valid = (values >= 0) & (values < WORDS * BITS)  # not NaN
    code = np.where(valid, values, 0).astype(np.int64)
    words = categories[nodes, code // BITS].astype(np.int64)
    return np.asarray(np.where(valid, (words >> (code % BITS)) & 1 > 0, missing))


class Margins:
    """Sums of the values of trees for the samples of a part, kept while trees are added.

    Parameters
    ----------
    part
        Samples.
    columns
        C, columns of the result; the trees belong to them in turn.
    categorical
        By feature whether its values are categories.
    """

    def __init__(self, part: Part, columns: int, categorical: Sequence[bool] = ()) -> None:
        self.features, self.columns, self.categorical = part.features, columns, categorical
        self.base = np.zeros(columns)
        self.trees: dict[str, Floats] = {}
        self.values = np.zeros((len(part), columns))  # [n, C]

    @classmethod
    def of(cls, part: Part, tensors: Tensors, *, columns: int, trees: int, categorical: Sequence[bool] = ()) -> Floats:
        """Return the base plus the values of the first ``trees`` trees, ``[n, C]``, which must not be changed."""
        kept: Margins | None = part.kept.get("margins")
        if kept is None or not kept.continues(tensors, trees):
            kept = cls(part, columns, categorical)
            kept.base = tensors["base"].copy()
            kept.values = kept.values + kept.base
            part.kept["margins"] = kept
        kept.add(tensors, trees)
        return kept.values

    @property
    def count(self) -> int:
        """Number of trees whose values are part of the sums."""
        return len(self.trees.get("feature", ()))

    def continues(self, tensors: Tensors, trees: int) -> bool:
        """Return whether the first trees of a model are those whose values are part of the sums."""
        same = all(np.array_equal(kept, tensors[name][: self.count]) for name, kept in self.trees.items())
        return same and self.count <= trees and np.array_equal(self.base, tensors["base"])

    def add(self, tensors: Tensors, trees: int) -> None:
        """Add the values of the trees that are not yet part of the sums."""
        if trees == self.count:
            return
        values = self.values.copy()
        for number in range(self.count, trees):
            tree = {name: tensors[name][number] for name in (*FIELDS, "categories") if name in tensors}
            outputs = tree["value"][leaves(tree, self.features, self.categorical)]  # [n], or [n, C]
            values[:, slice(None) if outputs.ndim == 2 else number % self.columns] += outputs
        self.values = values
        kept = ("feature", "threshold", "value", "categories")
        self.trees = {name: tensors[name][:trees].copy() for name in kept if name in tensors}


class Forest(TensorModule):
    """Trees that are added up: features in, logits or a predicted number out.

    Parameters
    ----------
    shapes
        Shapes of the tensors of a :class:`TreeModel`.
    classes
        Number of classes; ``None`` for a regression.
    deepest
        Largest depth of a tree.
    seen
        Features that the trees split.
    logarithmic
        True if the trees add up to the logarithm of a number that is predicted.

    Examples
    --------
    >>> shapes = dict.fromkeys(FIELDS, (1, 3)) | {"base": (1,)}
    >>> seen = TreeFeatures.of(2, None, categorical=None)
    >>> Forest(shapes, classes=2, deepest=1, seen=seen)(torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    """

    feature: torch.Tensor
    threshold: torch.Tensor
    left: torch.Tensor
    missing: torch.Tensor
    value: torch.Tensor
    base: torch.Tensor

    def __init__(
        self, shapes: Shapes, *, classes: int | None, deepest: int, seen: TreeFeatures, logarithmic: bool = False
    ) -> None:
        super().__init__(shapes)
        self.columns, self.classes, self.deepest = shapes["base"][0], classes, deepest
        self.seen, self.logarithmic = seen, logarithmic
        self.feature -= 1.0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits ``[n, classes]``, or predicted numbers ``[n, 1]``, for features ``[n, F]``."""
        flat = features.flatten(1).float()  # [n, F]
        nodes = self._leaves(flat)
        values = self.value.gather(1, nodes)  # [T, n]
        added: torch.Tensor = (
            values.reshape(len(values) // self.columns, self.columns, -1).sum(0).T + self.base
        )  # [n, C]
        if self.classes is not None and self.columns == 1:
            return torch.cat([torch.zeros_like(added), added], dim=1)
        return added.exp() if self.logarithmic else added

    def _leaves(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the leaf of each sample in each tree, ``[T, n]``."""
        categorical = None
        if not self.seen.plain:
            flat = self.seen.joined(flat)
            categorical = torch.tensor(self.seen.categorical, device=flat.device)
        trees = len(self.feature)
        nodes = torch.zeros_like(flat[:, 0], dtype=torch.int64).expand(trees, -1)  # [T, n]
        threshold = self.threshold.float()
        for _ in range(self.deepest):
            chosen = self.feature.gather(1, nodes)  # [T, n]
            if not torch.compiler.is_compiling() and bool((chosen < 0).all()):
                break
            values = flat.gather(1, chosen.clamp_min(0).long().T).T  # [T, n]
            missing = self.missing.gather(1, nodes) > 0
            lower = torch.where(values.isnan(), missing, values < threshold.gather(1, nodes))
            if categorical is not None:
                known = categorical[chosen.clamp_min(0).long()]
                lower = torch.where(known, self._members(nodes, values, missing), lower)
            children = self.left.gather(1, nodes).long() + (~lower).long()
            nodes = torch.where(chosen < 0, nodes, children)
        return nodes

    def _members(self, nodes: torch.Tensor, values: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
        """Return whether categories go left, ``[T, n]``; those that are no category follow the missing values."""
        valid = (values >= 0) & (values < WORDS * BITS)
        code = torch.where(valid, values, 0).long()
        words = self.get_buffer("categories").flatten(1).gather(1, nodes * WORDS + code // BITS).long()
        return torch.where(valid, (words >> (code % BITS)) & 1 > 0, missing)


class Mean(Forest):
    """Trees whose predictions are averaged: features in, logarithms of probabilities or a predicted number out.

    Its parameters are those of :class:`Forest`; a leaf has a value for each column.
    """

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logarithms of probabilities ``[n, classes]``, or predicted numbers ``[n, 1]``."""
        nodes = self._leaves(features.flatten(1).float())  # [T, n]
        values = self.value.gather(1, nodes[..., None].expand(-1, -1, self.columns))  # [T, n, C]
        mean = values.sum(0) / self.get_buffer("trees").clamp_min(1.0)
        return mean if self.classes is None else mean.clamp_min(RAREST).log()
