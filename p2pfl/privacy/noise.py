r"""Private noise on the grid: rounded normal numbers, sampled without gaps.

Private noise must reach every point of the grid from every update, with the probability that the
accountant assumes. A sampler that maps one 52-bit word to a normal number does not: in the tails, and
on fine grids everywhere, its values are further apart than the grid's points, so that some released
values are possible for one update only. This sampler draws

.. math:: N = \operatorname{round}(\sigma Z), \qquad Z \sim N(0, 1) \text{ given } \lvert Z \rvert \le R

exactly, where :math:`\sigma` counts grid points and :math:`R \ge 14`. An update is rounded to the grid before
noise is added, so :math:`x + N = \operatorname{round}(x + \sigma Z)` is the Gaussian mechanism, rounded; what it
guarantees, the accountant need not correct. What differs from it is the cut at R alone, which
:func:`truncation` bounds.

How it draws. Let :math:`\sigma' = 2^s \sigma` with :math:`2^{51} \le \sigma' < 2^{52}`. There are :math:`2^s` fine
points k for each grid point. Their probability is :math:`\propto \exp(-(k + 1/2)^2 / 2 \sigma'^2)`, which is that of
their unit interval under the normal law up to one part in :math:`2^{98}`. They are drawn by rejection:

1. A first word of 64 bits chooses a cell of :math:`2^{44}` fine points (Walker's alias method) with the integer
   weight :math:`w \ge C e^{-m^2 / 2 \sigma'^2}`, where m is the smallest magnitude in the cell. All weights add up to
   :math:`2^{64}`.
2. The last 44 bits of a second word choose the point of the cell, uniformly.
3. The point is accepted with probability :math:`(C / w) e^{-(k + 1/2)^2 / 2 \sigma'^2} \le 1`, by comparison with the
   first 20 bits of the second word. These decide 199 times out of 200. Else 64 more bits decide, in doubles,
   and where those are too close to call 256 more, in 60 digits.

References
----------
I. Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
A. J. Walker, "An efficient method for generating discrete random variables", ACM TOMS 3, 1977.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from p2pfl.core.errors import InputError
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, Floats, Ints, Words, spans
from p2pfl.privacy.release_settings import EXACT_DEVIATIONS, MAX_POINT_DEVIATION

CLOSE_SHARE = 2.0**-40
"""Relative difference above which doubles decide whether a point is accepted: their error is below 2^-48."""

MAX_GRID_DEVIATION = 2.0**46
"""Largest deviation in grid points at which a double distinguishes all points that the sampler draws."""

LOW_BITS = 44  # bits that choose the point within a cell
BIN_BITS = 13  # bits that choose a bin of the alias table
BIN_CAPACITY = 1 << (64 - BIN_BITS)  # the weight of each bin
_DIGIT_SHARE = 2.0**-80  # absolute difference above which 20 + 64 drawn bits decide
_DIGITS = 60  # of exact decisions
FIRST, SECOND, MORE = range(3)  # purposes of a key's streams
_ZEROS = memoryview(bytes(8 * VALUES_PER_BLOCK))


class NoiseSampler:
    """Sampler of private noise as grid points, block by block, in reused memory.

    Parameters
    ----------
    deviation
        Standard deviation in grid points, above 0 and below :data:`MAX_POINT_DEVIATION`.
    close
        As :data:`CLOSE_SHARE`; the result does not depend on it, a larger one only takes longer.

    Raises
    ------
    InputError
        The deviation is out of range.

    Examples
    --------
    >>> NoiseSampler(2.0**20).window([bytes(32)], slice(0, 3)).shape
    (1, 3)
    """

    def __init__(self, deviation: float, *, close: float = CLOSE_SHARE) -> None:
        if not 0 < deviation < MAX_POINT_DEVIATION:
            raise InputError(
                f"private noise needs a deviation above 0 and below 2^48 grid points, got {deviation:g}; change "
                "privacy.noise or privacy.bits"
            )
        self._table = table_of(deviation)
        self._close = close
        self._words, self._numbers = (
            np.empty((4, VALUES_PER_BLOCK), np.uint64),
            np.empty((2, VALUES_PER_BLOCK), np.int64),
        )

    def window(self, keys: Sequence[bytes], span: slice) -> Ints:
        """Return the same stretch of several streams, ``[K, span]``; the next call overwrites it.

        No number depends on the other requested streams. Redrawn numbers depend on the block boundaries, which
        no other peer has to know: private noise is drawn once, by one peer.

        Parameters
        ----------
        keys
            K keys of 32 bytes, used for nothing else; K times the stretch is at most ``VALUES_PER_BLOCK`` numbers.
        span
            From a multiple of ``VALUES_PER_BLOCK``.
        """
        shape = len(keys), span.stop - span.start
        count = shape[0] * shape[1]
        first, second, *work = (part[:count] for part in self._words)
        for purpose, words in ((FIRST, first), (SECOND, second)):
            for row, key in zip(words.reshape(shape), keys, strict=True):
                _keystream(key, row, purpose=purpose, at=span.start)
        drawn = FinePoints(self._numbers[0][:count], self._numbers[1][:count], second)
        undecided = self._table.propose(first, drawn, work=work)
        if undecided.size:
            self._decide(undecided, drawn, keys=keys, span=span)
        points = drawn.points
        points += self._table.half
        points >>= self._table.shift
        return points.reshape(shape)  # [K, span]

    def _decide(self, positions: Ints, drawn: FinePoints, *, keys: Sequence[bytes], span: slice) -> None:
        """Accept the fine points at ``[n]`` places that 20 bits leave undecided, or draw new ones."""
        width, attempt, now = span.stop - span.start, 0, drawn.at(positions)
        while positions.size:
            more = _further(keys, positions // width, at=span.start, attempt=attempt)  # [3, n]
            accepted, close = self._table.accept(now, more[0], close=self._close)
            for number in close:
                row, column = divmod(int(positions[number]), width)
                message = (span.start + column).to_bytes(8, "little") + attempt.to_bytes(8, "little")
                digits = int.from_bytes(blake2b(message, key=keys[row], digest_size=32).digest(), "little")
                accepted[number] = self._table.decides(now, number, more=int(more[0, number]), digits=digits)
            drawn.points[positions[accepted]] = now.points[accepted]
            positions, more = positions[~accepted], more[:, ~accepted]
            numbers = np.empty((2, positions.size), np.int64)
            now = FinePoints(numbers[0], numbers[1], more[2])
            undecided = self._table.propose(more[1], now, work=list(np.empty((2, positions.size), np.uint64)))
            drawn.points[positions] = now.points  # those that are undecided are written again
            positions, now, attempt = positions[undecided], now.at(undecided), attempt + 1


def exact_normals(deviation: float) -> Callable[[bytes, int], Floats]:
    """Return a function ``normals(key, size)`` of standard normal numbers on the grid of a deviation.

    Times the deviation, and rounded, they are the points of :class:`NoiseSampler` exactly: code that must not know how
    private noise is drawn takes them as standard normal numbers.

    Parameters
    ----------
    deviation
        Standard deviation in grid points, at most :data:`MAX_GRID_DEVIATION`.

    Raises
    ------
    InputError
        The deviation is out of range.

    Examples
    --------
    >>> key, points = bytes(32), NoiseSampler(3e9).window([bytes(32)], slice(0, 100))[0]
    >>> bool((np.rint(exact_normals(3e9)(key, 100) * 3e9) == points).all())
    True
    """
    if not 0 < deviation <= MAX_GRID_DEVIATION:
        raise InputError(
            f"private noise needs a deviation above 0 and at most 2^46 grid points, got {deviation:g}; change the noise"
        )

    def normals(key: bytes, size: int) -> Floats:
        sampler, out = NoiseSampler(deviation), np.empty(size)  # [size]
        for span in spans(size, VALUES_PER_BLOCK):
            np.divide(sampler.window([key], span)[0], deviation, out=out[span])
        return out

    return normals


@dataclass(frozen=True)
class FinePoints:
    """Fine points, their cells, and the words of which 20 bits decide whether they are accepted, each ``[n]``."""

    points: Ints
    cells: Ints
    words: Words

    def at(self, positions: Ints) -> FinePoints:
        """Return those at ``[n]`` places."""
        return FinePoints(self.points[positions], self.cells[positions], self.words[positions])


@dataclass(frozen=True)
class SamplerTable:
    """Constants of the sampler for one deviation; cells are counted from the lowest, and the last one is none.

    Parameters
    ----------
    shift
        s: a grid point has 2^s fine points.
    deviation
        Of the fine points.
    count
        J, the cells on each side of zero.
    last
        The largest word of each bin that chooses the first of its two cells, ``[bins]``.
    choices
        The two cells of each bin, ``[2 bins]``.
    sure
        Words below it accept every point of the cell, ``[2 J + 1]``.
    factors
        C exp(-m^2 / (2 deviation^2)) / w, ``[2 J + 1]``.
    exact
        C / w in 60 digits.
    """

    shift: int
    deviation: float
    count: int
    last: Words
    choices: Ints
    sure: Words
    factors: Floats
    exact: tuple[Decimal, ...]

    @property
    def half(self) -> int:
        """Half a grid point: fine points lie at k + 1/2, so that none is between two grid points."""
        return 1 << (self.shift - 1)

    def propose(self, first: Words, drawn: FinePoints, *, work: Sequence[Words]) -> Ints:
        """Fill in cells and points from two words each, and return where 20 bits do not accept."""
        spare, flags = work
        cells, points = drawn.cells, drawn.points
        np.right_shift(first, 64 - BIN_BITS, out=spare)
        bins = spare.view(np.int64)
        second = first > np.take(self.last, bins, out=points.view(np.uint64), mode="clip")
        bins <<= 1
        bins += second
        np.take(self.choices, bins, out=cells, mode="clip")  # never outside; this spares a check
        np.take(self.sure, cells, out=flags, mode="clip")
        undecided = np.flatnonzero(drawn.words >= flags)
        np.bitwise_and(drawn.words, (1 << LOW_BITS) - 1, out=spare)
        np.subtract(cells, self.count, out=points)
        points <<= LOW_BITS
        points += spare.view(np.int64)
        return undecided

    def accept(self, drawn: FinePoints, more: Words, *, close: float) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Decide by 64 bits more, and return where that is too close to call."""
        magnitude = np.maximum(drawn.points, -1 - drawn.points)  # |k + 1/2| - 1/2
        within = (magnitude & ((1 << LOW_BITS) - 1)) + 0.5  # from m, exactly
        start = (magnitude >> LOW_BITS) * 2.0**LOW_BITS  # m, exactly
        chance = np.exp(-within * (2 * start + within) / (2 * self.deviation**2)) * self.factors[drawn.cells]
        uniform = (drawn.words >> LOW_BITS) * 2.0 ** (LOW_BITS - 64) + more * 2.0 ** (LOW_BITS - 128)
        accepted = (uniform < chance) & (drawn.cells < 2 * self.count)
        return accepted, np.flatnonzero(np.abs(uniform - chance) <= close * chance + _DIGIT_SHARE)

    def decides(self, drawn: FinePoints, number: int, *, more: int, digits: int) -> bool:
        """Decide one by 256 bits more, in 60 digits."""
        if drawn.cells[number] == 2 * self.count:
            return False
        with localcontext(prec=_DIGITS):
            z = (int(drawn.points[number]) + Decimal("0.5")) / Decimal(self.deviation)
            chance = self.exact[drawn.cells[number]] * (-z * z / 2).exp()
            bits = (((int(drawn.words[number]) >> LOW_BITS) << 64) + more << 256) + digits
            return bool(bits < chance * (1 << 64 - LOW_BITS + 64 + 256))


@lru_cache(maxsize=8)
def table_of(deviation: float) -> SamplerTable:
    """Return the constants for a standard deviation in grid points."""
    fraction, exponent = math.frexp(deviation)  # deviation = fraction * 2^exponent, 1/2 <= fraction < 1
    shift = min(LOW_BITS + 8 - exponent, 62)  # noise far below the grid rounds to nothing anyhow
    fine = fraction * 2.0 ** (LOW_BITS + 8)
    count = math.ceil(EXACT_DEVIATIONS * fine / 2**LOW_BITS)
    with localcontext(prec=_DIGITS):
        step = (-((Decimal(2**LOW_BITS) / Decimal(fine)) ** 2) / 2).exp()
        heights, ratio = [Decimal(1)], step  # exp(-m^2 / (2 deviation^2)) at the edges of cells
        for _ in range(count):
            heights.append(heights[-1] * ratio)
            ratio *= step * step
        scale = (2**64 - 2 * count) // (2 * sum(heights[:-1]))
        weights = [int((scale * each).to_integral_value(ROUND_CEILING)) for each in heights[:-1]]
        exact = [scale / weight for weight in weights]
        sure = [
            int(each * high * 2 ** (64 - LOW_BITS)) << LOW_BITS for each, high in zip(exact, heights[1:], strict=True)
        ]
        factors = [float(each * low) for each, low in zip(exact, heights[:-1], strict=True)]
    weights = [*weights[::-1], *weights, 2**64 - 2 * sum(weights)]  # the last chooses no point: draw again
    last, choices = _alias(weights)
    return SamplerTable(
        shift=shift,
        deviation=fine,
        count=count,
        last=last,
        choices=choices,
        sure=np.array([*sure[::-1], *sure, 0], np.uint64),
        factors=np.array([*factors[::-1], *factors, 0.0]),
        exact=(*exact[::-1], *exact, Decimal(0)),
    )


def _alias(weights: Sequence[int]) -> tuple[Words, Ints]:
    """Spread integer weights that add up to 2^64 over bins of two each, exactly."""
    left = [*weights, *[0] * ((1 << BIN_BITS) - len(weights))]
    first, shares = list(range(len(left))), [BIN_CAPACITY] * len(left)
    second = list(first)
    small = [number for number, weight in enumerate(left) if weight < BIN_CAPACITY]
    large = [number for number, weight in enumerate(left) if weight > BIN_CAPACITY]
    while small:
        low, high = small.pop(), large[-1]
        shares[low], second[low] = left[low], high
        left[high] -= BIN_CAPACITY - left[low]
        if left[high] <= BIN_CAPACITY:
            large.pop()
            if left[high] < BIN_CAPACITY:
                small.append(high)
    for number, share in enumerate(shares):
        if not share:  # no word chooses the first
            first[number], shares[number] = second[number], BIN_CAPACITY
    last = [(number * BIN_CAPACITY) + share - 1 for number, share in enumerate(shares)]
    return np.array(last, np.uint64), np.array([first, second], np.int64).T.reshape(-1)


def _keystream(key: bytes, out: Words, *, purpose: int, at: int, attempt: int = 0) -> None:
    """Fill ``[n]`` with the words of one of a key's streams from number ``at`` on; a redraw has a stream of its own."""
    if purpose == MORE:
        nonce = bytes(4) + bytes([purpose]) + attempt.to_bytes(3, "little") + at.to_bytes(8, "little")
    else:
        nonce = (at // 8).to_bytes(4, "little") + bytes([purpose]) + bytes(11)  # one count is 64 bytes
    encryptor = Cipher(ChaCha20(key, nonce), mode=None).encryptor()
    encryptor.update_into(_ZEROS[: 8 * out.size], out.view(np.uint8))  # type: ignore[arg-type]
    if sys.byteorder == "big":  # pragma: no cover (words are little-endian)
        out.byteswap(inplace=True)


def _further(keys: Sequence[bytes], rows: Ints, *, at: int, attempt: int) -> Words:
    """Return three more words for each undecided number of rows ``[n]`` in order, ``[3, n]``."""
    words = np.empty((rows.size, 3), np.uint64)
    ends = np.searchsorted(rows, np.arange(len(keys) + 1))
    for key, start, stop in zip(keys, ends[:-1], ends[1:], strict=True):
        if start < stop:
            _keystream(key, words[start:stop].reshape(-1), purpose=MORE, at=at, attempt=attempt)
    return np.ascontiguousarray(words.T)
