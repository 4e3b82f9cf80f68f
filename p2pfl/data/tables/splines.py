r"""Natural cubic splines with given knots, in the basis of R's ``ns``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.core.encodings import Floats

DEGREE = 3


@dataclass(frozen=True, eq=False)
class NaturalSpline:
    r"""Columns of a natural cubic spline.

    With u the position between the ends, from 0 to 1, and :math:`t_k` the knots with the ends, a column is

    .. math:: a + b u + \sum_k c_k (u - t_k)_+^3

    Parameters
    ----------
    ends
        Ends, beyond which the columns are straight lines.
    knots
        :math:`t_k`, ``[K]``.
    coefficients
        a, b and :math:`c_k` of each column, ``[columns, 2 + K]``.
    """

    ends: tuple[float, float]
    knots: Floats
    coefficients: Floats

    @property
    def columns(self) -> int:
        """Number of columns: one more than inner knots."""
        return len(self.coefficients)

    def column(self, number: int, values: torch.Tensor) -> torch.Tensor:
        """Return a column for values ``[n]``."""
        first, slope, *cubes = self.coefficients[number].tolist()
        position = (values - self.ends[0]) / (self.ends[1] - self.ends[0])
        total: torch.Tensor = first + slope * position
        for knot, cube in zip(self.knots.tolist(), cubes, strict=True):
            total = total + cube * (position - knot).clamp(min=0.0) ** 3
        return total


def natural_spline(knots: Sequence[float], ends: tuple[float, float]) -> NaturalSpline:
    """Return the columns of R's ``ns(x, knots = knots, Boundary.knots = ends)``.

    They are B-splines without the first, turned so that two of them have the second derivatives at the ends, which are
    left out.

    Parameters
    ----------
    knots
        Inner knots, ascending between the ends.
    ends
        Boundary knots.

    Examples
    --------
    >>> spline = natural_spline([0.5], (0.0, 1.0))
    >>> spline.columns, round(float(spline.column(1, torch.tensor([1.0], dtype=torch.float64))), 6)
    (2, 0.770602)

    References
    ----------
    Hastie, Generalized additive models, in Chambers and Hastie, Statistical models in S, 1992.
    """
    from scipy.interpolate import BSpline  # noqa: PLC0415 (it takes a third of a second)

    low, width = ends[0], ends[1] - ends[0]
    inner = (np.asarray(knots, np.float64) - low) / width
    every = np.concatenate([[0.0] * (DEGREE + 1), inner, [1.0] * (DEGREE + 1)])
    count = len(every) - DEGREE - 1
    basis = BSpline(every, np.eye(count), DEGREE)
    curvature = basis.derivative(2)(np.array([0.0, 1.0]))[:, 1:]  # [2, count - 1]
    turned, _ = np.linalg.qr(curvature.T, mode="complete")
    chosen = turned[:, 2:].T  # [columns, count - 1]
    all_knots = np.concatenate([[0.0], inner, [1.0]])
    middles = 0.5 * (all_knots[:-1] + all_knots[1:])
    thirds = basis.derivative(3)(middles)[:, 1:]  # [intervals, count - 1]
    jumps = np.diff(np.concatenate([np.zeros((1, count - 1)), thirds, np.zeros((1, count - 1))]), axis=0) / 6
    lines = np.stack([basis(0.0)[1:], basis.derivative(1)(0.0)[1:]])
    return NaturalSpline(ends, all_knots, chosen @ np.concatenate([lines, jumps]).T)
