"""Ridges that private noise requires, and standard errors that include it."""

from __future__ import annotations

import math

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.plugins.exact.elementary import added, inverse, product, times
from p2pfl.plugins.exact.statistics.eigen import eigen


def raised(matrix: Floats, *, noise: float) -> tuple[Floats, float]:
    r"""Return a noisy matrix of moments with the ridge that keeps its eigenvalues above the noise, and the ridge.

    Noise of deviation s on the diagonal and :math:`s / \sqrt 2` elsewhere has a norm of about :math:`s \sqrt{2 Q}`, so
    no smaller eigenvalue of the sum says anything.

    Parameters
    ----------
    matrix
        Symmetric, ``[Q, Q]``.
    noise
        s.

    Examples
    --------
    >>> raised(np.diag([9.0, 1.0]), noise=1.0)[1]
    1.0
    """
    if not noise:
        return matrix, 0.0
    values, _ = eigen(matrix)
    ridge = max(0.0, noise * math.sqrt(2 * len(matrix)) - float(values[-1]))
    return matrix + ridge * np.eye(len(matrix)), ridge


def linear_errors(beta: Floats, moments: Floats, *, inverted: Floats, noise: float) -> tuple[Floats, float]:
    r"""Return the covariance of the coefficients of a linear model, and its dispersion.

    .. math:: \phi P + P N P, \qquad N = \tfrac{s^2}{2} \bigl((1 + |\beta|^2) I + \beta \beta^T\bigr)

    with P the inverse of the moments: the error of sampling, and that of noise in the moments.

    Parameters
    ----------
    beta
        ``[Q]``.
    moments
        Noisy moments of rows with their targets, ``[Q + 1, Q + 1]``; the last number of a row is 1.
    inverted
        P.
    noise
        s, the deviation of the noise on the diagonal of the moments.
    """
    inner, products = moments[:-1, :-1], moments[:-1, -1]
    rest = float(moments[-1, -1]) - 2 * added(beta * products) + added(beta * times(inner, beta))
    dispersion = max(0.0, rest) / max(1.0, float(inner[-1, -1]) - len(beta))
    spread = np.eye(len(beta)) * (1 + added(beta * beta)) + beta[:, None] * beta[None, :]
    noisy = product(product(inverted, spread * (noise * noise / 2)), inverted)
    return dispersion * inverted + noisy, dispersion


def logistic_errors(information: Floats, bound: Floats, *, first: float, later: float, steps: int) -> Floats:
    r"""Return the covariance of the coefficients of a logistic model after steps with noisy gradients.

    .. math:: V_{k+1} = (I - P H) V_k (I - P H)^T + s_k^2 P P^T

    with H the information and P the inverse of its bound; the error of sampling :math:`H^{-1}` is added.

    Parameters
    ----------
    information, bound
        H and its bound, ``[Q, Q]``.
    first, later
        Deviations of the noise in the first gradient and in the others.
    steps
        Number of steps after the first.
    """
    inverted, _ = inverse(bound)
    left = np.eye(len(bound)) - product(inverted, information)
    squared = product(inverted, inverted.T)
    found = first * first * squared
    for _ in range(steps):
        found = product(product(left, found), left.T) + later * later * squared
    sampled, _ = inverse(information)
    return sampled + found
