"""Commuting powers of hashed values, by which two parties find what they have in common and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

POINT_LENGTH = 32
"""Bytes of a point."""

_PRIME = 2**255 - 19
_COEFFICIENT = 486662  # of Curve25519: v^2 = u^3 + 486662 u^2 + u


def hash_to_point(value: bytes) -> bytes:
    r"""Return a point of Curve25519, its coordinate u in 32 bytes, that nobody knows as a multiple of another one.

    The first of :math:`\operatorname{SHA256}(value, 0), \operatorname{SHA256}(value, 1), \dots` that lies on the curve
    is taken. Values on its twist are skipped: a multiple stays where its point is, so one bit of the value would show.

    Examples
    --------
    >>> hash_to_point(b"ada") == hash_to_point(b"ada") != hash_to_point(b"bob")
    True
    """
    symbol, counter = _symbol(), 0
    while True:
        digest = hashlib.sha256(value + counter.to_bytes(4, "big")).digest()
        u = int.from_bytes(digest, "little") % 2**255
        if 1 < u < _PRIME and symbol(u * (u * u + _COEFFICIENT * u + 1) % _PRIME, _PRIME) == 1:
            return u.to_bytes(POINT_LENGTH, "little")
        counter += 1


def multiply(secret: bytes, points: Iterable[bytes]) -> list[bytes]:
    r"""Return the multiples of points by a secret scalar of 32 bytes.

    Multiples commute, :math:`a (b P) = b (a P)`, and without a or b, multiples of P and of another point look alike
    (the decisional Diffie-Hellman assumption).

    Raises
    ------
    ValueError
        A point is none: its multiple is zero.

    Examples
    --------
    >>> point = hash_to_point(b"ada")
    >>> one, other = bytes(range(32)), bytes(range(1, 33))
    >>> multiply(one, multiply(other, [point])) == multiply(other, multiply(one, [point]))
    True
    """
    key = X25519PrivateKey.from_private_bytes(secret)
    return [key.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]


@cache
def _symbol() -> Callable[[int, int], int]:
    """Return the function for the Jacobi symbol; that of gmpy2, where it is installed, is ten times as fast."""
    try:
        from gmpy2 import jacobi  # noqa: PLC0415 (an extra)
    except ImportError:
        return jacobi_symbol
    function: Callable[[int, int], int] = jacobi
    return function


def jacobi_symbol(a: int, n: int) -> int:
    r"""Return the Jacobi symbol :math:`(a / n)` of an odd n: 1 if n is prime and a square modulo n, 0 if n divides a.

    Euclid's algorithm with the signs of quadratic reciprocity takes a quarter of the time of the power
    :math:`a^{(n - 1) / 2}`.

    Examples
    --------
    >>> [jacobi_symbol(a, 7) for a in range(7)]
    [0, 1, 1, -1, 1, -1, -1]
    """
    sign = 0
    while a:
        twos = (a & -a).bit_length() - 1
        a >>= twos
        sign ^= (twos & 1) & ((n >> 1) ^ (n >> 2))  # of (2 / n)
        sign ^= (a & n) >> 1  # of reciprocity
        a, n = n % a, a
    return (1 - 2 * (sign & 1)) if n == 1 else 0
