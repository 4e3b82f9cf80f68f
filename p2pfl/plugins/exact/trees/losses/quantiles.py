r""":class:`Quantile`, the pinball loss of boosting, and quantiles of residuals by leaf from exact totals.

Trees follow from the derivatives :math:`g = 1 - q` above the target and :math:`-q` below, with :math:`h = 1`, as in
scikit-learn. A Newton step of these is no quantile, so scikit-learn sets each leaf to the quantile of the residuals of
its samples. A quantile is no sum, but counts are: two totals count the residuals of each leaf in cells of a relative
width of :math:`2^{-7}`, and the value of a leaf is the middle of the cell that has the rank, within :math:`2^{-8}` of
the quantile. So no total shows a residual to more than eight binary digits.

References
----------
Friedman, Greedy function approximation: a gradient boosting machine, Annals of Statistics 29, 2001, section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns
from p2pfl.plugins.exact.sketch import EXPONENTS, FINE, impossible, number_at, ordered, possible
from p2pfl.plugins.exact.trees.losses.smooth import Units

Grouped = Callable[[str], tuple[Ints, Floats]]
"""Function that returns the group and the value of each sample of a peer."""


@dataclass(frozen=True)
class Quantile:
    """Pinball loss, whose least mean is at a quantile.

    Parameters
    ----------
    quantile
        q, above 0 and below 1.
    """

    quantile: float
    columns: ClassVar[int] = 1
    steepest: ClassVar[float] = 1.0
    curved: ClassVar[bool] = False
    valued: ClassVar[bool] = True

    def units(self, scale: float) -> Units:
        """Return 1 for derivatives, and the unit of the targets for losses."""
        return Units(loss=scale)

    def begin(self, own: Owns) -> Asked[tuple[int, float, Floats]]:
        """Start from the quantile of the targets, to within the width of a cell."""

        def values(peer: str) -> tuple[Ints, Floats]:
            targets = own(peer).train.targets
            return np.zeros(len(targets), np.int64), targets.astype(np.float64)

        counts, found, scale = yield from quantiles(values, groups=1, share=self.quantile)
        return int(counts[0]), scale, found

    def derivatives(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> tuple[Floats, Floats | None]:
        """Return 1 - q above the target, and -q at and below it."""
        del scale
        return np.where(targets >= margins[:, 0], -self.quantile, 1 - self.quantile)[None], None

    def values(self, margins: Floats, targets: npt.NDArray[Any], scale: float) -> Floats:
        """Return the pinball loss of each sample."""
        return self.lost(margins[:, 0], targets) / scale

    def lost(self, predictions: Floats, targets: npt.NDArray[Any]) -> Floats:
        """Return q times a residual that is positive, and q - 1 times a negative one."""
        rest = targets - predictions
        found: Floats = np.maximum(self.quantile * rest, (self.quantile - 1) * rest)
        return found


def quantiles(values: Grouped, *, groups: int, share: float) -> Asked[tuple[Ints, Floats, float]]:
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

    def coarse(peer: str) -> Ints:
        group, value = values(peer)
        places = group * EXPONENTS + (ordered(value.astype(np.float32)) >> 23)
        return np.bincount(places, minlength=groups * EXPONENTS)

    total = possible((yield Question(coarse, size=groups * EXPONENTS))).reshape(groups, EXPONENTS)
    counts = total.sum(axis=1)
    place = share * np.maximum(counts - 1, 0)
    ranks = np.floor(place).astype(np.int64)[:, None] + np.array([1, 2])
    ranks = np.minimum(ranks, counts[:, None])  # [G, 2]
    reached = np.cumsum(total, axis=1)
    exponents = np.array([np.searchsorted(*pair) for pair in zip(reached, ranks, strict=True)])  # [G, 2]
    exponents = np.minimum(exponents, EXPONENTS - 1)
    keys = np.arange(groups)[:, None] * EXPONENTS + exponents
    used, slots = np.unique(keys, return_inverse=True)

    def fine(peer: str) -> Ints:
        group, value = values(peer)
        bits = ordered(value.astype(np.float32)).astype(np.int64) >> 16
        key = group * EXPONENTS + (bits >> 7)
        slot = np.searchsorted(used, key)
        here = used[np.minimum(slot, len(used) - 1)] == key
        return np.bincount(slot[here] * FINE + (bits[here] & (FINE - 1)), minlength=len(used) * FINE)

    cells = possible((yield Question(fine, size=len(used) * FINE))).reshape(-1, FINE)
    if (cells.sum(axis=1) != total.ravel()[used]).any():
        raise impossible()
    slots = slots.reshape(keys.shape)
    before = np.take_along_axis(reached, exponents, 1) - np.take_along_axis(total, exponents, 1)
    found = np.zeros(keys.shape)
    for where in zip(*np.nonzero(ranks > 0), strict=True):
        cell = int(np.searchsorted(np.cumsum(cells[slots[where]]), ranks[where] - before[where]))
        found[where] = _middle(int(exponents[where]) * FINE + cell)
    rest = place - np.floor(place)
    values_found: Floats = found[:, 0] + rest * (found[:, 1] - found[:, 0])
    return counts, values_found, _unit(np.flatnonzero(total.any(axis=0)))


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
