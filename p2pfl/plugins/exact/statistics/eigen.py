"""Eigenvectors of symmetric matrices in operations that IEEE 754 defines."""

from __future__ import annotations

import numpy as np

from p2pfl.core.encodings import Floats

SWEEPS = 40
"""Most sweeps; some eight are enough."""


def eigen(matrix: Floats) -> tuple[Floats, Floats]:
    r"""Return the eigenvalues ``[p]`` in descending order, and the eigenvectors as rows ``[p, p]``.

    Jacobi's method: rotations in the planes of pairs of coordinates, p / 2 disjoint pairs at a time, element by
    element, so that every computer finds the same bits, which LAPACK does not. The largest number of each vector in
    magnitude, the first of equal ones, is positive.

    Parameters
    ----------
    matrix
        Symmetric, ``[p, p]``.

    Examples
    --------
    >>> values, vectors = eigen(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(12).tolist(), vectors.round(3).tolist()
    ([3.0, 1.0], [[0.707, 0.707], [0.707, -0.707]])

    References
    ----------
    Brent and Luk, The solution of singular-value and symmetric eigenvalue problems on multiprocessor arrays, SIAM
    Journal on Scientific and Statistical Computing 6, 1985.
    """
    size = len(matrix)
    even = size + size % 2
    rest, vectors = np.zeros((even, even)), np.eye(even)
    rest[:size, :size] = matrix
    players = np.arange(even)
    small = 1e-16 * float(np.abs(matrix).max(initial=0.0))
    for _ in range(SWEEPS):
        away = rest - np.diag(np.diag(rest))
        if float(np.abs(away).max(initial=0.0)) <= small:
            break
        for _ in range(even - 1):
            one, two = players[: even // 2], players[even // 2 :][::-1]
            _rotate(rest, vectors, one, two)
            players = np.concatenate([players[:1], players[-1:], players[1:-1]])
    values = np.diag(rest)[:size]
    order = np.argsort(-values, kind="stable")
    found = vectors[:size, :size].T[order]
    largest = np.abs(found).argmax(axis=1)
    signs = np.where(found[np.arange(size), largest] < 0, -1.0, 1.0)
    return values[order], found * signs[:, None]


def _rotate(rest: Floats, vectors: Floats, one: np.ndarray, two: np.ndarray) -> None:
    """Make the elements at disjoint pairs of coordinates zero."""
    away = rest[one, two]
    flat = away == 0
    with np.errstate(over="ignore"):
        tau = (rest[two, two] - rest[one, one]) / (2 * np.where(flat, 1.0, away))
        tangent = np.where(tau < 0, -1.0, 1.0) / (np.abs(tau) + np.sqrt(1 + tau * tau))
    tangent = np.where(flat, 0.0, tangent)
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    sine = tangent * cosine
    for each in (rest, vectors):
        first, second = each[:, one], each[:, two]
        each[:, one], each[:, two] = cosine * first - sine * second, sine * first + cosine * second
    first, second = rest[one], rest[two]
    rest[one], rest[two] = (
        cosine[:, None] * first - sine[:, None] * second,
        sine[:, None] * first + cosine[:, None] * second,
    )
    rest[one, two] = rest[two, one] = 0.0
