r"""Counts of values in cells of a fixed grid, from which quantiles follow.

A cell has a relative width of :math:`2^{-7}`: peers count their values first by sign and exponent (512 cells a column),
then by the next seven bits within each exponent in use. Whole numbers up to 256 have cells of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError
from p2pfl.data.data_description import FloatArray
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked

EXPONENTS = 512
"""Cells of the first total, by sign and exponent."""

FINE = 128
"""Cells of the second total within an exponent."""

MAX_EXPONENTS = 2**13
"""Largest number of exponents in use over all columns; the second total has 128 counts for each."""

Values = FloatArray


@dataclass(frozen=True, eq=False)
class Sketch:
    """Cells in use of one column, ascending.

    Parameters
    ----------
    low, high
        Ends of each cell, ``[cells]``; a value is at least ``low`` and below ``high``.
    counts
        Values in each cell, ``[cells]``.
    """

    low: Floats
    high: Floats
    counts: Ints

    def reached(self, rank: int) -> int:
        """Return the cell of the value that has this many values below it or in its cell, from 1."""
        return int(np.searchsorted(np.cumsum(self.counts), rank, side="left"))

    def value(self, rank: int, *, whole: bool) -> float:
        """Return the value of a rank from 1, to within its cell: its middle, or its least whole number."""
        cell = self.reached(rank)
        low, high = float(self.low[cell]), float(self.high[cell])
        if whole:
            return float(np.ceil(low)) + 0.0
        if low <= 0 <= high:
            return 0.0
        return 0.5 * low + 0.5 * high

    def quantile(self, share: float, *, whole: bool) -> float:
        """Return a quantile, between two ranks as numpy does by default, to within the width of a cell."""
        rank = share * (int(self.counts.sum()) - 1)
        below = int(np.floor(rank))
        first = self.value(below + 1, whole=whole)
        rest = rank - below
        return first if not rest else first + rest * (self.value(below + 2, whole=whole) - first)


def sketch(
    values: Callable[[str], list[Values]], *, columns: int, most: int = MAX_EXPONENTS
) -> Asked[tuple[list[Sketch], Ints]]:
    """Ask for the cells in use of each column, and for how many values each lacks, by two totals.

    Parameters
    ----------
    values
        Function that returns the columns of a peer; NaN where a value is missing.
    columns
        K.
    most
        Largest number of exponents in use over all columns.
    """

    def first(peer: str) -> Ints:
        mine = values(peer)
        return np.concatenate([coarse(mine), [np.isnan(column).sum() for column in mine]])

    size = columns * EXPONENTS
    total = yield Question(first, size=size + columns)
    used, missing = live(total[:size], most=most), possible(total[size:])
    total = yield Question(lambda peer: fine(values(peer), used), size=len(used) * FINE)
    return sketches(used, total, columns=columns), missing


def coarse(columns: list[Values]) -> Ints:
    """Return the number of values by column and exponent, ``[K 512]``; missing values are not counted."""
    counts = [np.bincount(ordered(column) >> 23, minlength=EXPONENTS) for column in map(_known, columns)]
    return np.concatenate(counts).astype(np.int64)


def live(total: Ints, *, most: int = MAX_EXPONENTS) -> Ints:
    """Return the exponents in use of a total of :func:`coarse`.

    Raises
    ------
    LearningError
        There are more than ``most``, or a count is impossible.
    """
    slots = np.flatnonzero(possible(total))
    if len(slots) > most:
        raise LearningError(
            f"the values of all columns have {len(slots)} different magnitudes, but a total counts at most {most}; "
            "leave out columns such as identifiers, or use fewer columns at once"
        )
    return slots


def possible(total: Ints) -> Ints:
    """Return a total of counts; no count is negative unless a peer is Byzantine.

    Raises
    ------
    LearningError
        A count is negative.
    """
    if (total < 0).any():
        raise impossible()
    return total


def fine(columns: list[Values], used: Ints) -> Ints:
    """Return the number of values by cell in each exponent in use, ``[L 128]``."""
    slot = np.full(len(columns) * EXPONENTS, -1, np.int64)
    slot[used] = np.arange(len(used))
    cells = np.zeros(len(used) * FINE, np.int64)
    for number, column in enumerate(map(_known, columns)):
        index = ordered(column) >> 16
        slots = slot[number * EXPONENTS + (index >> 7)]
        if (slots < 0).any():  # others have cancelled what this peer counted
            raise impossible()
        cells += np.bincount(slots * FINE + (index & (FINE - 1)), minlength=len(cells))
    return cells


def sketches(used: Ints, total: Ints, *, columns: int) -> list[Sketch]:
    """Return the cells of each column that follow from the totals."""
    counts = possible(total).reshape(len(used), FINE)
    cells = ((used % EXPONENTS)[:, None] * FINE + np.arange(FINE)).ravel()
    by_column = []
    for column in range(columns):
        own = np.repeat(used // EXPONENTS == column, FINE)
        here, there = cells[own], counts.ravel()[own]
        kept = there > 0
        by_column.append(Sketch(number_at(here[kept] << 16), number_at((here[kept] + 1) << 16), there[kept]))
    return by_column


def _known(column: Values) -> Values:
    return np.ascontiguousarray(column[~np.isnan(column)], np.float32)


def ordered(values: Values) -> npt.NDArray[np.uint32]:
    """Return float32 numbers as integers in the same order; the two zeros are one."""
    bits = (values + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))


def number_at(integers: Ints) -> Floats:
    """Return the float32 numbers of integers of :func:`ordered`, as float64."""
    bits = integers.astype(np.uint32)
    floats: Floats = np.where(bits >> 31, bits & np.uint32(2**31 - 1), ~bits).astype(np.uint32).view(np.float32)
    return floats.astype(np.float64)


def impossible() -> LearningError:
    """Return the error of totals that no honest peers add up to."""
    return LearningError(
        "the totals of the values cannot be right, because a peer has added what it does not have; compare with the "
        "other owners which peers take part"
    )


def quantiles(
    values: Callable[[str], tuple[Ints, Floats]], *, groups: int, share: float
) -> Asked[tuple[Ints, Floats, float]]:
    """Find a quantile of the values of each group, between two ranks as numpy does, to within the width of a cell.

    Parameters
    ----------
    values
        Group and value of each sample of a peer; values are counted as float32.
    groups
        G.
    share
        Quantile.

    Yields
    ------
    Question
        Two questions.

    Returns
    -------
    tuple
        Numbers of values ``[G]``, quantiles ``[G]``, 0 without values; and a power of two that no value reaches.
    """

    def by_exponent(peer: str) -> Ints:
        group, value = values(peer)
        places = group * EXPONENTS + (ordered(value.astype(np.float32)) >> 23)
        return np.bincount(places, minlength=groups * EXPONENTS)

    total = possible((yield Question(by_exponent, size=groups * EXPONENTS))).reshape(groups, EXPONENTS)
    counts = total.sum(axis=1)
    rank = share * np.maximum(counts - 1, 0)
    ranks = np.floor(rank).astype(np.int64)[:, None] + np.array([1, 2])
    ranks = np.minimum(ranks, counts[:, None])  # [G, 2]
    reached = np.cumsum(total, axis=1)
    exponents = np.array([np.searchsorted(*pair) for pair in zip(reached, ranks, strict=True)])  # [G, 2]
    exponents = np.minimum(exponents, EXPONENTS - 1)
    keys = np.arange(groups)[:, None] * EXPONENTS + exponents
    used, slots = np.unique(keys, return_inverse=True)

    def by_cell(peer: str) -> Ints:
        group, value = values(peer)
        bits = ordered(value.astype(np.float32)).astype(np.int64) >> 16
        key = group * EXPONENTS + (bits >> 7)
        slot = np.searchsorted(used, key)
        here = used[np.minimum(slot, len(used) - 1)] == key
        return np.bincount(slot[here] * FINE + (bits[here] & (FINE - 1)), minlength=len(used) * FINE)

    cells = possible((yield Question(by_cell, size=len(used) * FINE))).reshape(-1, FINE)
    if (cells.sum(axis=1) != total.ravel()[used]).any():
        raise impossible()
    slots = slots.reshape(keys.shape)
    before = np.take_along_axis(reached, exponents, 1) - np.take_along_axis(total, exponents, 1)
    ends = np.zeros(keys.shape)
    for where in zip(*np.nonzero(ranks > 0), strict=True):
        cell = int(np.searchsorted(np.cumsum(cells[slots[where]]), ranks[where] - before[where]))
        ends[where] = _middle(int(exponents[where]) * FINE + cell)
    rest = rank - np.floor(rank)
    quantile: Floats = ends[:, 0] + rest * (ends[:, 1] - ends[:, 0])
    return counts, quantile, _unit(np.flatnonzero(total.any(axis=0)))


def _middle(cell: int) -> float:
    """Return the middle of a cell; 0 for that of zero."""
    low, high = number_at(np.array([cell << 16, (cell + 1) << 16])).tolist()
    return 0.0 if low <= 0 <= high else float(np.float32(0.5 * low + 0.5 * high))


def _unit(exponents: Ints) -> float:
    """Return the least power of two above the magnitudes of all values; 1 if all are zero."""
    if not len(exponents):
        return 1.0
    ends = number_at(np.concatenate([exponents, exponents + 1]) << 23)
    largest = float(np.abs(ends[np.isfinite(ends)]).max(initial=0.0))
    return largest if largest > 2.0**-100 else 1.0
