"""Rows of samples within public bounds, and coefficients in the units of the features."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.exact_model import Asked, Owns, symmetric
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import TARGET, centered, check_named, ends, keeps_missing, located
from p2pfl.plugins.exact.elementary import product, times

BLOCK = 2**22
"""Numbers that are rounded at once."""

Terms = Callable[[Floats, Floats, Floats], Floats]
"""Function of rows ``[n, Q]``, weights and targets that returns what each sample adds, ``[n, K]``."""


@dataclass(frozen=True, eq=False)
class Design:
    """Map from the features of a sample to its row, which no value can make long.

    Parameters
    ----------
    kept
        Numbers of the features that are in a row, ``[Q - 1]``: all but the last level of each column.
    middle, half
        Middle and half the width of the bounds of each feature, ``[F]``; 0 and 1 for a level.
    longest
        Largest norm of the row of a sample that has at most one level of each column.
    center, unit
        Middle and half the width of the bounds of the target; ``unit`` is 1 for classes.
    number
        True if the target is a number.
    """

    kept: Ints
    middle: Floats
    half: Floats
    longest: float
    center: float
    unit: float
    number: bool

    @classmethod
    def of(
        cls, bounds: Mapping[str, Sequence[float]], *, features: int, fields: Sequence[Field] | None, number: bool
    ) -> Self:
        """Return the map for columns with public bounds.

        Parameters
        ----------
        bounds
            ``[low, high]`` of each number by name.
        features
            Number of features.
        fields
            Columns; ``None`` if each feature is a number ``x0``, ``x1`` and so on.
        number
            True if the target is a number.

        Raises
        ------
        ModelError
            Bounds are missing or invalid, or a column keeps missing values.
        """
        columns = located(features, fields)
        numbers = [field.name for field, _ in columns if field.levels is None]
        check_named(bounds, [*numbers, *([TARGET] if number else [])])
        kept, middle, half = list[int](), np.zeros(columns[-1][1].stop), np.ones(columns[-1][1].stop)
        for field, where in columns:
            if keeps_missing(field):
                raise ModelError(
                    f'the column "{field.name}" keeps missing values, which private_glm does not take; give it a rule '
                    "`missing` with a number"
                )
            if field.levels is None:
                middle[where], half[where] = centered(*ends(bounds, field.name))
            kept += range(where.start, where.stop - (field.levels is not None))
        center, unit = centered(*ends(bounds, TARGET)) if number else (0.0, 1.0)
        return cls(np.array(kept, np.int64), middle, half, math.sqrt(1 + len(columns)), center, unit, number)

    @property
    def width(self) -> int:
        """Q, numbers of a row."""
        return len(self.kept) + 1

    def rows(self, features: FloatArray) -> Floats:
        """Return rows ``[n, Q]``, the last number of which is 1; a missing value counts as the middle."""
        scaled = (features.astype(np.float64) - self.middle) / self.half
        inside = np.clip(np.nan_to_num(scaled, nan=0.0), -1.0, 1.0)
        return np.column_stack([inside[:, self.kept], np.ones(len(features))])

    def targets(self, targets: npt.NDArray[Any]) -> Floats:
        """Return targets in [-1, 1], ``[n]``."""
        if self.number:
            return np.asarray(np.clip((targets.astype(np.float64) - self.center) / self.unit, -1.0, 1.0))
        return np.where(targets == 1, 1.0, -1.0)

    def total(
        self, terms: Terms, own: Owns, *, size: int, change: float, radius: float, spare: int = 0
    ) -> Asked[tuple[Floats, float]]:
        """Ask for a sum over samples, whose terms are rounded one by one; return it with the deviation of the noise.

        Parameters
        ----------
        terms
            What samples add; the weight of a row is the squared radius over its squared norm, at most 1.
        own
            Samples of a peer.
        size, change
            K, and the norm of what a sample adds.
        radius
            Largest norm of a row whose sample has the full weight.
        spare
            Numbers to which nobody adds anything, which show the noise.
        """

        def answer(peer: str) -> Floats:
            part, added = own(peer).train, np.zeros(size)
            step = max(1, BLOCK // size)
            for low in range(0, len(part), step):
                where = slice(low, low + step)
                rows = self.rows(part.features[where])
                norms = times(rows * rows, np.ones(self.width))
                values = terms(rows, np.minimum(1.0, radius**2 / norms), self.targets(part.targets[where]))
                added += np.rint(values * 2.0**sums.NOISY_FRACTION).sum(axis=0)  # whole numbers: exact
            return added

        return (yield from sums.noisy_total(answer, size=size, change=change + sums.rounding(size), spare=spare))

    def unscaled(self, beta: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Return coefficients ``[F + 1]`` in the units of features and target, intercept last, and their covariance.

        Levels that are not in a row have the coefficient 0 and no variance.
        """
        back = np.zeros((len(self.middle) + 1, self.width))
        places = np.arange(self.width - 1)
        back[self.kept, places] = self.unit / self.half[self.kept]
        back[-1, :-1] = -self.unit * self.middle[self.kept] / self.half[self.kept]
        back[-1, -1] = self.unit
        coefficients = product(back, beta[:, None])[:, 0]
        coefficients[-1] += self.center
        return coefficients, product(product(back, covariance), back.T)


def products(rows: Floats) -> Floats:
    r"""Return the products of all pairs of numbers of each row.

    Those of different numbers are multiplied by :math:`\sqrt 2`, so that the norm of a row of products is the squared
    norm of the row, and so that the noise in these products is smaller.

    Examples
    --------
    >>> round(float(np.linalg.norm(products(np.array([[1.0, 2.0, 2.0]])))), 12)
    9.0
    """
    one, two = np.triu_indices(rows.shape[1])
    return np.asarray(rows[:, one] * rows[:, two] * np.where(one == two, 1.0, math.sqrt(2)))


def moments(upper: Floats, *, size: int) -> Floats:
    """Return the symmetric matrix ``[size, size]`` that sums of products stand for."""
    one, two = np.triu_indices(size)
    return symmetric(upper / np.where(one == two, 1.0, math.sqrt(2)), size=size)
