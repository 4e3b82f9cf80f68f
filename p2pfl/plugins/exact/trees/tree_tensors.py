"""Trees as tensors, and as a torch module for predictions elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from p2pfl.core.encodings import Floats
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.tree_features import TreeFeatures
from p2pfl.plugins.exact.trees.growing import BITS, FIELDS, WORDS


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
    while len(active):
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
    found: np.ndarray = np.where(valid, (words >> (code % BITS)) & 1 > 0, missing)
    return found


RAREST = 2.0**-30
"""Least probability of a class that no tree has found."""


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
            found = tree["value"][leaves(tree, self.features, self.categorical)]  # [n], or [n, C]
            values[:, slice(None) if found.ndim == 2 else number % self.columns] += found
        self.values = values
        kept = ("feature", "threshold", "value", "categories")
        self.trees = {name: tensors[name][:trees].copy() for name in kept if name in tensors}


class Forest(nn.Module):
    """Trees that are added up: features in, logits or a predicted number out.

    Parameters
    ----------
    trees, size
        Number of trees, and of nodes for which each has room.
    columns
        C, margins; the trees belong to them in turn.
    classes
        Number of classes; ``None`` for a regression.
    deepest
        Largest depth of a tree.
    shapes
        Shapes of further tensors of the model, which predictions do not need.
    seen
        Features that the trees split.
    logarithmic
        True if the trees add up to the logarithm of a number that is predicted.

    Examples
    --------
    >>> Forest(trees=1, size=3, columns=1, classes=2, deepest=1)(torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    """

    feature: torch.Tensor
    threshold: torch.Tensor
    left: torch.Tensor
    missing: torch.Tensor
    value: torch.Tensor
    base: torch.Tensor

    def __init__(
        self,
        *,
        trees: int,
        size: int,
        columns: int,
        classes: int | None,
        deepest: int,
        shapes: Mapping[str, Sequence[int]] | None = None,
        seen: TreeFeatures | None = None,
        logarithmic: bool = False,
    ) -> None:
        super().__init__()
        self.logarithmic = logarithmic
        self.columns, self.classes, self.seen = columns, classes, seen
        self.deepest = deepest
        every = (
            dict.fromkeys(FIELDS, (trees, size)) | {"base": (columns,)} | self._widths(trees, size) | dict(shapes or {})
        )
        for name, shape in every.items():
            self.register_buffer(name, torch.zeros(tuple(shape), dtype=torch.float64))
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

    def _widths(self, trees: int, size: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of tensors that differ from those of a number for each node."""
        del trees, size
        return {}

    def _leaves(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the leaf of each sample in each tree, ``[T, n]``."""
        categorical = None
        if self.seen is not None and not self.seen.plain:
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

    Examples
    --------
    >>> Mean(trees=1, size=3, columns=2, classes=2, deepest=1)(torch.zeros(4, 2)).shape
    torch.Size([4, 2])
    """

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logarithms of probabilities ``[n, classes]``, or predicted numbers ``[n, 1]``."""
        nodes = self._leaves(features.flatten(1).float())  # [T, n]
        values = self.value.gather(1, nodes[..., None].expand(-1, -1, self.columns))  # [T, n, C]
        mean = values.sum(0) / self.get_buffer("trees").clamp_min(1.0)
        return mean if self.classes is None else mean.clamp_min(RAREST).log()

    def _widths(self, trees: int, size: int) -> dict[str, tuple[int, ...]]:
        return {"value": (trees, size, self.columns), "trees": (1,)}
