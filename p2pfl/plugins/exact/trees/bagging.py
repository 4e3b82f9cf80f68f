r"""Keyed draws of forests: weights of samples for each tree, and features for each node.

The weight of a sample in a tree is Poisson(1), as in online bagging, and follows from its values, the seed and the
number of the tree. So it does not depend on who holds the sample, and the forest of all peers is that of their pooled
data. Samples with equal values have equal weights.

References
----------
Oza and Russell, Online bagging and boosting, AISTATS 2001.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.rows import draw
from p2pfl.learning.exact_model import Part

_Words = npt.NDArray[np.uint64]

POISSON = np.cumsum([math.exp(-1.0) / math.factorial(count) for count in range(12)])
"""Probability of a weight up to 0, 1, ...; rarer ones count as 12."""


def digests(part: Part) -> _Words:
    """Return a number for the values of each sample, ``[n]``, kept with the samples."""
    kept: _Words | None = part.kept.get("digests")
    if kept is None:
        targets = np.asarray(part.targets)
        whole = targets.astype(np.float64) if targets.dtype.kind == "f" else targets.astype(np.int64)
        columns = [*(_bits(column) for column in part.features.T), whole.view(np.uint64)]
        kept = np.zeros(len(part), np.uint64)
        for column in columns:
            kept = _mixed(kept ^ column)
        part.kept["digests"] = kept
    return kept


def weights(part: Part, *, seed: int, tree: int) -> Ints:
    """Return the weight of each sample in a tree, ``[n]``.

    Examples
    --------
    >>> part = Part(np.arange(4000, dtype=np.float32)[:, None], np.zeros(4000, np.int64))
    >>> found = weights(part, seed=0, tree=3)
    >>> round(float(found.mean()), 1), round(float((found == 0).mean()), 1)
    (1.0, 0.4)
    """
    return np.searchsorted(POISSON, drawn_uniform(part, "bootstrap", seed=seed, number=tree), side="right")


def drawn_uniform(part: Part, purpose: str, *, seed: int, number: int) -> Floats:
    """Return a number from 0 to 1 for each sample that follows from its values and a key, ``[n]``.

    Parameters
    ----------
    part
        Samples.
    purpose, seed, number
        Key of the draw; the number is that of a tree or a round.
    """
    key = draw(seed, purpose, round=number).integers(2**63, dtype=np.uint64)
    found: Floats = (_mixed(digests(part) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found


def features(count: int, *, among: Ints, wanted: int, seed: int, tree: int, level: int) -> Ints:
    """Return the features of some nodes of a tree, ``[count, wanted]``, each in ascending order.

    Parameters
    ----------
    count
        Number of nodes.
    among
        Features to draw from.
    wanted
        Number of features of a node.
    seed, tree, level
        Key of the draw.
    """
    order: Floats = draw(seed, f"columns {level}", round=tree).random((count, len(among)))
    return among[np.sort(np.argsort(order, axis=1, kind="stable")[:, :wanted], axis=1)]


def shares(count: int, *, wanted: int, seed: int, tree: int, level: int) -> Floats:
    """Return uniform numbers below 1 that choose the cuts of some nodes of a tree, ``[count, wanted]``.

    Parameters
    ----------
    count
        Number of nodes.
    wanted
        Number of features of a node.
    seed, tree, level
        Key of the draw.
    """
    found: Floats = draw(seed, f"cuts {level}", round=tree).random((count, wanted))
    return found


def _bits(values: npt.NDArray[Any]) -> _Words:
    """Return single precision numbers as integers; zeros are one number, and missing values as well."""
    known = np.where(np.isnan(values), np.float32(np.nan), values + np.float32(0))
    return known.astype(np.float32).view(np.uint32).astype(np.uint64)


def _mixed(words: _Words) -> _Words:
    """Return numbers that depend on all bits of others (the finaliser of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
