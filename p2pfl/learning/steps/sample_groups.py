"""Groups of samples that the same rows hold, as the peers of coalitions are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from p2pfl.data import IntArray

SHARED = 2
"""Fewest rows that hold a sample on average."""

LEAST = 32
"""Fewest samples of a group on average: with fewer, calls of Python take longer than copies of features."""


@dataclass(frozen=True)
class SharedSamples:
    """Samples that the same rows hold.

    Attributes
    ----------
    positions
        Positions in the data set, ``[n]``.
    rows
        Numbers of the rows, ascending, ``[k]``.
    times
        How often each of the rows holds each of the samples, ``[k]``.
    """

    positions: IntArray
    rows: IntArray
    times: IntArray


@dataclass(frozen=True)
class Group:
    """Features and targets of samples that the same rows hold, next to each other.

    Attributes
    ----------
    features, targets
        ``[1, B, *shape]`` and ``[1, B]``.
    shared
        The rows, and the positions in the data set.
    """

    features: torch.Tensor
    targets: torch.Tensor
    shared: SharedSamples


def groups(each: Sequence[IntArray]) -> list[SharedSamples] | None:
    """Return the groups of the samples of some rows; ``None`` if too few are shared, or there are too many groups.

    Parameters
    ----------
    each
        Positions of the samples of each row.

    Examples
    --------
    >>> found = groups([np.arange(100), np.arange(60), np.arange(60)])
    >>> [(len(group.positions), group.rows.tolist()) for group in found]
    [(40, [0]), (60, [0, 1, 2])]
    """
    held = np.concatenate([np.empty(0, np.int64), *each])
    positions, inverse = np.unique(held, return_inverse=True)
    if len(held) < max(1, SHARED * len(positions)):
        return None
    labels = np.zeros(len(positions), np.int64)
    for times in _times(each, inverse, count=len(positions)):
        labels = np.unique(labels * (times.max() + 1) + times, return_inverse=True)[1]
        if LEAST * (labels.max() + 1) > len(labels):
            return None
    firsts = np.unique(labels, return_index=True)[1]  # [G]
    held = np.stack([times[firsts] for times in _times(each, inverse, count=len(positions))])  # [R, G]
    found = []
    for label in range(len(firsts)):
        rows = np.flatnonzero(held[:, label])
        found.append(SharedSamples(positions[labels == label], rows, held[rows, label]))
    return found


def _times(each: Sequence[IntArray], inverse: IntArray, *, count: int) -> Iterator[IntArray]:
    """Yield how often each row holds each sample, ``[n]``."""
    low = 0
    for own in each:
        yield np.bincount(inverse[low : low + len(own)], minlength=count)
        low += len(own)
