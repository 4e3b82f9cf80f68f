"""Means and paired differences with intervals from few values, and a correction for many comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
import numpy.typing as npt

INTERVAL_LEVEL = 0.95
"""Coverage of every interval."""

NORMAL_QUANTILE = 1.959963984540054
"""Quantile of the normal distribution for that coverage."""

ROUNDING_SHARE = 1e-12
"""Values that differ by less than this share of the largest one are equal but for rounding."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its interval.

    Attributes
    ----------
    mean
        Mean of the values.
    half
        Half of the width of the 95 % interval by Student's t; null for a single value, and for values that are all
        equal: without a deviation the method gives no interval.
    count
        Number of values.
    """

    mean: float
    half: float | None
    count: int


def estimate(values: Sequence[float]) -> Estimate:
    r"""Return the mean of independent values with its interval.

    :math:`\bar x \pm t_{n-1}(0.975)\, s / \sqrt n`, where s is the standard deviation with n - 1 degrees of freedom.

    Examples
    --------
    >>> interval = estimate([0.90, 0.92, 0.94])
    >>> round(interval.mean, 3), round(interval.half, 4)
    (0.92, 0.0497)
    >>> estimate([0.9]).half is None
    True
    """
    return _estimate(np.asarray(values, dtype=np.float64), scale=max(map(abs, values)))[0]


def _estimate(values: npt.NDArray[np.float64], *, scale: float) -> tuple[Estimate, float]:
    """Return the estimate and the standard error of the mean: 0 where there is no interval."""
    count, mean = len(values), float(values.mean())
    deviation = float(values.std(ddof=1)) if count > 1 else 0.0
    if deviation <= ROUNDING_SHARE * scale:
        return Estimate(mean, None, count), 0.0
    error = deviation / math.sqrt(count)
    return Estimate(mean, student_quantile(count - 1) * error, count), error


MAX_TERMS = 10_000
"""Most terms of the continued fraction; it takes about the root of the degrees of freedom."""


def student_tail(distance: float, degrees: int) -> float:
    r"""Return the probability that Student's t is further from 0 than a distance.

    It is the incomplete beta function :math:`I_x(\nu/2, 1/2)` at :math:`x = \nu / (\nu + t^2)`, by its continued
    fraction (DLMF 8.17.22): scipy would take a device 20 MiB and a third of a second.

    Examples
    --------
    >>> round(student_tail(2.0, 10), 12)
    0.073388034771
    """
    whole = degrees + distance**2
    x, a, b = degrees / whole, degrees / 2, 0.5
    near = x > (a + 1) / (a + b + 2)  # where the fraction of the other end converges faster
    if near:
        x, a, b = distance**2 / whole, b, a
    if x == 0:
        return 1.0
    fraction, upper, lower = 1.0, 1.0, 0.0
    for number in range(1, MAX_TERMS):
        half, odd = divmod(number, 2)
        if odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        lower, upper = 1 / (1 + term * lower), 1 + term / upper
        fraction *= lower * upper
        if abs(lower * upper - 1) < np.finfo(float).eps:
            break
    factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    share = math.exp(factor) / (a * fraction)
    return 1 - share if near else share


@cache
def student_quantile(degrees: int) -> float:
    """Return the distance from 0 within which Student's t is with probability ``INTERVAL_LEVEL``.

    Examples
    --------
    >>> round(student_quantile(2), 9), round(student_quantile(1000), 9)
    (4.30265273, 1.962339081)
    """
    low, high = 0.0, 16.0  # that of one degree of freedom is 12.7
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if student_tail(middle, degrees) > 1 - INTERVAL_LEVEL else (low, middle)
    return middle


def wilson(share: float, count: int) -> tuple[float, float]:
    r"""Return the 95 % interval of a share of independent samples.

    :math:`\frac{p + z^2/2n \pm z\sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}` with z = 1.96 (Wilson, Journal of the American
    Statistical Association 1927).

    Parameters
    ----------
    share
        Share of the samples, from 0 to 1.
    count
        Number of samples.

    Examples
    --------
    >>> [round(end, 4) for end in wilson(81 / 263, 263)]
    [0.2553, 0.3662]
    """
    square = NORMAL_QUANTILE**2 / count
    middle = (share + square / 2) / (1 + square)
    half = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    return middle - half, middle + half


def newcombe(share: float, reference: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two shares, each of as many independent samples.

    Two models that are tested on the same samples often err together. Their difference then varies less than the
    interval says, which does not know which samples they share.

    Parameters
    ----------
    share, reference
        Shares from 0 to 1; the interval is that of ``share - reference``.
    count
        Number of samples of each.

    References
    ----------
    Newcombe. Interval estimation for the difference between independent proportions. Statistics in Medicine 17, 1998,
    method 10.

    Examples
    --------
    >>> [round(end, 4) for end in newcombe(9 / 10, 3 / 10, 10)]
    [0.1705, 0.809]
    """
    low, high = wilson(share, count)
    lowest, highest = wilson(reference, count)
    difference = share - reference
    return (
        difference - math.hypot(share - low, highest - reference),
        difference + math.hypot(high - share, reference - lowest),
    )


def compare_paired(values: Sequence[float], reference: Sequence[float]) -> tuple[Estimate, float | None]:
    r"""Return the mean of the differences of paired values, and the two-sided p-value of the paired t-test.

    Parameters
    ----------
    values, reference
        Values of equal length, of which those at one place belong together, such as those of one seed.

    Returns
    -------
    tuple of Estimate and float or None
        The p-value is ``None`` for a single pair, and where all differences are equal: the test compares their mean
        with their deviation, which is then unknown and not zero.

    Examples
    --------
    >>> difference, p = compare_paired([0.92, 0.95, 0.93], [0.90, 0.91, 0.92])
    >>> round(difference.mean, 4), round(difference.half, 4), round(p, 4)
    (0.0233, 0.0379, 0.1181)
    """
    differences = np.subtract(values, reference, dtype=np.float64)
    difference, error = _estimate(differences, scale=max(map(abs, (*values, *reference))))
    if difference.half is None:
        return difference, None
    return difference, student_tail(abs(difference.mean) / error, difference.count - 1)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number by Holm's step-down method, in the same order.

    Rejecting what stays below 0.05 makes any false rejection at all less probable than 0.05, whatever the dependence
    (Holm, Scandinavian Journal of Statistics 1979).

    Parameters
    ----------
    values
        P-values; ``None`` for a comparison without a test, which does not count.

    Examples
    --------
    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    ranked = sorted((value, index) for index, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, index) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * value))
        adjusted[index] = largest
    return adjusted
