r"""Numbers as integers, so that their sums over all peers are exact.

Counts are integers already. :func:`wide` encodes any number below :math:`2^{56}` as two integers: :math:`a 2^{48} + b`
stands for :math:`x 2^{40}`, and peers agree on no bound. All operations are those that IEEE 754 fixes, so that every
peer decodes the same total to the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import InputError, PrivacyError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WIDTHS = (32, 64)
"""Bits of the integers of a total, which is taken modulo two to that power."""

FRACTION_BITS = 40
"""Fraction bits of wide numbers."""

MAX_PARTICIPANTS = 2**14
"""Participants of a total of wide numbers are fewer than this."""

_LOW_BITS = 48  # bits of the second integer of a wide number


def limit(participants: int, *, bits: int = 64) -> int:
    """Return the bound of the magnitude of each integer of a contribution, below which no total wraps around.

    Examples
    --------
    >>> limit(8, bits=32)
    268435456
    """
    if bits not in WIDTHS:
        raise InputError(f"a total has integers of 32 or 64 bits, not {bits}; choose one of the two")
    return int(2 ** (bits - 1) // participants)


def check_contribution(values: Ints, *, peer: str, size: int, participants: int | None, bits: int) -> None:
    """Refuse a contribution that could make a total wrap around, unless ``participants`` is ``None``.

    Raises
    ------
    InputError
        There are not ``size`` integers of 64 bits.
    PrivacyError
        An integer is not below :func:`limit`; the message names the peer.

    Examples
    --------
    >>> check_contribution(np.array([3, -4]), peer="ada", size=2, participants=8, bits=32)
    """
    if values.shape != (size,) or values.dtype != np.int64:
        raise InputError(
            f"the contribution of {peer} has shape {values.shape} and type {values.dtype}, but the total is of {size} "
            "numbers of type int64; return as many"
        )
    if participants is None:
        return
    bound = limit(participants, bits=bits)
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    if largest >= bound:
        raise PrivacyError(
            f"the contribution of {peer} has an integer of magnitude {largest}, but a total over {participants} peers "
            f"in {bits} bits is exact only below {bound}; use fewer fraction bits or 64 bits"
        )


def wrap(values: Ints, bits: int) -> Ints:
    """Return integers modulo two to the power of 32 or 64, of the smallest magnitude.

    Examples
    --------
    >>> wrap(np.array([2**31, -1]), 32).tolist()
    [-2147483648, -1]
    """
    return values.astype(f"i{bits // 8}").astype(np.int64)


def largest_wide(*, words: int = 2, fraction: int = FRACTION_BITS) -> float:
    """Return the bound of the magnitude of each number that :func:`wide` encodes.

    Examples
    --------
    >>> largest_wide() == 2.0**56
    True
    """
    return 2.0 ** (_LOW_BITS * words - fraction)


def wide(values: npt.ArrayLike, *, words: int = 2, fraction: int = FRACTION_BITS) -> Ints:
    r"""Return some integers for each number, first the highest of all numbers; ``[words K]`` int64.

    .. math:: x 2^f \approx \sum_{i < w} a_i 2^{48 i}, \qquad \lvert a_i \rvert \le 2^{48},
              \qquad \operatorname{sgn} a_i = \operatorname{sgn} x

    Sums of all of them are exact over fewer than :math:`2^{14}` peers.

    Parameters
    ----------
    values
        ``[K]``, below :math:`2^{48 w - f}` in magnitude.
    words
        w, integers for each number.
    fraction
        f, fraction bits.

    Raises
    ------
    InputError
        A number is not finite or too large.

    Examples
    --------
    >>> wide([1.0, -0.5]).tolist()
    [0, 0, 1099511627776, -549755813888]
    """
    rest = np.asarray(values, np.float64)
    largest = largest_wide(words=words, fraction=fraction)
    if not (np.abs(rest) < largest).all():
        bound = round(np.log2(largest))
        raise InputError(f"wide numbers must be finite and below 2^{bound}; give them in larger units")
    rest = np.ldexp(rest, fraction)
    digits = []
    for word in reversed(range(1, words)):
        high = np.trunc(np.ldexp(rest, -_LOW_BITS * word))
        rest = rest - np.ldexp(high, _LOW_BITS * word)  # exact: what is left of the digits
        digits.append(high)
    return np.concatenate([*digits, np.rint(rest)]).astype(np.int64)


def from_wide(total: Ints, *, words: int = 2, fraction: int = FRACTION_BITS) -> Floats:
    """Return the numbers that a total of wide ones stands for, ``[K]``, up to the rounding of float64.

    Parameters
    ----------
    total
        ``[words K]``.
    words, fraction
        As of :func:`wide`.

    Examples
    --------
    >>> from_wide(wide([1.0, -0.5]) + wide([2.0, 0.25])).tolist()
    [3.0, -0.25]
    """
    digits = total.reshape(words, -1)[::-1].copy()  # [words, K], the lowest first
    for word in range(words - 1):
        carried = (
            digits[word] + (1 << (_LOW_BITS - 1))
        ) >> _LOW_BITS  # so that no digit outweighs half of the one above
        digits[word] -= carried << _LOW_BITS
        digits[word + 1] += carried
    value = np.zeros(digits.shape[1])  # [K]
    for word, digit in enumerate(digits):
        value += np.ldexp(digit.astype(np.float64), _LOW_BITS * word - fraction)
    return value
