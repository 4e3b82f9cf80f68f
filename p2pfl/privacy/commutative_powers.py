"""Commuting powers of hashed values, by which two parties find what they have in common and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

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
    counter = 0
    while True:
        digest = hashlib.sha256(value + counter.to_bytes(4, "big")).digest()
        u = int.from_bytes(digest, "little") % 2**255
        if 1 < u < _PRIME and pow(u * (u * u + _COEFFICIENT * u + 1), (_PRIME - 1) // 2, _PRIME) == 1:
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
