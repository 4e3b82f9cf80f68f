"""Correlations of columns from integer totals, over the samples that have both values."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints

FINEST = 24
"""Most fraction bits of a centred value."""


def fraction(samples: int) -> int:
    """Return the fraction bits with which sums of products over all samples fit into 62 bits.

    Examples
    --------
    >>> fraction(1000), fraction(10**6)
    (24, 21)
    """
    return min(FINEST, (62 - math.ceil(math.log2(max(2, samples)))) // 2)


def products(values: npt.NDArray[np.float32], *, middle: Floats, reach: Floats, bits: int) -> Ints:
    r"""Return what a peer adds: numbers of pairs, and sums of centred values and products over these, ``[4 K K]``.

    Parameters
    ----------
    values
        ``[n, K]``, NaN where one is missing.
    middle, reach
        A value counts as ``(value - middle) / reach``, at most 1 in magnitude, ``[K]``.
    bits
        Fraction bits.
    """
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        shares = np.clip((values.astype(np.float64) - middle) / reach, -1.0, 1.0)
    centred = np.where(there, np.rint(np.ldexp(np.where(there, shares, 0.0), bits)), 0.0).astype(np.int64)
    mask = there.astype(np.int64)
    found = (mask.T @ mask, centred.T @ mask, (centred * centred).T @ mask, centred.T @ centred)
    return np.concatenate([each.ravel() for each in found])


def correlations(total: Ints, *, columns: int) -> tuple[Ints, Floats]:
    """Return the number of samples of each pair, and Pearson's correlations ``[K, K]``; NaN without variation."""
    count, first, second, both = total.reshape(4, columns, columns)
    number = np.maximum(count, 1).astype(np.float64)
    one, two = first.astype(np.float64), first.T.astype(np.float64)  # sums of the row's column, and of the column's
    covariance = both.astype(np.float64) - one * two / number
    spread = second.astype(np.float64) - one * one / number
    scale = np.maximum(spread, 0.0) * np.maximum(spread.T, 0.0)
    found = np.where(scale > 0, covariance / np.sqrt(np.where(scale > 0, scale, 1.0)), np.nan)
    return count, np.clip(found, -1.0, 1.0)
