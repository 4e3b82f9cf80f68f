"""Cells of time, and models of times until an event.

The target of a sample is its time; the sign of a censored one is negative, as in XGBoost's ``survival:cox``. Times fall
into cells of a public grid, or of the union of all times, which gives the times away. Totals show how many samples
leave in each cell, and how many of them with the event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Tensors
from p2pfl.plugins.exact.sketch import number_at, ordered, possible
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModel

MAX_TIMES = 4096
"""Largest number of different times."""

TIME_DIGITS = (9, 7, 8, 8)
"""Bits of a time, as an ordered float32, that the totals show one after another."""

MAX_CELLS = 128
"""Largest number of cells of time that are found by cutting."""

RISK_TIMES = 6
"""Number of times after the begin that tables have at most."""

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Steps between round times, up to a power of ten."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cells of time.

    Parameters
    ----------
    width
        Width of a cell.
    horizon
        End of the last cell; whoever is under observation longer is censored there.
    """

    width: float
    horizon: float

    def __post_init__(self) -> None:
        if not (0 < self.width <= self.horizon and self.horizon / self.width <= 2**16):
            raise ModelError(
                f"model.options.width = {self.width:g} and horizon = {self.horizon:g} make no grid of times; set a "
                "width above 0 and a horizon of 1 to 65536 widths"
            )

    @property
    def cells(self) -> int:
        """Number of cells, and one more for whoever is under observation beyond the last."""
        return math.ceil(self.horizon / self.width) + 1

    def begins(self, cells: Ints) -> Floats:
        """Return the begin of each of some cells."""
        return cells.astype(np.float64) * self.width

    def ends(self, cells: Ints) -> Floats:
        """Return the time at which the events of each of some cells count, see :func:`last_times`."""
        begins = self.begins(cells)
        return np.where(cells == self.cells - 2, self.horizon, last_times(begins, begins + self.width))

    def placed(self, targets: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the cell ``[n]`` in which each sample leaves, and whether with the event."""
        passed = np.abs(targets)
        beyond = passed > self.horizon
        cell = np.where(beyond, self.cells - 1, np.minimum(np.floor(passed / self.width), self.cells - 2))
        return cell.astype(np.int64), ~np.signbit(targets) & ~beyond

    def entered(self, times: Floats) -> Ints:
        """Return the cell ``[n]`` in which each sample enters, to be at risk in later ones; -1 from the begin on."""
        cell = np.minimum(np.floor(times / self.width), self.cells - 2)
        return np.where(times > 0, cell, -1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class UnionGrid:
    """Cells of time that begin at given times, such as those of samples.

    Parameters
    ----------
    times
        Times, ascending.
    horizon
        Whoever is under observation longer is censored there.
    points
        True if the samples of a cell leave at the time at which it begins.

    Examples
    --------
    >>> grid = UnionGrid(np.array([1.0, 2.5]), math.inf)
    >>> cell, event = grid.placed(np.array([2.5, -1.0, 0.5]))
    >>> cell.tolist(), event.tolist(), grid.cells
    ([1, 0, 0], [True, False, True], 3)
    """

    times: Floats
    horizon: float
    points: bool = True

    @property
    def cells(self) -> int:
        """Number of cells, and one more for whoever is under observation beyond the horizon."""
        return len(self.times) + 1

    def placed(self, targets: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the cell ``[n]`` in which each sample leaves, and whether with the event."""
        passed = np.abs(targets)
        beyond = passed > self.horizon
        before = np.maximum(np.searchsorted(self.times, passed.astype(np.float32), side="right") - 1, 0)
        return np.where(beyond, self.cells - 1, before).astype(np.int64), ~np.signbit(targets) & ~beyond

    def entered(self, times: Floats) -> Ints:
        """Return the cell ``[n]`` in which each sample enters, to be at risk in later ones; -1 from the begin on."""
        cell = np.searchsorted(self.times, times.astype(np.float32), side="right").astype(np.int64) - 1
        return np.where(times > 0, cell, -1)

    def begins(self, cells: Ints) -> Floats:
        """Return the begin of each of some cells."""
        return self.times[cells]

    def ends(self, cells: Ints) -> Floats:
        """Return the time at which the events of each of some cells count, see :func:`last_times`."""
        begins = self.begins(cells)
        if self.points:
            return begins
        last = last_times(begins, np.append(self.times, self.horizon)[cells + 1])
        return np.where(cells == self.cells - 2, self.horizon, last)


def last_times(begins: Floats, ends: Floats) -> Floats:
    """Return the last time of each of some cells: their last whole number, or the end of a cell narrower than 1.

    So the share without the event is right at these times, where times are whole numbers.

    Examples
    --------
    >>> last_times(np.array([3.0, 60.0, 0.5]), np.array([4.0, 90.0, 0.75])).tolist()
    [3.0, 89.0, 0.75]
    """
    return np.where(ends - begins >= 1, np.maximum(np.ceil(ends) - 1, begins), ends)


def united(targets: Callable[[str], npt.NDArray[Any]], *, horizon: float) -> Asked[dict[str, Floats]]:
    """Return the different times of all samples, under the names of :attr:`TimedModel.time_shapes`.

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
        There are more than :data:`MAX_TIMES`.
    """
    known, rest = np.zeros(1, np.int64), sum(TIME_DIGITS)
    for bits in TIME_DIGITS:
        rest -= bits

        def counts(peer: str, known: Ints = known, bits: int = bits, rest: int = rest) -> Ints:
            passed = np.abs(targets(peer))
            index = ordered(passed[passed <= horizon].astype(np.float32)).astype(np.int64) >> rest
            slot = np.searchsorted(known, index >> bits)
            return np.bincount((slot << bits) + (index & ((1 << bits) - 1)), minlength=len(known) << bits)

        total = yield Question(counts, size=len(known) << bits)
        used = np.flatnonzero(possible(total))
        if len(used) > MAX_TIMES:
            raise LearningError(
                f"the samples have more than {MAX_TIMES:,} different times, too many for their union; leave out "
                "model.options.times, and set horizon and width"
            )
        known = (known[used >> bits] << bits) + (used & ((1 << bits) - 1))
    times = np.zeros(MAX_TIMES)
    times[: len(known)] = number_at(known)
    return {"times": times, "time_count": np.array([float(len(known))])}


@dataclass(frozen=True, kw_only=True)
class TimedModel(TensorModel):
    """Model of times until an event.

    Parameters
    ----------
    features, classes
        Number of features; ``None``, as the target is a time.
    horizon
        End of the grid of times.
    width
        Width of a cell of the grid; times within a cell are tied. ``auto`` for cells that are cut in two as long as
        few samples leave in neither.
    times
        ``grid``, or ``union`` for cells that begin at the times of all samples, which every peer then learns.
    """

    features: int
    classes: int | None
    horizon: float | None = None
    width: float | str = 1.0
    times: str = "grid"

    def __post_init__(self) -> None:
        if self.times not in {"grid", "union"}:
            raise ModelError(
                f'model.options.times is "{self.times}"; set it to "grid", or to "union" for the times of all samples, '
                "which every peer then learns"
            )
        if self.united and self.width != 1.0:
            raise ModelError('model.options.width has no effect with times = "union"; leave it out')
        if self.united and self.horizon is not None and not self.horizon > 0:
            raise ModelError(
                f"model.options.horizon = {self.horizon:g} leaves no time; set it above 0, or leave it out"
            )
        if not self.united and self.horizon is None:
            raise ModelError(
                'model.options.horizon is missing; set it to the end of the grid of times, or set times = "union", '
                "with which every peer learns the times of all samples"
            )
        if not self.listed:
            _ = self.grid({})  # checks the width
        elif self.auto and not (self.horizon or 0.0) > 0:
            raise ModelError(f"model.options.horizon = {self.horizon:g} leaves no time; set it above 0")
        if self.united and self.least > 1:
            raise ModelError(
                'model.options.times = "union" shows every peer the time of each sample, which only least = 1 allows; '
                'set width = "auto" instead'
            )
        if self.classes is not None:
            raise ModelError(f"model.name: {self.name} takes times until an event, not classes; choose another target")

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        return f"the time of every sample, and {cls.shows}" if options.get("times") == "union" else cls.shows

    @property
    def united(self) -> bool:
        """True if cells begin at the times of all samples."""
        return self.times == "union"

    @property
    def auto(self) -> bool:
        """True if cells are cut as long as few samples leave in none."""
        return self.width == "auto"

    @property
    def listed(self) -> bool:
        """True if a tensor has the begins of all cells."""
        return self.united or self.auto

    @property
    def room(self) -> int:
        """Largest number of begins of cells."""
        return MAX_CELLS if self.auto else MAX_TIMES

    @property
    def time_shapes(self) -> Shapes:
        """Tensors of the begins of cells, ascending, and how many there are; none where they follow from options."""
        return {"times": (self.room,), "time_count": (1,)} if self.listed else {}

    @property
    def merges(self) -> bool:
        """True if the check of small cells may merge them."""
        return self.auto or super().merges

    def grid(self, tensors: Tensors) -> Grid | UnionGrid:
        """Return the cells of time."""
        if not self.listed:
            if isinstance(self.width, str):
                raise ModelError(f'model.options.width is "{self.width}"; set it to "auto" or a number above 0')
            return Grid(width=self.width, horizon=self.horizon or 0.0)
        return UnionGrid(tensors["times"][: int(tensors["time_count"][0])], self.last, points=self.united)

    def unite(self, targets: Callable[[str], npt.NDArray[Any]]) -> Asked[dict[str, Floats]]:
        """Ask for the times of all samples if cells begin at them; return the tensors that hold them."""
        return (yield from united(targets, horizon=self.last)) if self.united else {}

    @property
    def last(self) -> float:
        """Time beyond which nobody is observed."""
        return math.inf if self.horizon is None else self.horizon


def round_times(end: float, width: float | None = None) -> list[float]:
    """Return round times from 0 to an end.

    Parameters
    ----------
    end
        Largest time.
    width
        Width of the cells, of which all times are multiples; any times if ``None``.

    Examples
    --------
    >>> round_times(1022.0), round_times(52.0, 7.0)
    ([0.0, 200.0, 400.0, 600.0, 800.0, 1000.0], [0.0, 14.0, 28.0, 42.0])
    """
    if not end > 0:
        return [0.0]
    scale = 10.0 ** math.floor(math.log10(end / RISK_TIMES))
    step = next(scale * each for each in STEPS if scale * each * RISK_TIMES >= end * (1 - 1e-12))
    if width is not None:
        step = width * math.ceil(step / width - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(int(end / step + 1e-9) + 1)]
