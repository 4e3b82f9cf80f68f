"""Totals of floats over samples: exact ones, which do not depend on who holds which sample, and noisy ones.

Each term of an exact sum is encoded by itself (:func:`p2pfl.core.encodings.wide`) as four integers that stand for
multiples of 2^-96, and integers are added. A float64 of magnitude 2^-43 or more loses nothing; a smaller one is rounded
by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from p2pfl.core.encodings import Floats, Ints, from_wide, wide
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked
from p2pfl.plugins.exact.elementary import added

WORDS, FRACTION = 4, 96
"""Encoding of a term."""

DIGIT = 48
"""Bits of an integer of the encoding."""

BLOCK = 2**18
"""Terms that are encoded at once."""

NOISY_FRACTION = 20
"""Fraction bits of what a sample adds to a total that takes private noise, which is far coarser."""


def size(terms: int) -> int:
    """Return the number of integers that stand for some sums."""
    return WORDS * terms


def summed(
    count: int, terms: int, part: Callable[[slice], Floats], *, groups: Ints | None = None, number: int = 1
) -> Ints:
    """Return the sums of terms over samples as integers, ``[4 G K]``.

    Parameters
    ----------
    count
        n, number of samples.
    terms
        K, number of sums.
    part
        Function that returns the terms of some samples, ``[b, K]``; a row must not depend on other samples.
    groups
        Group of each sample, ``[n]``; sums are taken by group. One group if ``None``.
    number
        G, number of groups.

    Examples
    --------
    >>> values = np.array([[0.1], [0.2], [-0.3]])
    >>> bool((summed(3, 1, lambda where: values[where]) == summed(3, 1, lambda where: values[::-1][where])).all())
    True
    """
    table = np.zeros((WORDS, number, terms), np.int64)
    step = min(8192, max(1, BLOCK // max(1, terms)))  # so that no sum of a block overflows
    for low in range(0, count, step):
        where = slice(low, min(count, low + step))
        values = part(where)  # [b, K]
        encoded = wide(values.ravel(), words=WORDS, fraction=FRACTION).reshape(WORDS, *values.shape)
        if groups is None:
            table[:, 0] += encoded.sum(axis=1)
        else:
            for digits, own in zip(table, encoded, strict=True):
                np.add.at(digits, groups[where], own)
        for digit in range(WORDS - 1, 0, -1):  # carry, so that digits stay small
            carried = (table[digit] + (1 << (DIGIT - 1))) >> DIGIT
            table[digit] -= carried << DIGIT
            table[digit - 1] += carried
    return table.ravel()


def numbers(total: Ints) -> Floats:
    """Return the sums that a total of :func:`summed` stands for, ``[K]``."""
    return from_wide(total, words=WORDS, fraction=FRACTION)


def total(answer: Callable[[str], Ints], terms: int) -> Asked[Floats]:
    """Ask for some exact sums, of which each peer adds what :func:`summed` returns, ``[K]``."""
    return numbers((yield Question(answer, size=size(terms))))


def noisy_total(
    answer: Callable[[str], Floats], *, size: int, change: float, spare: int = 0
) -> Asked[tuple[Floats, float]]:
    """Ask for sums that take private noise, and return them ``[K]`` with the deviation of the noise.

    Parameters
    ----------
    answer
        Function that returns what a peer adds in points of the grid, :data:`NOISY_FRACTION` bits each.
    size
        K, number of sums.
    change
        L2 norm by which one sample can change them, rounding included.
    spare
        Further numbers, to which nobody adds anything, so that they show how large the noise is; 0 for none.
    """

    def padded(peer: str) -> Ints:
        return np.concatenate([answer(peer), np.zeros(spare)]).astype(np.int64)

    grid = 2.0**NOISY_FRACTION
    noisy = (yield Question(padded, size=size + spare, change=change * grid)).astype(np.float64) / grid
    rest = noisy[size:]
    return noisy[:size], math.sqrt(added(rest * rest) / spare) if spare else 0.0


def rounding(numbers: int) -> float:
    """Return the L2 norm by which rounding changes some numbers of a noisy total: half a point of the grid each."""
    return math.sqrt(numbers) * 2.0 ** -(NOISY_FRACTION + 1)
