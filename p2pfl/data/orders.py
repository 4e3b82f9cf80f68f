"""Permutations of the samples of many peers at once, for training on any device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.data.dataset import IntArray
from p2pfl.rows import draws, placed


@dataclass(frozen=True)
class Orders:
    """Permutations of each row's samples, one for each epoch.

    Attributes
    ----------
    flat
        Positions within a row's samples, int64 on the device.
    base, stride
        ``[R]`` int64: where the first permutation of a row begins in ``flat``, and how far the next one is from it.
    """

    flat: torch.Tensor
    base: IntArray
    stride: IntArray


def orders(
    sizes: IntArray, epochs: IntArray, *, seed: int, peers: Sequence[str], round: int, device: torch.device
) -> Orders:
    """Return the permutations of each row's samples in a round, as :func:`p2pfl.data.batches` draws them for one peer.

    They are drawn on the CPU and copied to the device without waiting for its work.

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
    >>> from p2pfl.rows import draw
    >>> drawn = orders(np.array([5]), np.array([1]), seed=7, peers=["ada"], round=0, device=torch.device("cpu"))
    >>> drawn.flat[drawn.base[0] :].tolist() == draw(7, "batches", "ada", 0).permutation(5).tolist()
    True
    """
    shuffled = np.flatnonzero(sizes * epochs)
    largest = int(sizes.max(initial=0))
    base, stride = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    lengths = (sizes * epochs)[shuffled]
    base[shuffled], stride[shuffled] = largest + np.cumsum(lengths) - lengths, sizes[shuffled]
    flat = np.empty(largest + int(lengths.sum()), np.int64)
    flat[:largest] = np.arange(largest)  # the order of rows without permutations
    generators = draws(seed, "batches", [peers[row] for row in shuffled.tolist()], round)
    begin = largest
    for size, count, random in zip(sizes[shuffled].tolist(), epochs[shuffled].tolist(), generators, strict=True):
        for _ in range(count):
            flat[begin : begin + size] = random.permutation(size)
            begin += size
    return Orders(placed(torch.from_numpy(flat), device), base, stride)
