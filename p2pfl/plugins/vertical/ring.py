r"""Whole numbers modulo 2^64: exact products of matrices, keystreams, and numbers of private scale in limbs.

A product :math:`X^T Y` is taken over limbs of 16 bits in float64: sums of up to :math:`2^{20}` products of limbs are
exact, and BLAS computes them several times faster than numpy multiplies integers.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError
from p2pfl.core.process import one_thread
from p2pfl.privacy.total_masks import mask

Words = npt.NDArray[np.uint64]
"""Numbers modulo 2^64."""

LIMBS = 4
"""Limbs of 16 bits in a word."""

ROWS_PER_BLOCK = 1024
"""Rows that are multiplied at a time, so that their limbs stay in the cache."""

SUM_BITS = 62
"""Bits that no magnitude of an opened sum exceeds, so that its sign is certain."""

MAX_LIMB_BITS = 22
"""Most bits of a limb of a column."""


def words(values: npt.ArrayLike) -> Words:
    """Return whole numbers modulo 2^64, as two's complement.

    Examples
    --------
    >>> words([[1, -1]]).tolist()
    [[1, 18446744073709551615]]
    """
    return np.ascontiguousarray(values, np.int64).view(np.uint64)


def signed(values: Words) -> Ints:
    """Return the whole numbers of least magnitude that words stand for."""
    return np.ascontiguousarray(values).view(np.int64)


@one_thread()  # blocks are small, and a barrier after each of them waits for a core that others use
def multiply(left: Words, right: Words) -> Words:
    r"""Return :math:`X^T Y` modulo 2^64, ``[a, b]``.

    Parameters
    ----------
    left, right
        X ``[n, a]`` and Y ``[n, b]``.

    Examples
    --------
    >>> signed(multiply(words([[2], [-1]]), words([[3], [2**62]]))).tolist()
    [[-4611686018427387898]]
    """
    total = np.zeros((left.shape[1], right.shape[1]), np.uint64)
    if not total.size:
        return total
    narrow = _limbs_needed(left), _limbs_needed(right)
    for low in range(0, len(left), ROWS_PER_BLOCK):
        one = _limbs(left[low : low + ROWS_PER_BLOCK], narrow[0])  # [k, rows, a], the lowest limb first
        two = _limbs(right[low : low + ROWS_PER_BLOCK], narrow[1])[::-1].copy()  # [l, rows, b], the highest first
        for place in range(LIMBS):
            first, last = max(0, place - len(two) + 1), min(place, len(one) - 1)  # limbs of X that meet one of Y
            if first > last:
                continue
            above = len(two) - 1 - (place - first)
            met = one[first : last + 1].reshape(-1, one.shape[2])
            other = two[above : above + last + 1 - first].reshape(-1, two.shape[2])
            total += words((met.T @ other).astype(np.int64)) << np.uint64(16 * place)
    return total


def _limbs_needed(values: Words) -> int:
    """Return how many limbs hold the numbers in two's complement."""
    if not values.size:
        return 1
    numbers = values.view(np.int64)
    largest = max(int(numbers.max()), -int(numbers.min()) - 1)
    return largest.bit_length() // 16 + 1


def _limbs(values: Words, count: int) -> Floats:
    """Return the lowest limbs of numbers ``[n, a]`` as floats, ``[count, n, a]``; the highest has the sign."""
    pieces = np.ascontiguousarray(values).astype("<u8", copy=False).view("<u2").reshape(*values.shape, LIMBS)
    limbs = np.empty((count, *values.shape))
    for place in range(count):
        top = place + 1 == count
        limbs[place] = pieces[..., place].view("<i2") if top else pieces[..., place]
    return limbs


def keystream(key: bytes, purpose: str, shape: tuple[int, ...]) -> Words:
    """Return uniform words of a key and a purpose: AES-256 in counter mode, under a key of this purpose alone.

    Parameters
    ----------
    key
        32 bytes that two peers share.
    purpose
        Name of this use of the key, which is never another's.
    shape
        Shape of the result.

    Examples
    --------
    >>> bool((keystream(bytes(32), "one", (2, 3)) == keystream(bytes(32), "other", (2, 3))).any())
    False
    """
    stream = np.zeros(math.prod(shape), np.uint64)
    mask(stream, plus=[hmac.digest(key, f"p2pfl/v1/vertical {purpose}".encode(), hashlib.sha256)], minus=[])
    return stream.reshape(shape)


def sum_room(rows: int) -> int:
    """Return how many bits products may have, so that no sum over rows reaches :data:`SUM_BITS`.

    Examples
    --------
    >>> sum_room(100_000)
    45
    """
    return SUM_BITS - max(0, rows - 1).bit_length()


def limb_bits(rows: int) -> int:
    """Return the bits of a limb, of which two are multiplied and added over rows.

    Examples
    --------
    >>> limb_bits(100_000), limb_bits(1_000_000)
    (22, 21)
    """
    return min(MAX_LIMB_BITS, sum_room(rows) // 2)


@dataclass(frozen=True, eq=False)
class FixedPointColumns:
    r"""Columns as whole numbers, each in units of a private power of two.

    .. math:: x_{ij} \approx v_{ij} 2^{-e_j}

    Parameters
    ----------
    values
        v, ``[n, a]``.
    exponents
        e, ``[a]``.
    """

    values: Ints
    exponents: Ints

    def limbs(self, bits: int) -> tuple[Words, Words]:
        r"""Return h and l of :math:`v = h 2^b + l`, each ``[n, a]``, with l of b bits and a sign.

        Examples
        --------
        >>> high, low = fixed_point(np.array([[1.0], [-0.75]]), bits=4).limbs(2)
        >>> signed(high).ravel().tolist(), signed(low).ravel().tolist()
        ([2, -1], [0, -2])
        """
        high = (self.values + (1 << (bits - 1))) >> bits
        return words(high), words(self.values - (high << bits))


def fixed_point(columns: Floats, *, bits: int, bound: float | None = None) -> FixedPointColumns:
    """Return columns as integers whose largest magnitude has some bits; columns of zeros stay zeros.

    Parameters
    ----------
    columns
        ``[n, a]``.
    bits
        b: the largest magnitude of a column lies between 2^(b - 1) and 2^b, half of the first included.
    bound
        Bound of all magnitudes that everybody knows, from which the powers of two follow instead.

    Raises
    ------
    DataError
        A number is missing or not finite.

    Examples
    --------
    >>> found = fixed_point(np.array([[3.0, 0.0], [-1.0, 0.0]]), bits=4)
    >>> found.values.tolist(), found.exponents.tolist()
    ([[12, 0], [-4, 0]], [2, 0])
    """
    if not np.isfinite(columns).all():
        raise DataError("a column has missing or infinite numbers, which have no products; give it a rule `missing`")
    largest = np.abs(columns).max(axis=0, initial=0.0) if bound is None else np.full(columns.shape[1], bound)
    exponents = np.where(largest > 0, bits - np.frexp(largest)[1], 0).astype(np.int64)
    limit = 2**bits - 1  # so that rounding up a number just below a power of two adds no bit
    whole = np.clip(np.rint(np.ldexp(columns, exponents)), -limit, limit)
    return FixedPointColumns(whole.astype(np.int64), exponents)
