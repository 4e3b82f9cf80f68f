r"""Rows of a design that are nearly alone in a combination of its columns, found before a total shows them.

The total :math:`G = \sum_i w_i x_i x_i^T` shows, for each combination a of the columns, the sum :math:`G a` of the rows
:math:`x_i` times :math:`w_i x_i^T a`. If one person has nearly all of :math:`a^T G a`, this is their row. The largest
share that a row has of any :math:`a^T G a` is its leverage :math:`h_i = w_i x_i^T G^{-1} x_i`, which only its owner may
compute, and which needs G. So owners take a lower bound of G first, to which each adds means of groups of its own rows,
each of them large enough to be shown:

.. math:: L = \sum_g n_g \min_{i \in g} w_i \, \bar x_g \bar x_g^T \preceq G

Each replaces its own part of L by that of G, which is still a lower bound, and so finds an upper bound of each
leverage. All learn L, and whether there is a row beyond the limit at any owner.

References
----------
Hoaglin and Welsch, The hat matrix in regression and ANOVA, The American Statistician 32, 1978; Domingo-Ferrer and
Mateo-Sanz, Practical data-oriented microaggregation for statistical disclosure control, IEEE TKDE 14, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.learning.exact_model import Asked, Own, Part, symmetric
from p2pfl.learning.small_cells import FEWEST_PEERS, AgreedCheck, Bools
from p2pfl.plugins.exact import sums

DOMINANT = 0.1
"""Share of the largest part of a sum that the rest must have."""

MAX_LEVERAGE = 1 / (1 + DOMINANT)
"""Largest share of a person in the sum of squares of a combination of columns."""

SMALLEST = 1e-12
"""Eigenvalue of a scaled sum of products, below which columns are dependent."""


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows of a peer in a weighted sum of products of columns.

    Parameters
    ----------
    columns
        Values of the p columns, ``[n, p]``.
    weights
        Weights in each of B sums, ``[n, B]``.
    people
        How many people each row stands for, ``[n]``.
    """

    columns: Floats
    weights: Floats
    people: Floats

    @classmethod
    def of(cls, columns: Floats, weights: Floats, people: Floats | None = None) -> Self:
        """Return the rows without those that have a value or weight which is no number; models refuse them later."""
        known = np.isfinite(columns).all(axis=1) & np.isfinite(weights).all(axis=1)
        each = np.ones(len(columns)) if people is None else np.maximum(people, 1.0)
        return cls(columns[known], weights[known], each[known])

    def products(self) -> Floats:
        """Return the sums of products, ``[B, p, p]``."""
        products = [(self.columns * each[:, None]).T @ self.columns for each in self.weights.T]
        return np.stack(products)

    def grouped(self, least: int) -> WeightedRows:
        """Return means of groups of ``least`` similar rows or more, whose sums of products are at most those of all."""
        used = np.flatnonzero((self.weights > 0).all(axis=1))
        groups = similar_rows(self.columns[used], least)
        means = [self.columns[used[group]].mean(axis=0) for group in groups]
        weights = [len(group) * self.weights[used[group]].min(axis=0) for group in groups]
        width, number = self.columns.shape[1], self.weights.shape[1]
        sizes = np.array([float(len(group)) for group in groups])
        return WeightedRows(np.reshape(means, (-1, width)), np.reshape(weights, (-1, number)), sizes)

    def encoded(self) -> Ints:
        """Return the upper triangles of the sums of products, as integers of a total."""
        one, two = np.triu_indices(self.columns.shape[1])

        def each(where: slice) -> Floats:
            products = self.columns[where][:, one] * self.columns[where][:, two]
            weighted = self.weights[where][:, :, None] * products[:, None, :]  # [b, B, p (p + 1) / 2]
            return weighted.reshape(len(weighted), -1)

        return sums.summed(len(self.columns), self.weights.shape[1] * len(one), each)

    def leverage(self, products: Floats, number: int) -> Floats:
        """Return the share of a person of each row in a sum of products ``[p, p]`` under some weights, ``[n]``."""
        scale, root = _root(products)
        inner = (self.columns * scale) @ root  # [n, r]
        return np.asarray(self.weights[:, number] / self.people * (inner * inner).sum(axis=1))

    def crowding(self, bounds: Floats) -> Bools:
        """Return the columns whose combinations have nearly all of their square from one row, ``[p]``.

        Parameters
        ----------
        bounds
            Sums of products of at most all rows of all peers and at least these rows, ``[B, p, p]``.
        """
        crowded = np.zeros(self.columns.shape[1], dtype=bool)
        for number, bound in enumerate(bounds):
            scale, root = _root(bound)
            inner = (self.columns * scale) @ root  # [n, r]
            leverage = self.leverage(bound, number)
            high = leverage > MAX_LEVERAGE
            each = self.weights[high, number, None] / self.people[high, None]
            inverse = np.maximum(np.diag(root @ root.T), np.finfo(float).tiny)
            parts = each * (inner[high] @ root.T) ** 2 / inverse  # what leaving out a column takes away
            enough = leverage[high, None] - parts <= MAX_LEVERAGE
            most = parts >= parts.max(axis=1, initial=0.0, keepdims=True) / 2
            crowded |= np.where(enough.any(axis=1, keepdims=True), enough, most).any(axis=0)
        return crowded


def _root(products: Floats) -> tuple[Floats, Floats]:
    """Return scales ``[p]`` of columns, and a root ``[p, r]`` of the inverse of a sum of products of scaled columns."""
    scale = 1 / np.sqrt(np.maximum(np.diag(products), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(products * scale[:, None] * scale)
    kept = values > SMALLEST * len(values)
    return scale, vectors[:, kept] / np.sqrt(values[kept])


def similar_rows(columns: Floats, least: int) -> list[Ints]:
    """Return the numbers of rows in as many groups of ``least`` or more as there are, parted where rows differ most.

    Examples
    --------
    >>> [group.tolist() for group in similar_rows(np.array([[0.0], [9.0], [1.0], [8.0]]), 2)]
    [[0, 2], [3, 1]]
    """
    if len(columns) < least:
        return []
    deviation = columns.std(axis=0)
    scaled = columns / np.where(deviation > 0, deviation, 1.0)

    def parted(rows: Ints) -> list[Ints]:
        number = len(rows) // least
        if number < 2:
            return [rows] * number
        centred = scaled[rows] - scaled[rows].mean(axis=0)
        axis = np.linalg.svd(centred, full_matrices=False)[2][0]
        along = rows[np.argsort(centred @ (axis * np.sign(axis[np.abs(axis).argmax()])), kind="stable")]
        first = len(rows) * (number // 2) // number
        return parted(along[:first]) + parted(along[first:])

    return parted(np.arange(len(columns)))


@dataclass(frozen=True)
class RowSums:
    """Sums of products of columns that totals of a round show.

    Parameters
    ----------
    rows
        Function that returns the rows of a peer; private.
    names
        Names of the p columns.
    number
        B, number of sums.
    """

    rows: Callable[[Own], WeightedRows]
    names: Sequence[str]
    number: int = 1

    @classmethod
    def unweighted(cls, columns: Callable[[Part], Floats], names: Sequence[str]) -> Self:
        """Return the sum over columns and a constant, each row of which has the same weight."""

        def rows(own: Own) -> WeightedRows:
            constant = np.ones((len(own.train), 1))
            return WeightedRows.of(np.column_stack([columns(own.train), constant]), constant)

        return cls(rows, [*names, "(intercept)"])

    def check(self, check: AgreedCheck[Own]) -> Asked[None]:
        """Refuse columns if one person could have nearly all of a combination of them.

        Raises
        ------
        DataError
            There is such a combination at a peer; the message names its columns.
        """
        crowding = yield from self.crowding(check)
        if crowding.any():
            raise one_person([name for name, each in zip(self.names, crowding, strict=True) if each])

    def crowding(self, check: AgreedCheck[Own]) -> Asked[Bools]:
        """Ask for the columns of combinations of which one person could have nearly all, ``[p]``.

        With two peers, of which each learns the total of the other, no other rows count.

        Parameters
        ----------
        check
            Check under the least number of all peers, of which a group has as many rows.
        """
        width = len(self.names)
        upper = width * (width + 1) // 2
        lower = np.zeros((self.number, width, width))
        several = len(check.peers) >= FEWEST_PEERS
        if several:
            total = yield from sums.total(
                lambda peer: self.rows(check.own(peer)).grouped(check.least).encoded(), self.number * upper
            )
            lower = np.stack([symmetric(each, size=width) for each in total.reshape(self.number, upper)])

        def crowded(own: Own) -> Bools:
            mine = self.rows(own)
            grouped = mine.grouped(check.least).products() if several else 0.0
            return mine.crowding(lower - grouped + mine.products())

        return (yield from check.any_of(crowded, size=width))


def one_person(names: Sequence[str]) -> DataError:
    """Return the error of columns of which one person may have nearly all of a combination."""
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return DataError(
        f"one person may have more than {MAX_LEVERAGE:.0%} of a combination of {listed} with other columns, so totals "
        "would show their row; leave one of these columns out, make its values coarser, or take more people"
    )
