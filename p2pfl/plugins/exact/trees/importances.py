"""Importances of the features of trees, which follow from the gains of their splits, and so from totals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from p2pfl.core.explanations import FeatureImportance
from p2pfl.learning.exact_model import Tensors


def importances(tensors: Tensors, names: Sequence[str], *, trees: int, averaged: bool) -> tuple[FeatureImportance, ...]:
    r"""Return the features that split a node, the most important first; of equals, the first feature.

    Parameters
    ----------
    tensors
        ``feature`` and ``gain`` of the nodes, ``[T, M]``.
    names
        Names of the features.
    trees
        Number of trees that have grown.
    averaged
        True for the mean over trees of the share of a feature in the gains of the tree (the mean decrease in impurity
        of a forest); else the importance is its share in the gains of all trees.

    Examples
    --------
    >>> tensors = {"feature": np.array([[1.0, 0.0, -1.0]]), "gain": np.array([[3.0, 1.0, 0.0]])}
    >>> [(each.name, each.importance, each.weight) for each in importances(tensors, "ab", trees=1, averaged=False)]
    [('b', 0.75, 1), ('a', 0.25, 1)]

    References
    ----------
    Breiman, Friedman, Olshen and Stone, Classification and regression trees, 1984.
    """
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
