"""Masks in a ring: keystreams added and subtracted modulo a power of two.

A number of the ring that a uniform one was added to is uniform, whatever it was; so a mask of the ring hides
perfectly, up to the keystream, where noise only blurs.

References
----------
NIST SP 800-38A (AES-256 in counter mode): 1.0 ms for eight million bytes where ChaCha20 takes 1.6; without
instructions for AES it is slower and still takes the same time whatever the key. Rings of 2^32 or 2^64: C. Sabater,
A. Bellet, J. Ramon, GOPA, Machine Learning 111, 2022, and K. Bonawitz et al., CCS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from p2pfl.privacy.normal_stream import Ints, spans

Ring = npt.NDArray[np.unsignedinteger[Any]]
"""Numbers modulo a power of two."""

WIDTHS = {32: np.uint32, 64: np.uint64}
"""Bits of a ring, and in what its numbers are kept."""

_STEP = 1 << 15
"""Numbers masked at a time: they, a keystream and zeros stay in the cache."""

_ZEROS = memoryview(bytes(8 * _STEP))


def mask(values: Ring, *, plus: Sequence[bytes], minus: Sequence[bytes]) -> None:
    """Add and subtract the keystreams of some keys, in place and modulo the ring.

    Parameters
    ----------
    values
        ``[P]``.
    plus, minus
        Keys of one use each.

    Examples
    --------
    >>> row = np.arange(3, dtype=np.uint32)
    >>> mask(row, plus=[bytes(32)], minus=[])
    >>> row
    array([2025887196, 2307473571,  346179759], dtype=uint32)
    >>> mask(row, plus=[], minus=[bytes(32)])
    >>> row
    array([0, 1, 2], dtype=uint32)
    """
    little = values.dtype.newbyteorder("<")
    buffer = bytearray(values.itemsize * min(_STEP, values.size))
    added = [_keystream(key) for key in plus]
    subtracted = [_keystream(key) for key in minus]
    for columns in spans(values.size, _STEP):
        block = values[columns]
        room = memoryview(buffer)[: block.nbytes]
        words = np.frombuffer(room, little)  # [columns]
        for streams, change in ((added, np.add), (subtracted, np.subtract)):
            for stream in streams:
                stream.update_into(_ZEROS[: block.nbytes], room)
                change(block, words, out=block)


def _keystream(key: bytes) -> CipherContext:
    return Cipher(AES256(key), CTR(bytes(16))).encryptor()


def zeros(size: int, width: int) -> Ring:
    """Return as many zeros of a ring, ``[size]``."""
    return np.zeros(size, WIDTHS[width])


def to_unsigned(points: Ints, width: int) -> Ring:
    """Return whole numbers in a ring, ``[P]``, as two's complement; of 64 bits in the same memory.

    Examples
    --------
    >>> to_unsigned(np.array([1, -1]), 32)
    array([         1, 4294967295], dtype=uint32)
    """
    return points.view(np.uint64) if width == 64 else points.astype(WIDTHS[width])


def to_signed(values: Ring) -> Ints:
    """Return the whole numbers that numbers of a ring stand for, ``[P]``: the inverse of :func:`to_unsigned`.

    Examples
    --------
    >>> to_signed(np.array([1, 4294967295], np.uint32))
    array([ 1, -1])
    """
    return values.view(f"i{values.itemsize}").astype(np.int64)
