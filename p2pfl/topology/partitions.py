"""Partitions of the peers of a graph into parts with few edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy.sparse  # imports csgraph when that is first used, which takes 10 MiB

from p2pfl.core.errors import TopologyError
from p2pfl.topology.mixing.weights import Weights

Places = npt.NDArray[np.int64]
"""Numbers of peers."""


def partition(weights: Sequence[Weights], parts: int) -> list[Places]:
    """Divide the peers into parts whose sizes differ by at most one, and between which few models travel.

    Parts are successive blocks of an order of the peers: that of the topology, or the reverse Cuthill-McKee order of
    its edges, which places neighbours close to each other, whichever cuts fewer edges.

    Parameters
    ----------
    weights
        Mixing weights of each gossip step of a period.
    parts
        Number of parts.

    Returns
    -------
    list of ndarray
        Numbers of the peers of each part, sorted.

    Raises
    ------
    TopologyError
        There are fewer peers than parts.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> [part.tolist() for part in partition([metropolis(ring(5))], 2)]
    [[0, 1], [2, 3, 4]]

    References
    ----------
    Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices, ACM 1969.
    """
    count = len(weights[0].peers)
    if parts > count:
        raise TopologyError(f"{count} peers cannot be divided among {parts} workers; start at most {count}")
    edges = _edges(weights)
    orders = [np.arange(count), scipy.sparse.csgraph.reverse_cuthill_mckee(edges, symmetric_mode=True).astype(np.int64)]
    found = [_blocks(order, parts) for order in orders]
    return min(found, key=lambda blocks: crossings(edges, blocks))


def _edges(weights: Sequence[Weights]) -> scipy.sparse.csr_array:
    """Return a symmetric matrix whose entries are the edges of all gossip steps."""
    total = scipy.sparse.csr_array(weights[0].matrix.shape, dtype=np.float64)
    for each in weights:
        total = total + abs(each.matrix)
    return scipy.sparse.csr_array(total + total.T)


def _blocks(order: Places, parts: int) -> list[Places]:
    """Return successive blocks of an order, each sorted."""
    bounds = np.arange(parts + 1) * len(order) // parts
    return [np.sort(order[low:high]) for low, high in pairwise(bounds)]


def crossings(edges: scipy.sparse.csr_array, blocks: Sequence[Places]) -> int:
    """Return how many models travel between parts: each once to each part that has a neighbour of its peer."""
    owner = owners(blocks)
    listener = np.repeat(np.arange(len(owner)), np.diff(edges.indptr))  # [E]
    pairs = owner[listener] * len(owner) + edges.indices
    return len(np.unique(pairs[owner[listener] != owner[edges.indices]]))


def owners(blocks: Sequence[Places]) -> Places:
    """Return the part of each peer, ``[N]``."""
    owner = np.empty(sum(map(len, blocks)), np.int64)
    for number, block in enumerate(blocks):
        owner[block] = number
    return owner
