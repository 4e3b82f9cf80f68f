"""Packing of small whole numbers without unused bits."""

from __future__ import annotations

import numpy as np
import torch


def bits_for(largest: int) -> int:
    """Return the number of bits that hold every whole number from 0 to ``largest``; at least one."""
    return max(1, largest.bit_length())


def bytes_for(count: int, *, bits: int) -> int:
    """Return the number of bytes of ``count`` packed numbers."""
    return -(-count * bits // 8)


def pack_bits(codes: torch.Tensor, *, bits: int) -> torch.Tensor:
    """Pack numbers below ``2 ** bits``, ``[R, K]``, into bytes ``[R, bytes_for(K)]`` uint8, the lowest bit first.

    Examples
    --------
    >>> pack_bits(torch.tensor([[1, 2, 3]]), bits=4)
    tensor([[33,  3]], dtype=torch.uint8)
    >>> unpack_bits(pack_bits(torch.tensor([[5, 0, 7]]), bits=3), bits=3, count=3)
    tensor([[5, 0, 7]])
    """
    values = codes.cpu().numpy()  # [R, K]
    if bits == 8:
        return torch.from_numpy(values.astype(np.uint8))
    planes = np.empty((*values.shape, bits), np.uint8)  # [R, K, bits]
    for bit in range(bits):
        planes[..., bit] = values >> bit & 1
    flat = planes.reshape(*values.shape[:-1], -1)  # [R, K bits]
    return torch.from_numpy(np.packbits(flat, axis=-1, bitorder="little"))  # [R, B]


def unpack_bits(data: torch.Tensor, *, bits: int, count: int) -> torch.Tensor:
    """Unpack bytes of :func:`pack_bits` into ``[R, K]`` int64."""
    values = data.cpu().numpy()  # [R, B]
    if bits == 8:
        return torch.from_numpy(values.astype(np.int64))
    flat = np.unpackbits(values, axis=-1, count=count * bits, bitorder="little")  # [R, K bits]
    planes = flat.reshape(*values.shape[:-1], count, bits)  # [R, K, bits]
    codes = np.zeros(planes.shape[:-1], np.int64)  # [R, K]
    for bit in range(bits):
        codes += planes[..., bit].astype(np.int64) << bit
    return torch.from_numpy(codes)
