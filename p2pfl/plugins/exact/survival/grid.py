"""Cells of time.

The target of a sample is its time; the sign of a censored one is negative, as in XGBoost's ``survival:cox``. Times fall
into cells of a public grid, so totals show how many samples leave in each cell, and how many of them with the event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError


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

    def placed(self, targets: npt.NDArray[Any]) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the cell ``[n]`` in which each sample leaves, and whether with the event."""
        passed = np.abs(targets)
        beyond = passed > self.horizon
        cell = np.where(beyond, self.cells - 1, np.minimum(np.floor(passed / self.width), self.cells - 2))
        return cell.astype(np.int64), ~np.signbit(targets) & ~beyond


def check_times(times: str, *, horizon: float | None, width: float) -> None:
    """Refuse options that make no grid of times.

    Raises
    ------
    ModelError
        They do not fit each other.
    """
    if times not in {"grid", "union"}:
        raise ModelError(
            f'model.options.times is "{times}"; set it to "grid", or to "union" for the times of all samples, which '
            "every peer then learns"
        )
    if times == "union" and width != 1.0:
        raise ModelError('model.options.width has no effect with times = "union"; leave it out')
    if times == "union" and horizon is not None and not horizon > 0:
        raise ModelError(f"model.options.horizon = {horizon:g} leaves no time; set it above 0, or leave it out")
    if times == "grid" and horizon is None:
        raise ModelError(
            'model.options.horizon is missing; set it to the end of the grid of times, or set times = "union", with '
            "which every peer learns the times of all samples"
        )
