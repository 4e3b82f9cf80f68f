r"""Keyed draws of trees: samples and features of a tree, and weights of samples in forests.

All of them are public, so they give no privacy. Whether and how often a sample is drawn follows from the seed, the
number of the tree and its values alone, so it does not depend on who holds it, and the model of all peers is that of
their pooled data. Samples with equal values are drawn together. Weights of forests are Poisson(1), as in online
bagging.

References
----------
Oza and Russell, Online bagging and boosting, AISTATS 2001; Friedman, Stochastic gradient boosting, Computational
Statistics and Data Analysis 38, 2002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import Bins

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
    >>> drawn = weights(part, seed=0, tree=3)
    >>> round(float(drawn.mean()), 1), round(float((drawn == 0).mean()), 1)
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
    return np.asarray((_mixed(digests(part) ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


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
    return np.asarray(draw(seed, f"cuts {level}", round=tree).random((count, wanted)))


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


@dataclass(frozen=True)
class Sampling:
    """Shares of samples and features that are drawn.

    Parameters
    ----------
    rows
        Share of the samples of a round.
    columns
        Share of the features of a round; totals have these alone.
    seed
        Seed of all draws.

    Examples
    --------
    >>> part = Part(np.arange(4000, dtype=np.float32)[:, None], np.zeros(4000, np.int64))
    >>> round(float(Sampling(rows=0.3, seed=1).samples(part, round=5).mean()), 1)
    0.3
    """

    rows: float = 1.0
    columns: float = 1.0
    seed: int = 0

    def samples(self, part: Part, *, round: int) -> npt.NDArray[np.bool_]:
        """Return which samples are drawn in a round, ``[n]``."""
        if self.rows >= 1:
            return np.ones(len(part), np.bool_)
        return np.asarray(drawn_uniform(part, "subsample", seed=self.seed, number=round) < self.rows)

    def features(self, bins: Bins, *, round: int) -> Ints:
        """Return the features of a round in their order, from those that have more than one bin; at least one."""
        useful = np.flatnonzero(bins.sizes > 1)
        useful = useful if len(useful) else np.zeros(min(1, len(bins.sizes)), np.int64)
        if self.columns >= 1:
            return np.arange(len(bins.sizes))
        order = draw(self.seed, "columns of a tree", round=round).permutation(useful)
        return np.sort(order[: max(1, int(self.columns * len(useful)))])
