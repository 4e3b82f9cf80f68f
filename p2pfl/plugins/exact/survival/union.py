"""The union of the times of all peers as a grid, which gives the times away."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked
from p2pfl.plugins.exact.sketch import number_at, ordered, possible

MOST_TIMES = 4096
"""Largest number of different times."""

DIGITS = (9, 7, 8, 8)
"""Bits of a time, as an ordered float32, that the totals show one after another."""

SHAPES: dict[str, tuple[int, ...]] = {"times": (MOST_TIMES,), "time_count": (1,)}
"""Tensors of a model with such a grid: its times, ascending, and how many there are."""


@dataclass(frozen=True, eq=False)
class Union:
    """Cells of time that begin at the times of samples.

    Parameters
    ----------
    times
        Times, ascending.
    horizon
        Whoever is under observation longer is censored there.

    Examples
    --------
    >>> grid = Union(np.array([1.0, 2.5]), math.inf)
    >>> cell, event = grid.placed(np.array([2.5, -1.0, 0.5]))
    >>> cell.tolist(), event.tolist(), grid.cells
    ([1, 0, 0], [True, False, True], 3)
    """

    times: Floats
    horizon: float

    @property
    def cells(self) -> int:
        """Number of cells, and one more for whoever is under observation beyond the horizon."""
        return len(self.times) + 1

    def placed(self, targets: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the cell ``[n]`` in which each sample leaves, and whether with the event."""
        passed = np.abs(targets)
        beyond = passed > self.horizon
        before = np.maximum(np.searchsorted(self.times, passed, side="right") - 1, 0)
        return np.where(beyond, self.cells - 1, before).astype(np.int64), ~np.signbit(targets) & ~beyond

    def begins(self, cells: Ints) -> Floats:
        """Return the begin of each of some cells."""
        return self.times[cells]


def united(targets: Callable[[str], npt.NDArray[Any]], *, horizon: float) -> Asked[dict[str, Floats]]:
    """Return the different times of all samples, under the names of :data:`SHAPES`.

    Four totals count the samples by ever more digits of their times.

    Parameters
    ----------
    targets
        Function that returns the times of the samples of a peer, negative without the event.
    horizon
        Later times are left out.

    Raises
    ------
    LearningError
        There are more than :data:`MOST_TIMES`.
    """
    known, rest = np.zeros(1, np.int64), sum(DIGITS)
    for bits in DIGITS:
        rest -= bits

        def counts(peer: str, known: Ints = known, bits: int = bits, rest: int = rest) -> Ints:
            passed = np.abs(targets(peer))
            place = ordered(passed[passed <= horizon].astype(np.float32)).astype(np.int64) >> rest
            slot = np.searchsorted(known, place >> bits)
            return np.bincount((slot << bits) + (place & ((1 << bits) - 1)), minlength=len(known) << bits)

        total = yield Question(counts, size=len(known) << bits)
        used = np.flatnonzero(possible(total))
        if len(used) > MOST_TIMES:
            raise LearningError(
                f"the samples have more than {MOST_TIMES:,} different times, too many for their union; leave out "
                "model.options.times, and set horizon and width"
            )
        known = (known[used >> bits] << bits) + (used & ((1 << bits) - 1))
    times = np.zeros(MOST_TIMES)
    times[: len(known)] = number_at(known)
    return {"times": times, "time_count": np.array([float(len(known))])}


def union_of(tensors: Mapping[str, Floats], *, horizon: float | None) -> Union:
    """Return the grid that tensors of a model hold."""
    count = int(tensors["time_count"][0])
    return Union(tensors["times"][:count], math.inf if horizon is None else horizon)
