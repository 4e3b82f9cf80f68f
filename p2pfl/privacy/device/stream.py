"""The normal numbers of :mod:`p2pfl.privacy.normal_stream` as tensor operations, the same to the last bit."""

from __future__ import annotations

from functools import lru_cache

import torch

from p2pfl.core.rows import to_device
from p2pfl.privacy import normal_stream
from p2pfl.privacy.device.chacha import WORDS, keystream

WIDE = 2**23
"""Numbers that a device draws at a time: enough that it computes for longer than the CPU needs to launch its work."""

_MANTISSA = (1 << 52) - 1


def normals(keys: torch.Tensor, columns: slice) -> torch.Tensor:
    """Return the same stretch of several standard normal streams, ``[K, columns]`` float64.

    Parameters
    ----------
    keys
        ``[K, 8]``, from :func:`p2pfl.privacy.device.chacha.key_words`.
    columns
        From a multiple of 8.

    Examples
    --------
    >>> from p2pfl.privacy.device.chacha import key_words
    >>> normals(key_words([bytes(32)], torch.device("cpu")), slice(0, 1)).item()
    0.159709872675285
    """
    counts = torch.arange(
        columns.start // WORDS, -(-columns.stop // WORDS), dtype=torch.int32, device=keys.device
    )  # [B]
    words = keystream(keys, counts)[:, : columns.stop - columns.start]  # [K, columns]
    return _quantiles(words)


def to_grid(values: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Scale and round to whole numbers, half to even; the result overwrites ``values``.

    Examples
    --------
    >>> to_grid(torch.tensor([0.25, -0.75, 3.0], dtype=torch.float64), scale=2.0)
    tensor([ 0, -2,  6])
    """
    values *= scale
    values += normal_stream.ROUNDER
    points = values.view(torch.int64)
    points -= normal_stream.ROUNDER_BITS
    return points


def _quantiles(words: torch.Tensor) -> torch.Tensor:
    """Map random words by the inverse normal distribution function, as :func:`p2pfl.privacy.normal_stream.normals`."""
    bits = words >> 12
    bits &= _MANTISSA  # a shift to the right copies the sign
    bits |= normal_stream.ONE
    q = bits.view(torch.float64)  # 1 + k 2^-52
    q -= 1.5
    q += 2.0**-53  # u - 1/2, exactly
    p = 0.5 - q.abs()  # min(u, 1 - u), exactly
    t = p - (p.view(torch.int64) & normal_stream.CELL).view(torch.float64)  # from the left end of the cell, exactly
    cell = p.view(torch.int64) >> normal_stream.SHIFT
    cell -= normal_stream.FIRST
    third, second, first = _table(str(words.device))
    z = third[cell]
    for coefficients in (second, first):
        z *= t
        z += coefficients[cell]
    return z.copysign_(q)


@lru_cache(maxsize=2)
def _table(device: str) -> tuple[torch.Tensor, ...]:
    """Return the coefficients of the parabolas on a device, ``[cells]`` each."""
    return tuple(to_device(torch.from_numpy(each), torch.device(device)) for each in normal_stream.parabolas())
