"""Reproducible batches: the samples of each training step."""

import numpy as np
import torch

from p2pfl.core.errors import DataError
from p2pfl.core.rows import keys, subkeys
from p2pfl.data.dataset import IntArray
from p2pfl.data.orders import permutations


def batches(
    samples: int, *, seed: int, peer: str, round: int, batch: int | None, epochs: int, steps: int | None
) -> list[IntArray]:
    """Return the positions of the samples in each step of one peer in one round.

    Every epoch is a fresh permutation of ``0 .. samples - 1``, drawn by the key
    ``(seed, "batches", peer, round, epoch)`` and cut into batches; the last one of an epoch may
    be smaller. One batch of all samples keeps their order. :func:`p2pfl.data.orders` draws the same for many peers.

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
    found: list[IntArray] = []
    for epoch in range(-(-count // each)):
        order = permutations(subkeys(key, epoch), samples)[0].numpy()
        found += [order[start : start + batch] for start in range(0, samples, batch)]
    return found[:count]


def check_batch(batch: int | None) -> None:
    """Raise :class:`DataError` for a batch without samples."""
    if batch is not None and batch < 1:
        raise DataError(
            f"a batch must have at least 1 sample, but it has {batch}; leave `batch` out to take all samples"
        )
