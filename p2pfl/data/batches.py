"""Which samples a peer learns from, step by step."""

import numpy as np

from p2pfl.data.dataset import IntArray
from p2pfl.errors import DataError
from p2pfl.rows import draw


def batches(
    samples: int, *, seed: int, peer: str, round: int, batch: int | None, epochs: int, steps: int | None
) -> list[IntArray]:
    """Positions of the samples of each step of one peer in one round.

    Every epoch is a fresh permutation of ``0 .. samples - 1``, drawn by the key
    ``(seed, "batches", peer, round)`` and cut into batches; the last one of an epoch may
    be smaller. One batch of all samples keeps their order.

    Parameters
    ----------
    samples
        How many the peer has; with none there is no step.
    batch
        Samples a step; ``None`` takes all of them.
    epochs
        Passes over the data, unless ``steps`` is given.
    steps
        So many steps instead, within the first epoch or over as many as they need.

    Examples
    --------
    >>> steps = batches(5, seed=7, peer="ada", round=0, batch=2, epochs=1, steps=None)
    >>> [len(step) for step in steps], sorted(np.concatenate(steps).tolist())
    ([2, 2, 1], [0, 1, 2, 3, 4])
    >>> len(batches(5, seed=7, peer="ada", round=0, batch=2, epochs=1, steps=7))
    7
    """
    if batch is not None and batch < 1:
        raise DataError(f"expected at least 1 sample a batch, got {batch}; leave `batch` out to take all samples")
    if not samples:
        return []
    if batch is None or batch >= samples:
        return [np.arange(samples) for _ in range(epochs if steps is None else steps)]
    each = -(-samples // batch)
    count = epochs * each if steps is None else steps
    rng = draw(seed, "batches", peer, round)
    found: list[IntArray] = []
    while len(found) < count:
        order = rng.permutation(samples)
        found += [order[start : start + batch] for start in range(0, samples, batch)]
    return found[:count]
