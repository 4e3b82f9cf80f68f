"""Permutations of the samples of many peers at once, for training on any device."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.core.rows import keys, subkeys, to_device
from p2pfl.data.dataset import IntArray

BLOCK = 2**15
"""Numbers that the CPU sorts at a time, which stay in its cache."""

WIDE = 2**22
"""Numbers that another device sorts at a time."""

PLACE = 2**32 - 1
"""Mask of the bits of a number that hold a position; the bits above are drawn."""


@dataclass(frozen=True)
class Orders:
    """Permutations of each row's samples, one for each epoch.

    Attributes
    ----------
    flat
        Positions within a row's samples, int64 on the device; numbers between two permutations mean nothing.
    base, stride
        ``[R]`` int64: where the first permutation of a row begins in ``flat``, and how far the next one is from it.
    """

    flat: torch.Tensor
    base: IntArray
    stride: IntArray


def orders(
    sizes: IntArray, epochs: IntArray, *, seed: int, peers: tuple[str, ...], round: int, device: torch.device
) -> Orders:
    """Return the permutations of each row's samples in a round, as :func:`p2pfl.data.batches` draws them for one peer.

    The device draws them, of rows of similar sizes at once; the CPU does not wait for it.

    Parameters
    ----------
    sizes, epochs
        Numbers of samples and of permutations, ``[R]``. A row without permutations keeps the order of its samples.
    seed, peers, round
        Keys of the draws.
    device
        Device of the result.

    Examples
    --------
    >>> drawn = orders(np.array([5]), np.array([1]), seed=7, peers=("ada",), round=0, device=torch.device("cpu"))
    >>> sorted(drawn.flat[drawn.base[0] :].tolist())
    [0, 1, 2, 3, 4]
    """
    shuffled = np.flatnonzero(sizes * epochs)
    shuffled = shuffled[np.argsort(-sizes[shuffled], kind="stable")]  # most samples first
    drawn = torch.from_numpy(keys(seed, "batches", peers, round))  # [R]
    end = int(sizes.max(initial=0))
    pieces = [torch.arange(end, device=device)]  # the order of rows without permutations
    base, stride = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    most = BLOCK if device.type == "cpu" else WIDE
    for low, high in _blocks(sizes[shuffled], epochs[shuffled], most=most):
        rows = shuffled[low:high]
        times, width = epochs[rows], int(sizes[rows[0]])
        begins = np.cumsum(times) - times
        epoch = np.arange(times.sum()) - np.repeat(begins, times)  # [K]
        own = np.repeat(rows, times)  # [K]
        each = subkeys(to_device(drawn[own], device), to_device(torch.from_numpy(epoch), device))  # [K]
        even = sizes[rows[-1]] == width
        held = None if even else to_device(torch.from_numpy(sizes[own]), device)  # [K]
        pieces.append(permutations(each, width, sizes=held).flatten())
        base[rows], stride[rows] = end + begins * width, width
        end += len(own) * width
    return Orders(torch.cat(pieces), base, stride)


def permutations(each: torch.Tensor, width: int, *, sizes: torch.Tensor | None = None) -> torch.Tensor:
    """Return a permutation for each key, ``[K, width]``: the order of hashes of the key and of each position.

    Two positions whose hashes are equal keep their order. Any algorithm that sorts gives the same, since the position
    is part of the number that is sorted.

    Parameters
    ----------
    each
        Keys ``[K]``, int64.
    width
        Numbers to permute, ``0 .. width - 1``.
    sizes
        ``[K]``: how many of them a key permutes, which come first; ``None`` for all.

    Examples
    --------
    >>> permutations(torch.tensor([7, 8]), 5)
    tensor([[3, 2, 1, 0, 4],
            [3, 1, 0, 2, 4]])
    """
    place = torch.arange(width, device=each.device)
    hashed = subkeys(each[:, None], place)  # [K, width]
    hashed &= ~PLACE
    hashed |= place
    if sizes is not None:
        hashed = torch.where(place < sizes[:, None], hashed, torch.iinfo(torch.int64).max)
    if hashed.device.type == "cpu":
        hashed.numpy().sort(axis=-1)  # a tenth of the time of torch.sort
    else:
        hashed = hashed.sort(dim=-1).values
    hashed &= PLACE
    return hashed


def _blocks(sizes: IntArray, epochs: IntArray, *, most: int) -> Iterator[tuple[int, int]]:
    """Divide rows, those with most samples first, into blocks that are padded to the size of their first row.

    A row has at least three quarters of the samples of the first in its block, and a block has about ``most`` numbers.
    """
    until = np.cumsum(epochs)
    low = 0
    while low < len(sizes):
        full = np.searchsorted(until, until[low] - epochs[low] + most // sizes[low], side="right")
        alike = np.searchsorted(-sizes, -(sizes[low] * 3 // 4), side="right")
        high = max(low + 1, min(int(full), int(alike)))
        yield low, high
        low = high
