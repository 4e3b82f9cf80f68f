"""Coefficients of regressions: standard errors, Wald's tests and intervals, and what keeps them from being found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.explanations import FittedCoefficient
from p2pfl.plugins.exact.elementary import added, times

REACH = 1.959963984540054
"""Standard errors from an estimate to the end of its 95 % interval."""


def coefficients(
    beta: Floats, covariance: Floats, names: Sequence[str], *, penalised: bool = False
) -> list[FittedCoefficient]:
    """Return coefficients with standard errors, Wald's tests and intervals.

    Parameters
    ----------
    beta
        ``[p]``.
    covariance
        ``[p, p]``; the row of a coefficient that others determine is zero.
    names
        Names of the p coefficients.
    penalised
        True if the covariance is that of a posterior, for which there are no tests.

    Examples
    --------
    >>> [found] = coefficients(np.array([1.96]), np.array([[1.0]]), ["age"])
    >>> round(found.p, 3), round(found.low, 3)
    (0.05, 0.0)
    """
    found = []
    for name, estimate, variance in zip(names, beta.tolist(), np.diag(covariance).tolist(), strict=True):
        if math.isnan(variance):
            found.append(FittedCoefficient(name, estimate))
            continue
        if not variance > 0:
            found.append(FittedCoefficient(name, None))
            continue
        error = math.sqrt(variance)
        z = None if penalised else estimate / error
        p = None if z is None else math.erfc(abs(z) / math.sqrt(2))
        found.append(FittedCoefficient(name, estimate, error, z, p, estimate - REACH * error, estimate + REACH * error))
    return found


def check_ridge(ridge: float) -> None:
    """Refuse a ridge penalty that is negative or not finite.

    Raises
    ------
    ModelError
        It is negative or not finite.
    """
    if not 0 <= ridge < math.inf:
        raise ModelError(f"model.options.ridge is {ridge}; set it to a finite value of at least 0")


def unbounded(step: Floats, moments: Floats, *, decrement: float, before: float | None) -> int | None:
    r"""Return the number of a coefficient that grows without bound; ``None`` if all of them end somewhere.

    Where a maximum exists, a step of Newton's method squares the distance that is left. Where coefficients run away
    (complete or quasi-complete separation, monotone likelihood), each step moves the predictors of some samples by
    about 1, and what can still be gained falls by the factor e.

    Parameters
    ----------
    step
        Last step ``[p]``.
    moments
        Sums of products of the features ``[p, p]``, so that :math:`s^T M s` is by how much all predictors move.
    decrement, before
        Gain of this step and of the one before; ``None`` before the first one.

    References
    ----------
    Albert and Anderson, On the existence of maximum likelihood estimates in logistic regression models, Biometrika 71,
    1984.
    """
    if before is None or not (decrement < 1e-6 and decrement > 0.25 * before):
        return None
    if not added(step * times(moments, step)) > 1e-2:
        return None
    return int((np.abs(step) * np.sqrt(np.maximum(np.diag(moments), 0.0))).argmax())
