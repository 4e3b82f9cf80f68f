"""Base learners of additive models: functions of one column each, with a penalty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats

DEGREE = 3
"""Degree of splines."""


@dataclass(frozen=True)
class BaseLearner:
    """A base learner.

    Parameters
    ----------
    column
        Name of its column.
    kind
        ``spline``, ``linear`` or ``onehot``.
    place
        Number of its first feature.
    size
        Number of its coefficients.
    """

    column: str
    kind: str
    place: int
    size: int

    def basis(self, features: npt.NDArray[np.float32], *, low: float, high: float) -> Floats:
        """Return the values of its functions, ``[n, size]``; values beyond the ends are moved to them.

        Parameters
        ----------
        features
            ``[n, F]``.
        low, high
            Ends of the column; without meaning where its values are levels.
        """
        if self.kind == "onehot":
            return features[:, self.place : self.place + self.size].astype(np.float64)
        values = np.clip(features[:, self.place].astype(np.float64), low, high)
        if self.kind == "linear":
            return np.column_stack([np.ones(len(values)), values])
        return splines(values, low=low, high=high, size=self.size)

    @property
    def penalty(self) -> Floats:
        """Penalty of its coefficients, ``[size, size]``: second differences of splines, squares of levels."""
        if self.kind == "onehot":
            return np.eye(self.size)
        if self.kind == "linear":
            return np.zeros((self.size, self.size))
        differences = np.diff(np.eye(self.size), n=2, axis=0)
        found: Floats = (differences[:, :, None] * differences[:, None, :]).sum(axis=0)  # whole numbers: exact
        return found


def splines(values: Floats, *, low: float, high: float, size: int) -> Floats:
    """Return cubic B-splines with equally spaced knots, ``[n, size]``; the last interval contains its end.

    Examples
    --------
    >>> splines(np.array([0.0, 1.0]), low=0.0, high=1.0, size=4).round(3).tolist()
    [[0.167, 0.667, 0.167, 0.0], [0.0, 0.167, 0.667, 0.167]]

    References
    ----------
    Eilers and Marx, Flexible smoothing with B-splines and penalties, Statistical Science 11, 1996.
    """
    intervals = size - DEGREE
    place = (values - low) / ((high - low) / intervals) if high > low else np.zeros_like(values)
    first = np.clip(np.floor(place), 0, intervals - 1).astype(np.int64)
    rest = place - first
    weights = (
        (1 - rest) ** 3 / 6,
        (3 * rest**3 - 6 * rest**2 + 4) / 6,
        (-3 * rest**3 + 3 * rest**2 + 3 * rest + 1) / 6,
        rest**3 / 6,
    )
    found = np.zeros((len(values), size))
    for offset, weight in enumerate(weights):
        found[np.arange(len(values)), first + offset] = weight
    return found
