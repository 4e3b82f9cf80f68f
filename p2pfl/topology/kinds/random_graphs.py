"""Builders of random graphs, drawn by the key ``(seed, "topology")`` and redrawn until they are connected."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Topology
from p2pfl.topology.kinds.builders import build_numbered, check_at_least_one, check_degree

_DRAWS = 100
"""Number of draws after which a random graph counts as never connected."""


def small_world(n: int, *, degree: int, rewire: float, seed: int) -> Topology:
    """Build a Watts-Strogatz graph: a ring lattice whose edges are rewired at random, redrawn until connected.

    Parameters
    ----------
    n
        Number of peers.
    degree
        Number of nearest neighbours that each peer has in the lattice, half of them on each side.
    rewire
        Probability of rewiring each edge, from 0 to 1.
    seed
        Seed of the draws, by the key ``(seed, "topology")``.

    Returns
    -------
    Topology
        The undirected, connected graph.

    Raises
    ------
    TopologyError
        ``degree`` is odd or not below ``n``, ``rewire`` is not a probability, or no draw is connected.

    References
    ----------
    Watts and Strogatz, Collective dynamics of small-world networks, Nature 393, 1998.

    Examples
    --------
    >>> len(small_world(8, degree=2, rewire=0.1, seed=0).edges)
    8
    """
    check_degree(n, degree)
    _check_probability("rewire", rewire)
    if degree % 2:
        raise TopologyError(
            f"the degree of a small world must be even, half on each side, but it is {degree}; change it by one"
        )
    return _connected(lambda rng: nx.watts_strogatz_graph(n, degree, rewire, seed=rng), seed=seed)


def random_regular(n: int, *, degree: int, seed: int) -> Topology:
    """Build a random regular graph, redrawn until connected.

    Such graphs are expanders: their spectral gap stays while ``n`` grows.

    Parameters
    ----------
    n
        Number of peers.
    degree
        Number of neighbours of every peer.
    seed
        Seed of the draws, by the key ``(seed, "topology")``.

    Returns
    -------
    Topology
        The undirected, connected graph.

    Raises
    ------
    TopologyError
        ``degree`` is not below ``n``, ``n * degree`` is odd, or no draw is connected.

    Examples
    --------
    >>> {len(random_regular(8, degree=3, seed=0).neighbours(f"peer{i}")) for i in range(8)}
    {3}
    """
    check_degree(n, degree)
    if n * degree % 2:
        raise TopologyError(f"peers times degree must be even, but it is {n} times {degree}; change one of them by one")
    if 2 * degree < n:
        return _connected(lambda rng: nx.random_regular_graph(degree, n, seed=_shuffler(rng)), seed=seed)
    # Pairing up a dense graph takes many attempts; pairing up its complement does not.
    rest = n - 1 - degree
    return _connected(lambda rng: nx.complement(nx.random_regular_graph(rest, n, seed=_shuffler(rng))), seed=seed)


def random_k_out(n: int, *, degree: int, seed: int) -> Topology:
    """Build a graph in which each peer draws ``degree`` others and shares an edge with each, redrawn until connected.

    Parameters
    ----------
    n
        Number of peers.
    degree
        Number of peers that each peer draws; others may draw it as well.
    seed
        Seed of the draws, by the key ``(seed, "topology")``.

    Returns
    -------
    Topology
        The undirected, connected graph.

    Raises
    ------
    TopologyError
        ``degree`` is below 1 or not below ``n``, or no draw is connected.

    References
    ----------
    The mask graph of C. Sabater et al. (GOPA), Machine Learning 111, 2022.

    Examples
    --------
    >>> min(len(random_k_out(8, degree=2, seed=0).neighbours(f"peer{i}")) for i in range(8))
    2
    """
    check_at_least_one(n)
    if not 1 <= degree < max(n, 2):
        raise TopologyError(f"each of {n} peers cannot draw {degree} others; use a degree from 1 to {max(n, 2) - 1}")

    def drawn(rng: np.random.Generator) -> nx.Graph:
        graph = nx.empty_graph(n)
        for i in range(n):
            others = rng.choice(n - 1, size=min(degree, n - 1), replace=False)
            graph.add_edges_from((i, int(other + (other >= i))) for other in others)
        return graph

    return _connected(drawn, seed=seed)


def erdos_renyi(n: int, *, probability: float, seed: int) -> Topology:
    """Build a graph in which every edge exists with the same probability, redrawn until connected.

    Parameters
    ----------
    n
        Number of peers.
    probability
        Probability of each edge, from 0 to 1.
    seed
        Seed of the draws, by the key ``(seed, "topology")``.

    Returns
    -------
    Topology
        The undirected, connected graph.

    Raises
    ------
    TopologyError
        ``probability`` is out of range, or too small for a connected draw (below about ``log(n) / n``).

    Examples
    --------
    >>> len(erdos_renyi(4, probability=1.0, seed=0).edges)
    6
    """
    check_at_least_one(n)
    _check_probability("probability", probability)
    return _connected(lambda rng: nx.fast_gnp_random_graph(n, probability, seed=rng), seed=seed)


def _shuffler(rng: np.random.Generator) -> Any:
    """Return a generator whose shuffles in networkx are those of ``rng``, but which draws its bits many at a time.

    networkx draws them one by one, which takes minutes for 100,000 peers.
    """
    words = chain.from_iterable(iter(lambda: rng.integers(2**32, size=4096, dtype=np.uint32).tolist(), None))

    def bits(k: int, /) -> int:
        """Return an integer of 1 to 32 random bits."""
        count = (k + 7) // 8
        return int.from_bytes(next(words).to_bytes(4, "little")[:count], "big") >> (8 * count - k)

    shuffler = nx.utils.PythonRandomViaNumpyBits(rng)
    shuffler.getrandbits = bits
    return shuffler


def _connected(make: Callable[[np.random.Generator], nx.Graph], *, seed: int) -> Topology:
    for attempt in range(_DRAWS):
        graph = make(draw(seed, "topology", round=attempt))
        if nx.is_connected(graph):
            return build_numbered(len(graph), graph.edges())
    raise TopologyError(f"none of {_DRAWS} random graphs is connected; raise the degree or the probability of an edge")


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise TopologyError(f"{name} must be a probability from 0 to 1, but it is {value}; change it")
