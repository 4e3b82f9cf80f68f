"""Keystreams of ChaCha20 for many keys at once, as tensor operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from p2pfl.core.rows import to_device

WORDS = 8
"""Words of 64 bits in a block of ChaCha20."""

_CONSTANTS = tuple(np.frombuffer(b"expand 32-byte k", "<i4").tolist())
_DOUBLE_ROUNDS = 10


def key_words(keys: Sequence[bytes], device: torch.device) -> torch.Tensor:
    """Return keys as the words of ChaCha20, ``[K, 8]`` int32 on a device; the CPU does not wait for the copy."""
    words = np.frombuffer(b"".join(keys), "<i4").astype(np.int32).reshape(len(keys), 8)  # [K, 8]
    return to_device(torch.from_numpy(words), device)


def keystream(keys: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Return blocks of the keystreams of some keys under nonce 0, as little-endian words, ``[K, 8 B]`` int64.

    Parameters
    ----------
    keys
        ``[K, 8]`` int32, from :func:`key_words`.
    counts
        Numbers of the B blocks, ``[B]`` int32.

    Examples
    --------
    >>> zeros = key_words([bytes(32)], torch.device("cpu"))
    >>> keystream(zeros, torch.tensor([0], dtype=torch.int32))[0, :2].tolist()
    [-8053014886254331786, 2935650227004792128]
    """
    nothing = torch.zeros_like(counts)
    return blocks(keys, torch.stack([counts, nothing, nothing, nothing])[:, None])


def blocks(keys: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Return any blocks of ChaCha20, as little-endian words, ``[K, 8 B]`` int64.

    It takes 480 operations on tensors, 230 elementary ones on 32 bits for each word.

    Parameters
    ----------
    keys
        ``[K, 8]`` int32, from :func:`key_words`.
    last
        Count and nonce of each block, ``[4, K, B]`` int32, or ``[4, 1, B]`` where they are those of all keys.

    References
    ----------
    RFC 8439, section 2.3.
    """
    constants = torch.stack([torch.full_like(keys[:1, :1], each) for each in _CONSTANTS])  # [4, 1, 1]
    start = constants, keys.T[:4, :, None], keys.T[4:, :, None], last
    shape = 4, len(keys), last.shape[-1]
    a, b, c, d = (part.expand(shape).clone() for part in start)  # rows of the state, [4, K, B] each
    for _ in range(_DOUBLE_ROUNDS):
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)  # diagonals become columns
        a, b, c, d = _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    for part, first in zip((a, b, c, d), start, strict=True):
        part.add_(first)
    found = torch.stack([a, b, c, d]).permute(2, 3, 0, 1).contiguous()  # [K, B, 4, 4]
    return found.view(len(keys), -1).view(torch.int64)  # [K, 8 B]; accelerators are little-endian


def _quarter_rounds(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return four columns after a quarter round of each; the arguments are overwritten."""
    a += b
    d = _rotated(d.bitwise_xor_(a), 16)
    c += d
    b = _rotated(b.bitwise_xor_(c), 12)
    a += b
    d = _rotated(d.bitwise_xor_(a), 8)
    c += d
    b = _rotated(b.bitwise_xor_(c), 7)
    return a, b, c, d


def _rotated(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Return int32 rotated to the left by 7 to 16 bits; their shift to the right copies the sign, hence the mask."""
    low = x >> (32 - bits)
    low &= (1 << bits) - 1
    return low.add_(x, alpha=1 << bits)  # a product wraps around, so its low bits are zero
