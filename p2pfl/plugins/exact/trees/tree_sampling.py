r"""Keyed draws of boosting: samples and features of a tree, and features of a node.

All of them are public. Whether a sample is drawn follows from the seed, the round and its values alone, as in
:mod:`p2pfl.plugins.exact.trees.bagging`, so it does not depend on who holds it, and the model of all peers is that of
their pooled data. Samples with equal values are drawn together. As everybody can repeat the draws, they give no
privacy.

References
----------
Friedman, Stochastic gradient boosting, Computational Statistics and Data Analysis 38, 2002.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Ints
from p2pfl.core.rows import draw
from p2pfl.learning.exact_model import Part
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.trees.bagging import drawn_uniform


@dataclass(frozen=True)
class Sampling:
    """Shares of samples and features that are drawn.

    Parameters
    ----------
    rows
        Share of the samples of a round.
    columns
        Share of the features of a round; totals have these alone.
    node_columns
        Share of them of which a node takes its best split.
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
    node_columns: float = 1.0
    seed: int = 0

    def samples(self, part: Part, *, round: int) -> npt.NDArray[np.bool_]:
        """Return which samples are drawn in a round, ``[n]``."""
        if self.rows >= 1:
            return np.ones(len(part), np.bool_)
        found: npt.NDArray[np.bool_] = drawn_uniform(part, "subsample", seed=self.seed, number=round) < self.rows
        return found

    def features(self, bins: Bins, *, round: int) -> Ints:
        """Return the features of a round in their order, from those that have more than one bin; at least one."""
        useful = np.flatnonzero(bins.sizes > 1)
        useful = useful if len(useful) else np.zeros(min(1, len(bins.sizes)), np.int64)
        if self.columns >= 1:
            return np.arange(len(bins.sizes))
        order = draw(self.seed, "columns of a tree", round=round).permutation(useful)
        return np.sort(order[: max(1, int(self.columns * len(useful)))])

    def candidates(self, features: Ints, *, round: int, node: int) -> Ints:
        """Return those of some features of which a node takes its best split; at least one, if there are any."""
        if self.node_columns >= 1:
            return features
        order = draw(self.seed, f"columns of node {node}", round=round).permutation(features)
        return order[: math.ceil(self.node_columns * len(features))]
