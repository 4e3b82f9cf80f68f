"""Models that travel between workers in a gossip step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.encodings import Ints


@dataclass(frozen=True)
class Boundary:
    """Part of a gossip step that concerns one worker.

    Attributes
    ----------
    matrix
        Weights of its R peers, ``[R, R + B]``: of its own models, then of those that it takes. Those of a receiver are
        in the order of the whole matrix, so that sums have the same rounding.
    outside
        Numbers of the B peers whose models it takes, by worker.
    sent
        Places of the models that it gives, by worker.
    gives, takes
        Number of models for and from each worker.
    """

    matrix: scipy.sparse.csr_array
    outside: Ints
    sent: torch.Tensor
    gives: tuple[int, ...]
    takes: tuple[int, ...]


def boundary(matrix: scipy.sparse.csr_array, *, owner: Ints, worker: int, workers: int) -> Boundary:
    """Return what a worker gives and takes in a gossip step; a model travels once to each worker that needs it.

    Parameters
    ----------
    matrix
        Weights of all receivers, ``[N, N]``.
    owner
        Worker of each peer, ``[N]``.
    worker, workers
        Number of the worker, and number of workers.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> part = boundary(metropolis(ring(4)).matrix, owner=np.array([0, 0, 1, 1]), worker=0, workers=2)
    >>> part.outside.tolist(), part.sent.tolist(), part.gives
    ([2, 3], [0, 1], (0, 2))
    """
    count = len(owner)
    listener = np.repeat(np.arange(count), np.diff(matrix.indptr))  # [E]
    to, sender = np.divmod(np.unique(owner[listener] * count + matrix.indices), count)
    outside = sender[(to == worker) & (owner[sender] != worker)]
    outside = outside[np.argsort(owner[outside], kind="stable")]  # [B]
    given = (to != worker) & (owner[sender] == worker)
    own = np.flatnonzero(owner == worker)  # [R]
    place = np.full(count, -1)  # of each model here
    place[own], place[outside] = np.arange(len(own)), len(own) + np.arange(len(outside))
    part = matrix[own]
    columns = place[part.indices].astype(part.indices.dtype)
    return Boundary(
        scipy.sparse.csr_array((part.data, columns, part.indptr), shape=(len(own), len(own) + len(outside))),
        outside,
        torch.from_numpy(place[sender[given]]),
        tuple(np.bincount(to[given], minlength=workers).tolist()),
        tuple(np.bincount(owner[outside], minlength=workers).tolist()),
    )
