"""Functions of totals in operations that IEEE 754 defines, so that every computer finds the same bits."""

from __future__ import annotations

import math

import numpy as np

from p2pfl.core.encodings import Floats

_LN2 = 0.6931471805599453


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
    found: Floats = np.add.accumulate(values, axis=-1)[..., -1]  # one after another, by definition
    return found


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
    found = np.zeros_like(matrix)
    for row in range(size):
        found = found + under[row][:, None] * under[row][None, :]
    return found * scale[:, None] * scale[None, :], dependent


def times(matrix: Floats, vector: Floats) -> Floats:
    """Return the product of a matrix and a vector, added column by column."""
    found = np.zeros(len(matrix))
    for column, value in enumerate(vector.tolist()):
        found = found + matrix[:, column] * value
    return found


def product(one: Floats, two: Floats) -> Floats:
    """Return the product of two matrices, added column by column of the first.

    Examples
    --------
    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    found = np.zeros((len(one), two.shape[1]))
    for column in range(one.shape[1]):
        found = found + one[:, column, None] * two[None, column]
    return found
