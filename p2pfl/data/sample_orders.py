"""Reproducible batches of each training step, of one peer or of many peers at once on any device."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import DataError
from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.data.dataset import IntArray


def batches(
    samples: int, *, seed: int, peer: str, round: int, batch: int | None, epochs: int, steps: int | None
) -> list[IntArray]:
    """Return the positions of the samples in each step of one peer in one round.

    Every epoch is a fresh permutation of ``0 .. samples - 1``, drawn by the key
    ``(seed, "batches", peer, round, epoch)`` and cut into batches; the last one of an epoch may
    be smaller. One batch of all samples keeps their order. :func:`orders` draws the same for many
    peers.

    Parameters
    ----------
    samples
        Number of samples of the peer; without samples there is no step.
    batch
        Samples per step; ``None`` takes all of them.
    epochs
        Passes over the data, unless ``steps`` is given.
    steps
        Number of steps in place of ``epochs``, over as many epochs as they need.

    Returns
    -------
    list of numpy.ndarray
        Positions ``[b]`` of each step, int64.

    Raises
    ------
    DataError
        ``batch`` is below 1.

    Examples
    --------
    >>> steps = batches(5, seed=7, peer="ada", round=0, batch=2, epochs=1, steps=None)
    >>> [len(step) for step in steps], sorted(np.concatenate(steps).tolist())
    ([2, 2, 1], [0, 1, 2, 3, 4])
    >>> len(batches(5, seed=7, peer="ada", round=0, batch=2, epochs=1, steps=7))
    7
    """
    check_batch(batch)
    if not samples:
        return []
    if batch is None or batch >= samples:
        return [np.arange(samples) for _ in range(epochs if steps is None else steps)]
    each = -(-samples // batch)
    count = epochs * each if steps is None else steps
    key = torch.from_numpy(keys(seed, "batches", (peer,), round))  # [1]
    groups: list[IntArray] = []
    for epoch in range(-(-count // each)):
        order = permutations(subkeys(key, epoch), samples)[0].numpy()
        groups += [order[start : start + batch] for start in range(0, samples, batch)]
    return groups[:count]


def check_batch(batch: int | None) -> None:
    """Raise :class:`DataError` for a batch without samples."""
    if batch is not None and batch < 1:
        raise DataError(
            f"a batch must have at least 1 sample, but it has {batch}; leave `batch` out to take all samples"
        )


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
        own_sizes = None if even else to_device(torch.from_numpy(sizes[own]), device)  # [K]
        pieces.append(permutations(each, width, sizes=own_sizes).flatten())
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
    position = torch.arange(width, device=each.device)
    hashed = subkeys(each[:, None], position)  # [K, width]
    hashed &= ~PLACE
    hashed |= position
    if sizes is not None:
        hashed = torch.where(position < sizes[:, None], hashed, torch.iinfo(torch.int64).max)
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
