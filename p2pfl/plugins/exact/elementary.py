"""Functions of totals in operations that IEEE 754 defines, so that every computer finds the same bits."""

from __future__ import annotations

import math

import numpy as np

from p2pfl.core.encodings import Floats

_LN2 = 0.6931471805599453

EIGEN_SWEEPS = 40
"""Most sweeps; some eight are enough."""


def log(number: float) -> float:
    r"""Return the natural logarithm of a positive number to within a few units in the last place.

    .. math:: \ln x = e \ln 2 + 2 \operatorname{artanh} \frac{m - 1}{m + 1},
              \qquad x = m 2^e, \quad \tfrac{1}{\sqrt 2} \le m < \sqrt 2

    The libraries of different systems round their logarithms differently; this one is made of divisions and products.

    Examples
    --------
    >>> log(1.0), round(log(10.0), 12)
    (0.0, 2.302585092994)
    """
    mantissa, exponent = math.frexp(number)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, 0.0
    for power in range(23, -1, -1):
        series = series * square + 1 / (2 * power + 1)
    return exponent * _LN2 + 2 * ratio * series


def added(values: Floats) -> float:
    """Return the sum of numbers ``[K]`` in their order; ``numpy.sum`` adds in an order of its own."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def added_along(values: Floats) -> Floats:
    """Return the sums of numbers along the last axis in their order.

    Examples
    --------
    >>> added_along(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [3.0, 7.0]
    """
    return np.asarray(np.add.accumulate(values, axis=-1)[..., -1])  # one after another, by definition


def cholesky(matrix: Floats) -> tuple[Floats, list[int]]:
    r"""Return the factor L of a symmetric matrix :math:`A = L L^T`, and the columns that depend on earlier ones.

    Parameters
    ----------
    matrix
        ``[p, p]``, scaled so that its diagonal is 1 or 0. A pivot below :math:`10^{-11}` marks a dependent column,
        whose row and column of L are those of the identity.

    Examples
    --------
    >>> cholesky(np.array([[1.0, 0.5], [0.5, 1.0]]))[0].round(3).tolist()
    [[1.0, 0.0], [0.5, 0.866]]
    """
    rest, size = matrix.copy(), len(matrix)
    factor, dependent = np.zeros_like(matrix), list[int]()
    for column in range(size):
        pivot = rest[column, column]
        if not pivot > 1e-11:
            dependent.append(column)
            factor[column, column] = 1.0
            rest[column, :] = rest[:, column] = 0.0
            continue
        root = math.sqrt(pivot)
        below = rest[:, column] / root
        below[: column + 1] = 0.0
        below[column] = root
        factor[:, column] = below
        rest = rest - below[:, None] * below[None, :]
    return factor, dependent


def inverse(matrix: Floats) -> tuple[Floats, list[int]]:
    r"""Return the inverse of a symmetric positive matrix, and its dependent columns, whose rows are zero.

    The matrix is scaled by its diagonal first. All operations go element by element, without a library of linear
    algebra, whose results depend on the processor.

    Examples
    --------
    >>> inverse(np.array([[1.0, 0.0], [0.0, 4.0]]))[0].tolist()
    [[1.0, 0.0], [0.0, 0.25]]
    """
    size = len(matrix)
    diagonal = np.diag(matrix)
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    factor, dependent = cholesky(matrix * scale[:, None] * scale[None, :])
    under = np.zeros_like(matrix)  # of the factor, by forward substitution
    for row in range(size):
        right = np.zeros(size)
        right[row] = 1.0
        for column in range(row):
            right = right - factor[row, column] * under[column]
        under[row] = right / factor[row, row]
    for column in dependent:
        under[column, :] = under[:, column] = 0.0
    inverted = np.zeros_like(matrix)
    for row in range(size):
        inverted = inverted + under[row][:, None] * under[row][None, :]
    return inverted * scale[:, None] * scale[None, :], dependent


def times(matrix: Floats, vector: Floats) -> Floats:
    """Return the product of a matrix and a vector, added column by column."""
    total = np.zeros(len(matrix))
    for column, value in enumerate(vector.tolist()):
        total = total + matrix[:, column] * value
    return total


def product(one: Floats, two: Floats) -> Floats:
    """Return the product of two matrices, added column by column of the first.

    Examples
    --------
    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    matrix = np.zeros((len(one), two.shape[1]))
    for column in range(one.shape[1]):
        matrix = matrix + one[:, column, None] * two[None, column]
    return matrix


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
    pairing = np.arange(even)
    small = 1e-16 * float(np.abs(matrix).max(initial=0.0))
    for _ in range(EIGEN_SWEEPS):
        away = rest - np.diag(np.diag(rest))
        if float(np.abs(away).max(initial=0.0)) <= small:
            break
        for _ in range(even - 1):
            one, two = pairing[: even // 2], pairing[even // 2 :][::-1]
            _rotate(rest, vectors, one, two)
            pairing = np.concatenate([pairing[:1], pairing[-1:], pairing[1:-1]])
    values = np.diag(rest)[:size]
    order = np.argsort(-values, kind="stable")
    rows = vectors[:size, :size].T[order]
    largest = np.abs(rows).argmax(axis=1)
    signs = np.where(rows[np.arange(size), largest] < 0, -1.0, 1.0)
    return values[order], rows * signs[:, None]


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
