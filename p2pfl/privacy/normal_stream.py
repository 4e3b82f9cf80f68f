"""Normal numbers that two machines draw identically, bit by bit.

Noise that is to cancel must be the same at both ends of an edge, on any platform and in any
version of any library. So the sampler is written out here: the ChaCha20 keystream, read as
little-endian words, goes through the inverse normal distribution function: parabolas, on cells as
fine as the tail needs, through values of algorithm AS 241, in operations whose results IEEE 754
fixes to the last bit: ``+ - * / sqrt`` and bit patterns. (``numpy.log`` is not one of them: its last
bit changes with the processor.)

References
----------
M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution",
Applied Statistics 37 (1988), routine PPND16, accurate to about 1 part in 10^16. RFC 8439 (ChaCha20).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

VERSION = "chacha20-parabolas-v2"
"""Name of the sampler; masks of peers with different samplers would not cancel, so peers compare it at the start."""

VALUES_PER_BLOCK = 1 << 16
"""Values evaluated at a time: enough to hide the cost of a call, few enough for the processor's caches."""

POINT_LIMIT = 2**51
"""Grid points are smaller than this, so that a double counts every one of them, and sums of two as well."""

MAX_DEVIATIONS = 8.3
"""No number of the stream is further from zero, in standard deviations."""

_WORDS_PER_COUNT = 8  # one count of ChaCha20 is 64 bytes
_ZEROS = memoryview(bytes(8 * VALUES_PER_BLOCK))
ROUNDER = 1.5 * 2**52  # in its binade doubles are whole numbers: adding it rounds half to even
ROUNDER_BITS = int(np.float64(ROUNDER).view(np.int64))


def normals(key: bytes, size: int) -> Floats:
    r"""Return the first numbers of a key's standard normal stream, ``[size]``.

    .. math:: z_k = \Phi^{-1}\left((\lfloor w_k / 2^{12} \rfloor + \tfrac12)\, 2^{-52}\right)

    up to 1.2e-10, with :math:`w_k` the 64-bit words of the ChaCha20 keystream from counter 0, nonce 0:
    between 2^-53 and 1/2 each binade of :math:`\min(u, 1 - u)` is cut into 512 cells, and on each stands
    the parabola through the quantiles at its ends and in its middle.

    Parameters
    ----------
    key
        32 bytes, used for nothing else.
    size
        How many.

    Examples
    --------
    >>> float(normals(bytes(32), 4)[0])
    0.159709872675285
    """
    sampler = Sampler()
    out = np.empty(size)  # [size]
    for span in spans(size, VALUES_PER_BLOCK):
        out[span] = sampler.window([key], span)[0]
    return out


def grid_normals(key: bytes, size: int, *, deviation: float, bits: int = 20) -> Ints:
    r"""Return normal numbers as points of a grid, :math:`\mathrm{rint}(\sigma z_k 2^{\text{bits}})`, ``[size]``.

    Parameters
    ----------
    key, size
        As in :func:`normals`.
    deviation
        Standard deviation; ``REACH * deviation * 2**bits`` must stay below ``POINT_LIMIT``.
    bits
        Fraction bits of the grid.

    Examples
    --------
    >>> grid_normals(bytes(32), 4, deviation=1.0)
    array([  167468, -1046469, -1313379,   801052])
    """
    sampler = Sampler()
    out = np.empty(size, np.int64)  # [size]
    for span in spans(size, VALUES_PER_BLOCK):
        out[span] = to_grid(sampler.window([key], span)[0], scale=deviation * 2.0**bits)
    return out


def to_grid(values: Floats, *, scale: float) -> Ints:
    """Scale and round to whole numbers, half to even; the result overwrites ``values``.

    The caller ensures that the points stay below ``POINT_LIMIT``.

    Examples
    --------
    >>> to_grid(np.array([0.25, -0.75, 3.0]), scale=2.0)
    array([ 0, -2,  6])
    """
    values *= scale
    values += ROUNDER
    points = values.view(np.int64)
    points -= ROUNDER_BITS
    return points


def spans(total: int, step: int) -> Iterator[slice]:
    """Cut ``range(total)`` into slices of at most ``step``.

    Examples
    --------
    >>> list(spans(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + step, total)) for start in range(0, total, step))


class Sampler:
    """Sampler of blocks of normal numbers, in reused memory.

    New arrays for every block would double the time: the allocator hands large ones back to the
    system, which then clears each page again.
    """

    def __init__(self) -> None:
        self._words, self._numbers, *self._work = np.empty((5, VALUES_PER_BLOCK))

    def window(self, keys: Sequence[bytes], span: slice) -> Floats:
        """Return the same stretch of several streams, ``[K, span]``; the next call overwrites it.

        No value depends on which others are asked for.

        Parameters
        ----------
        keys
            K of them; K times the stretch is at most ``VALUES_PER_BLOCK`` values.
        span
            From a multiple of ``VALUES_PER_BLOCK``.
        """
        shape = len(keys), span.stop - span.start
        count = shape[0] * shape[1]
        words = self._words[:count].view("<u8").reshape(shape)  # [K, span]
        start = (span.start // _WORDS_PER_COUNT).to_bytes(4, "little") + bytes(12)  # the count, then the nonce
        zeros = _ZEROS[: shape[1] * words.itemsize]
        for row, key in zip(words, keys, strict=True):
            Cipher(ChaCha20(key, start), mode=None).encryptor().update_into(zeros, row.view(np.uint8))
        native = words.astype(np.uint64, copy=False).reshape(-1)  # [K * span]
        out = self._numbers[:count]
        _quantiles(native, out=out, work=[part[:count] for part in self._work])
        return out.reshape(shape)  # [K, span]


# Coefficients of PPND16, highest power first.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip
ONE_BITS = 0x3FF0000000000000  # the bits of 1.0
_FINE = 9  # bits of the mantissa that choose the cell within a binade
CELL_SHIFT = 52 - _FINE
CELL_MASK = -(1 << CELL_SHIFT)  # all bits but those of the place within the cell
FIRST_CELL = (1023 - 53) << _FINE  # the cell of 2^-53, below which min(u, 1 - u) never is
CELL_COUNT = 52 << _FINE  # up to 1/2
_HALF_ROOT = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
_LOG_2 = 0.6931471805599453


def _quantiles(words: Words, *, out: Floats, work: Sequence[Floats]) -> None:
    """Map ``[n]`` random words by the inverse normal distribution function, in place; see :func:`normals`."""
    words >>= np.uint64(12)
    words |= np.uint64(ONE_BITS)
    q = words.view(np.float64)  # [n], 1 + k 2^-52
    q -= 1.5
    q += 2.0**-53  # u - 1/2, exactly
    p, spare, term = work
    np.abs(q, out=p)
    np.subtract(0.5, p, out=p)  # min(u, 1 - u), exactly
    cell = spare.view(np.int64)
    np.bitwise_and(p.view(np.int64), CELL_MASK, out=cell)
    t = np.subtract(p, spare, out=out)  # from the left end of the cell, exactly
    np.right_shift(p.view(np.int64), CELL_SHIFT, out=cell)
    cell -= FIRST_CELL
    third, second, first = parabolas()
    z = np.take(third, cell, out=p, mode="clip")  # never outside; this spares a check
    for coefficients in (second, first):
        z *= t
        z += np.take(coefficients, cell, out=term, mode="clip")
    np.copysign(z, q, out=out)


@lru_cache(maxsize=1)
def parabolas() -> tuple[Floats, Floats, Floats]:
    """Return the coefficients of the parabola of each cell, of t^2, t and 1, each ``[cells]``.

    It goes through the quantiles at both ends and in the middle, so that neighbours meet.
    """
    cells = np.arange(FIRST_CELL, FIRST_CELL + CELL_COUNT + 1, dtype=np.int64)
    ends = (cells << CELL_SHIFT).view(np.float64)  # [cells + 1]
    left, width = ends[:-1], np.diff(ends)
    z = wichura(ends)
    low, middle, high = z[:-1], wichura(left + width / 2), z[1:]
    rise, bend = high - low, (high - middle) - (middle - low)
    return 2 * bend / (width * width), (rise - 2 * bend) / width, low


def wichura(p: Floats) -> Floats:
    r"""Return :math:`\lvert \Phi^{-1}(p) \rvert` for p in (0, 1/2], ``[n]``: routine PPND16 of AS 241.

    Examples
    --------
    >>> wichura(np.array([0.5, 0.025, 1e-9])).round(6)
    array([0.      , 1.959964, 5.997807])
    """
    q = 0.5 - p
    r = np.subtract(0.180625, q * q)  # 0.425^2 - q^2
    spare = np.empty_like(p)
    z = _ratio(_CENTRE, r, out=np.empty_like(p), spare=spare)
    z *= q
    tails = np.flatnonzero(r < 0)
    if tails.size:
        z[tails] = _tail_quantiles(p[tails])
    return z


def _tail_quantiles(p: Floats) -> Floats:
    """Return quantiles where ``1/2 - p > 0.425``: a function of sqrt(-log(p))."""
    r = _minus_log(p)
    np.sqrt(r, out=r)
    far = np.flatnonzero(r > 5)
    spare = np.empty_like(p)
    z = _ratio(_TAIL, r - 1.6, out=np.empty_like(p), spare=spare)
    if far.size:
        z[far] = _ratio(_FAR_TAIL, r[far] - 5, out=np.empty(far.size), spare=spare[: far.size])
    return z


def _ratio(
    coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Floats, *, out: Floats, spare: Floats
) -> Floats:
    """Return the quotient of two polynomials by Horner's rule, one operation at a time: never a fused multiply-add."""
    numerator, denominator = coefficients
    _polynomial(numerator, r, out=out)
    _polynomial(denominator, r, out=spare)
    out /= spare
    return out


def _polynomial(coefficients: tuple[float, ...], r: Floats, *, out: Floats) -> None:
    np.multiply(r, coefficients[0], out=out)
    out += coefficients[1]
    for coefficient in coefficients[2:]:
        out *= r
        out += coefficient


def _minus_log(p: Floats) -> Floats:
    r"""Return :math:`-\log p` for normal doubles below 0.075, ``[n]``.

    :math:`p = m 2^e` with m between the roots of 1/2 and 2, and, for :math:`s = (m - 1)/(m + 1)`,
    :math:`\log m = 2 \operatorname{artanh} s = 2 (s + s^3/3 + s^5/5 + \dots)`; :math:`s^2 < 0.03`.
    """
    bits = p.view(np.int64)
    exponent = bits - _HALF_ROOT
    exponent >>= 52
    m = (bits - (exponent << 52)).view(np.float64)
    s = m - 1
    m += 1
    s /= m
    square = s * s
    series = square * (1 / 21)
    for power in (19, 17, 15, 13, 11, 9, 7, 5, 3):
        series += 1 / power
        series *= square
    series *= s
    series += s
    series *= 2
    series += exponent * _LOG_2
    return np.negative(series, out=series)
