r"""Cubic splines with given knots, in the bases of R's ``ns`` and ``bs``.

A column is a row of numbers: low, width, a, b, c, d, and then each knot :math:`t_k` with its :math:`e_k`. With
:math:`u = (x - \text{low}) / \text{width}` its value is

.. math:: a + b u + c u^2 + d u^3 + \sum_k e_k \Bigl(\frac{x - t_k}{\text{width}}\Bigr)_+^3

All is computed by additions, multiplications, divisions and square roots of Python's floats, one after another, so that
every computer finds the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats

DEGREE = 3

HEAD = 6
"""Numbers of a row before its knots."""

IDENTITY = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
"""Row of a column that is its variable."""


def spline_values(values: Any, row: Any) -> Any:
    """Return the values of a column, ``[n]``; or of F columns ``[n, F]`` with rows ``[numbers, F]``; numpy or torch.

    Examples
    --------
    >>> spline_values(np.array([-2.0, 0.5]), IDENTITY).tolist()
    [-2.0, 0.5]
    """
    low, width, first, slope, square, cube = (row[index] for index in range(HEAD))
    position = (values - low) / width
    total = first + position * (slope + position * (square + position * cube))
    for index in range(HEAD, len(row), 2):
        beyond = (values - row[index]) / width
        total = total + row[index + 1] * (beyond * beyond * beyond) * (beyond > 0)
    return total


def natural_spline(knots: Sequence[float], ends: tuple[float, float]) -> Floats:
    """Return the rows of the columns of R's ``ns(x, knots = knots, Boundary.knots = ends)``, one more than knots.

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
    >>> rows = natural_spline([0.5], (0.0, 1.0))
    >>> len(rows), round(float(spline_values(1.0, rows[1])), 6)
    (2, 0.770602)

    References
    ----------
    Hastie, Generalized additive models, in Chambers and Hastie, Statistical models in S, 1992.
    """
    every = _knots(knots, ends)
    curvature = [[_basis(every, index, end, order=2) for index in _places(every)] for end in (0.0, 1.0)]
    mixed = _complement(curvature)
    rows = []
    for weights in mixed:
        value, slope, _, *thirds = _piecewise(every, weights)
        jumps = [after - before for before, after in zip([0.0, *thirds], [*thirds, 0.0], strict=True)]
        rows.append(_row(ends, (value, slope, 0.0, 0.0), [ends[0], *knots, ends[1]], jumps))
    return np.array(rows)


def b_spline(knots: Sequence[float], ends: tuple[float, float]) -> Floats:
    """Return the rows of the columns of R's ``bs(x, knots = knots, Boundary.knots = ends)``, three more than knots.

    Examples
    --------
    >>> rows = b_spline([0.5], (0.0, 1.0))
    >>> [round(float(spline_values(0.5, row)), 3) for row in rows]
    [0.25, 0.5, 0.25, 0.0]
    """
    every = _knots(knots, ends)
    rows = []
    for weights in np.eye(len(_places(every))).tolist():
        value, slope, bend, *thirds = _piecewise(every, weights)
        jumps = [after - before for before, after in pairwise(thirds)]
        rows.append(_row(ends, (value, slope, bend, thirds[0]), knots, jumps))
    return np.array(rows)


def _knots(knots: Sequence[float], ends: tuple[float, float]) -> list[float]:
    """Return all knots of the B-splines between 0 and 1."""
    inner = [(knot - ends[0]) / (ends[1] - ends[0]) for knot in knots]
    return [*[0.0] * (DEGREE + 1), *inner, *[1.0] * (DEGREE + 1)]


def _places(knots: Sequence[float]) -> range:
    """Return the numbers of all B-splines but the first."""
    return range(1, len(knots) - DEGREE - 1)


def _basis(knots: Sequence[float], index: int, x: float, *, order: int = 0, degree: int = DEGREE) -> float:
    """Return the value of a B-spline at x, or of its derivative of an order, by the recursion of de Boor."""
    if degree == 0:
        last = x == knots[-1] == knots[index + 1] > knots[index]
        return float(order == 0 and (knots[index] <= x < knots[index + 1] or last))
    rise, fall = knots[index + degree] - knots[index], knots[index + degree + 1] - knots[index + 1]
    lower = {"order": max(0, order - 1), "degree": degree - 1}
    first = _basis(knots, index, x, **lower) / rise if rise else 0.0
    second = _basis(knots, index + 1, x, **lower) / fall if fall else 0.0
    if order:
        return degree * (first - second)
    return (x - knots[index]) * first + (knots[index + degree + 1] - x) * second


def _complement(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return orthonormal vectors that are orthogonal to some rows, as the last columns of Q in Householder's QR."""
    size, reflections = len(rows[0]), list[list[float]]()
    for start, row in enumerate(rows):
        rest = [0.0] * start + _reflected([*row], reflections)[start:]
        norm = math.sqrt(_dot(rest, rest))
        rest[start] += math.copysign(norm, rest[start])
        reflections.append(rest)
    units = np.eye(size)[len(rows) :].tolist()
    return [_reflected(unit, reflections[::-1]) for unit in units]


def _reflected(vector: list[float], reflections: Sequence[Sequence[float]]) -> list[float]:
    for normal in reflections:
        share = 2 * _dot(normal, vector) / _dot(normal, normal)
        vector = [value - share * each for value, each in zip(vector, normal, strict=True)]
    return vector


def _dot(one: Sequence[float], two: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(one, two, strict=True):
        total += a * b
    return total


def _piecewise(knots: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return value, slope and half the second derivative at 0 of a sum of B-splines, and its cubes by interval."""

    def at(x: float, order: int) -> float:
        return _dot(weights, [_basis(knots, index, x, order=order) for index in _places(knots)])

    corners = knots[DEGREE : len(knots) - DEGREE]
    middles = [0.5 * (one + two) for one, two in pairwise(corners)]
    return [at(0.0, 0), at(0.0, 1), at(0.0, 2) / 2, *(at(middle, 3) / 6 for middle in middles)]


def _row(
    ends: tuple[float, float], polynomial: Sequence[float], knots: Sequence[float], jumps: Sequence[float]
) -> list[float]:
    pairs = [number for pair in zip(knots, jumps, strict=True) for number in pair]
    return [ends[0], ends[1] - ends[0], *polynomial, *pairs]
