"""Limits of splits of nodes, and their gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints

TINY = 1e-15
"""Added to sums of second derivatives, as scikit-learn does, so that nothing is divided by zero."""

ROUNDING = 1e-12
"""Gain, as a share of the scores of the children, that could be rounding: such a split gains nothing."""

UNBOUNDED = (-np.inf, np.inf)
"""Bounds of the value of a node."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of splits, and their gains.

    Parameters
    ----------
    min_samples_leaf
        Smallest number of samples of a leaf.
    min_hessian
        Smallest sum of second derivatives in a leaf.
    l2
        Regularisation of the value of a leaf.
    slope, curve
        First and second derivatives are integers in these units.
    signs
        By feature whether predictions must rise (1) or fall (-1) with it, ``[F]``; ``None`` if all are free.
    """

    min_samples_leaf: int
    min_hessian: float
    l2: float
    slope: float
    curve: float
    signs: Ints | None = None

    def weight(self, sums: Ints) -> Floats:
        """Return sums of second derivatives plus regularisation, for sums ``[..., 3]``."""
        return sums[..., 1].astype(np.float64) * self.curve + (self.l2 + TINY)

    def value(self, sums: Ints, bounds: Floats) -> Floats:
        """Return the values of leaves with sums ``[..., 3]``, within bounds ``[..., 2]``."""
        found: Floats = -(sums[..., 0].astype(np.float64) * self.slope) / self.weight(sums)
        return np.minimum(np.maximum(found, bounds[..., 0]), bounds[..., 1])

    def score(self, sums: Ints, bounds: Floats) -> Floats:
        r"""Return by how much leaves lower the loss, times two: :math:`G^2 / (H + \lambda)` without bounds.

        Parameters
        ----------
        sums
            Sums of first and second derivatives and samples, ``[..., 3]``.
        bounds
            Bounds of the values of the leaves, ``[..., 2]``.
        """
        slope = sums[..., 0].astype(np.float64) * self.slope
        return slope * slope / self.weight(sums) if self.signs is None else -slope * self.value(sums, bounds)

    def allowed(self, sums: Ints) -> npt.NDArray[np.bool_]:
        """Return whether a leaf may have these sums ``[..., 3]``."""
        return (sums[..., 2] >= self.min_samples_leaf) & (sums[..., 1] * self.curve >= self.min_hessian)

    def ordered(self, left: Ints, right: Ints, bounds: Floats) -> npt.NDArray[np.bool_]:
        """Return whether the children of splits ``[m, F, ..., 3]`` have values in the order of their features."""
        assert self.signs is not None  # noqa: S101 (checked by the caller)
        signs = self.signs.reshape(-1, *[1] * (left.ndim - 3))  # [F, ...]
        rise: npt.NDArray[np.bool_] = (self.value(right, bounds) - self.value(left, bounds)) * signs >= 0
        return rise


def gained(scores: Floats, before: Floats, valid: npt.NDArray[np.bool_]) -> Floats:
    """Return the gains of splits, minus infinity where one is not allowed or its gain could be rounding.

    Parameters
    ----------
    scores, before
        Scores of the children together, and of the node.
    valid
        True if a split is allowed.
    """
    gains = scores - before
    found: Floats = np.where(valid & (gains > ROUNDING * np.abs(scores)), gains, -np.inf)
    return found
