"""Models that travel between workers in a gossip step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.encodings import Ints


@dataclass(frozen=True)
class Crossing:
    """Models that cross the boundary of one worker, out of M that all workers hold together.

    Attributes
    ----------
    place
        Place of each model here: those that the worker holds come first, then those that it takes; -1 elsewhere,
        ``[M]``.
    outside
        Numbers of the B models that it takes, by worker.
    sent
        Places of the models that it gives, by worker.
    gives, takes
        Number of models for and from each worker.
    """

    place: Ints
    outside: Ints
    sent: torch.Tensor
    gives: tuple[int, ...]
    takes: tuple[int, ...]


def crossing(to: Ints, model: Ints, *, owner: Ints, worker: int, workers: int) -> Crossing:
    """Return what a worker gives and takes; a model travels once to each worker that needs it.

    Parameters
    ----------
    to, model
        Worker of each receiver, and number of the model that it receives, ``[E]`` each.
    owner
        Worker that holds each model, ``[M]``.
    worker, workers
        Number of the worker, and number of workers.

    Examples
    --------
    >>> found = crossing(np.array([0, 0]), np.array([2, 2]), owner=np.array([0, 0, 1]), worker=0, workers=2)
    >>> found.outside.tolist(), found.place.tolist()
    ([2], [0, 1, 2])
    """
    count = len(owner)
    pairs = np.unique(to * count + model)
    to, model = np.divmod(pairs, count)
    outside = model[(to == worker) & (owner[model] != worker)]
    outside = outside[np.argsort(owner[outside], kind="stable")]  # [B]
    given = (to != worker) & (owner[model] == worker)
    own = np.flatnonzero(owner == worker)  # [R]
    place = np.full(count, -1)
    place[own], place[outside] = np.arange(len(own)), len(own) + np.arange(len(outside))
    return Crossing(
        place,
        outside,
        torch.from_numpy(place[model[given]]),
        tuple(np.bincount(to[given], minlength=workers).tolist()),
        tuple(np.bincount(owner[outside], minlength=workers).tolist()),
    )


@dataclass(frozen=True)
class Boundary:
    """Part of a gossip step that concerns one worker.

    Attributes
    ----------
    matrix
        Weights of its R peers, ``[R, R + B]``: of its own models, then of those that it takes. Those of a receiver are
        in the order of the whole matrix, so that sums have the same rounding.
    crossing
        Models that it gives and takes.
    """

    matrix: scipy.sparse.csr_array
    crossing: Crossing


def boundary(matrix: scipy.sparse.csr_array, *, owner: Ints, worker: int, workers: int) -> Boundary:
    """Return what a worker gives and takes in a gossip step.

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
    >>> found = boundary(metropolis(ring(4)).matrix, owner=np.array([0, 0, 1, 1]), worker=0, workers=2)
    >>> found.crossing.outside.tolist(), found.crossing.sent.tolist(), found.crossing.gives
    ([2, 3], [0, 1], (0, 2))
    """
    own = np.flatnonzero(owner == worker)  # [R]
    listener = np.repeat(np.arange(len(owner)), np.diff(matrix.indptr))  # [E]
    at = crossing(owner[listener], matrix.indices, owner=owner, worker=worker, workers=workers)
    part = matrix[own]
    local = scipy.sparse.csr_array(
        (part.data, at.place[part.indices].astype(part.indices.dtype), part.indptr),
        shape=(len(own), len(own) + len(at.outside)),
    )
    return Boundary(local, at)
