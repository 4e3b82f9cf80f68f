"""Penalties that leave a base learner a number of degrees of freedom."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.plugins.exact.elementary import added, cholesky, eigen

HALVINGS = 200
"""Steps of the bisection, until no float lies between the ends."""


def penalty_for(gram: Floats, penalty: Floats, *, df: float) -> float:
    r"""Return the penalty :math:`\lambda` with which a learner has ``df`` degrees of freedom; 0 if it has fewer anyway.

    .. math:: 2 \operatorname{tr} S - \operatorname{tr} S^T S = \text{df}, \qquad S = Z (Z^T Z + \lambda K)^{-1} Z^T

    from the eigenvalues of :math:`L^{-1} K L^{-T}` with :math:`Z^T Z = L L^T` (Demmler and Reinsch).

    Parameters
    ----------
    gram, penalty
        :math:`Z^T Z` and K, ``[size, size]``.
    df
        Degrees of freedom.

    Examples
    --------
    >>> round(penalty_for(np.diag([4.0, 4.0]), np.eye(2), df=1.5), 9)
    4.0
    """
    scale = 1 / np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
    factor, dependent = cholesky(gram * scale[:, None] * scale[None, :])
    size, rank = len(gram), len(gram) - len(dependent)
    if rank <= df:
        return 0.0
    kept = [place for place in range(size) if place not in dependent]
    inner = _solved(factor, _solved(factor, penalty * scale[:, None] * scale[None, :]).T)
    curvatures = np.maximum(eigen(inner[np.ix_(kept, kept)])[0], 0.0)
    return bisected(lambda strength: freedom(curvatures, strength), df=df)


def freedom(curvatures: Floats, strength: float) -> float:
    """Return the degrees of freedom of a penalty, from the eigenvalues of its matrix."""
    shares = 1 / (1 + strength * curvatures)
    return added(2 * shares - shares * shares)


def bisected(freedom_of: Callable[[float], float], *, df: float) -> float:
    """Return where a falling function of the penalty reaches ``df``."""
    low, high = 0.0, 1.0
    while freedom_of(high) > df and high < 1e15:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (middle, high) if freedom_of(middle) > df else (low, middle)
    return high


def _solved(factor: Floats, right: Floats) -> Floats:
    """Return the solution of a lower triangular system, row by row."""
    found = np.zeros_like(right)
    for row in range(len(factor)):
        rest = right[row].copy()
        for column in range(row):
            rest = rest - factor[row, column] * found[column]
        found[row] = rest / factor[row, row]
    return found
