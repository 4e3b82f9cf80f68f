"""Columns of one peer whose median is far from the values of all others, as a wrong unit makes it.

Each peer compares by itself, from totals that it knows and its own samples; nothing of it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p2pfl.data.data_description import FloatArray
from p2pfl.learning.exact_model import Own
from p2pfl.plugins.exact.sketch import Sketch

FAR_SHARE = 0.05
"""Share of the others' values below or above which a median is far off."""

FEWEST_VALUES = 20
"""Least number of values, of a peer and of all others, that are compared."""

KEY = "far off"
"""Name of the result among those that are kept of the samples of a peer."""


@dataclass(frozen=True)
class FarColumn:
    """Column whose median is far off.

    Parameters
    ----------
    column
        Position of the column.
    median
        Median of the peer's own values.
    low
        True if it lies below nearly all values of the others, false if above.
    """

    column: int
    median: float
    low: bool


def far_columns(values: FloatArray, pooled: Sequence[Sketch]) -> tuple[FarColumn, ...]:
    """Return the columns of a peer whose median lies beyond 95 % of the values of all others.

    The others' values are those of all without the peer's own, cell by cell, so neither its size nor its own values
    weaken the comparison.

    Parameters
    ----------
    values
        Columns of the peer, ``[n, K]``; NaN where a value is missing.
    pooled
        Cells of each column over all peers, K.

    Examples
    --------
    >>> values = np.array([[7.0]] * 30)
    >>> cells = Sketch(np.array([7.0, 200.0]), np.array([8.0, 201.0]), np.array([31, 60]))
    >>> far_columns(values, [cells])
    (FarColumn(column=0, median=7.0, low=True),)
    """
    columns = list[FarColumn]()
    for index, (column, cells) in enumerate(zip(values.T, pooled, strict=True)):
        known = np.sort(column[~np.isnan(column)])
        if len(known) < FEWEST_VALUES or len(cells.counts) == 0:
            continue
        mine = np.maximum(np.searchsorted(cells.low, known.astype(np.float32), side="right") - 1, 0)
        others = cells.counts - np.bincount(mine, minlength=len(cells.counts))
        middle, total = int(mine[len(mine) // 2]), int(others.sum())
        if total < FEWEST_VALUES:
            continue
        not_above, not_below = int(others[: middle + 1].sum()), int(others[middle:].sum())
        if min(not_above, not_below) < FAR_SHARE * total:
            columns.append(FarColumn(index, float(np.median(known)), low=not_above < not_below))
    return tuple(columns)


def sentences(own: Own, *, names: Sequence[str | None], scale: FloatArray, middle: FloatArray) -> tuple[str, ...]:
    """Return a sentence for the owner on each column whose median is far off.

    Parameters
    ----------
    own
        Samples of the peer, with the result of :func:`far_columns`.
    names
        Name of each column; ``None`` for a level.
    scale, middle
        Units of the columns, ``[K]``.
    """
    return tuple(
        f'the median of "{name}" is {far.median * scale[far.column] + middle[far.column]:g} here, '
        f"{'below' if far.low else 'above'} {1 - FAR_SHARE:.0%} of the values of all others; check its unit, "
        "which `factors` in the file beside the table converts"
        for far in own.train.kept.get(KEY, ())
        if (name := names[far.column]) is not None
    )
