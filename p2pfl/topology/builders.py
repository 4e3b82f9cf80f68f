"""Builders of fixed graphs, one noun per family.

Peers are called ``peer0``, ``peer1``, ... with leading zeros, so that sorting by name sorts by number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Topology


def ring(n: int) -> Topology:
    """Build a ring, in which each peer has two neighbours; two peers share one edge, a single peer has none.

    Parameters
    ----------
    n
        Number of peers, at least 1.

    Returns
    -------
    Topology
        The undirected graph of ``n`` peers.

    Raises
    ------
    TopologyError
        ``n`` is below 1.

    See Also
    --------
    circulant : A ring with more neighbours on either side.
    path : A ring that is open at one place.

    Examples
    --------
    >>> ring(4).edges
    (('peer0', 'peer1'), ('peer0', 'peer3'), ('peer1', 'peer2'), ('peer2', 'peer3'))
    """
    return build_numbered(n, ((i, (i + 1) % n) for i in range(n)))


def path(n: int) -> Topology:
    """Build a path: a ring that is open at one place.

    Returns
    -------
    Topology
        The undirected graph of ``n`` peers.

    Examples
    --------
    >>> path(3).edges
    (('peer0', 'peer1'), ('peer1', 'peer2'))
    """
    return build_numbered(n, ((i, i + 1) for i in range(n - 1)))


def star(n: int) -> Topology:
    """Build a star with peer 0 at its centre.

    Returns
    -------
    Topology
        The undirected graph of ``n`` peers.

    Examples
    --------
    >>> star(3).edges
    (('peer0', 'peer1'), ('peer0', 'peer2'))
    """
    return build_numbered(n, ((0, i) for i in range(1, n)))


def complete(n: int) -> Topology:
    """Build the complete graph, in which every two peers share an edge.

    Returns
    -------
    Topology
        The undirected graph of ``n`` peers.

    Examples
    --------
    >>> complete(3).edges
    (('peer0', 'peer1'), ('peer0', 'peer2'), ('peer1', 'peer2'))
    """
    return Topology.complete(names(n))


def grid(rows: int, columns: int) -> Topology:
    """Build a grid, in which each peer has up to four neighbours.

    Parameters
    ----------
    rows, columns
        Sides of the grid, at least 1 each. Peers are numbered row by row.

    Returns
    -------
    Topology
        The undirected graph of ``rows * columns`` peers.

    Raises
    ------
    TopologyError
        A side is below 1.

    Examples
    --------
    >>> grid(2, 2).edges
    (('peer0', 'peer1'), ('peer0', 'peer2'), ('peer1', 'peer3'), ('peer2', 'peer3'))
    """
    check_at_least_one(min(rows, columns), "rows and columns")
    across = ((r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1))
    down = ((r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns))
    return build_numbered(rows * columns, (*across, *down))


def torus(rows: int, columns: int) -> Topology:
    """Build a grid whose opposite borders touch; a side shorter than three adds no second edge.

    Parameters
    ----------
    rows, columns
        Sides of the torus, at least 1 each. Peers are numbered row by row.

    Returns
    -------
    Topology
        The undirected graph of ``rows * columns`` peers.

    Raises
    ------
    TopologyError
        A side is below 1.

    Examples
    --------
    >>> torus(3, 3).neighbours("peer0")
    ('peer1', 'peer2', 'peer3', 'peer6')
    """
    check_at_least_one(min(rows, columns), "rows and columns")
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    across = ((r * columns + c, r * columns + (c + 1) % columns) for r, c in cells)
    down = ((r * columns + c, (r + 1) % rows * columns + c) for r, c in cells)
    return build_numbered(rows * columns, (*across, *down))


def hypercube(dimension: int) -> Topology:
    """Build the hypercube of ``2 ** dimension`` peers, with an edge where two numbers differ in one bit.

    Returns
    -------
    Topology
        The undirected graph.

    Raises
    ------
    TopologyError
        ``dimension`` is negative.

    Examples
    --------
    >>> hypercube(3).neighbours("peer0")
    ('peer1', 'peer2', 'peer4')
    """
    if dimension < 0:
        raise TopologyError(f"a hypercube cannot have dimension {dimension}; use a dimension of 0 or more")
    n = 2**dimension
    return build_numbered(n, ((i, i ^ 1 << bit) for i in range(n) for bit in range(dimension)))


def circulant(n: int, *, degree: int) -> Topology:
    """Build a circulant graph: each peer has the ``degree / 2`` nearest peers on either side of a ring as neighbours.

    Harary's graph: it stays connected after the loss of any ``degree - 1`` peers.

    Parameters
    ----------
    n
        Number of peers.
    degree
        Number of neighbours, even and at least 2.

    Returns
    -------
    Topology
        The undirected graph.

    Raises
    ------
    TopologyError
        ``degree`` is odd or below 2.

    Examples
    --------
    >>> circulant(6, degree=4).neighbours("peer0")
    ('peer1', 'peer2', 'peer4', 'peer5')
    """
    check_at_least_one(n)
    if degree < 2 or degree % 2:
        raise TopologyError(f"the degree of a circulant graph must be even and at least 2, but it is {degree}; add one")
    return build_numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in range(1, degree // 2 + 1)))


def exponential(n: int) -> Topology:
    """Build the directed exponential graph: peer ``i`` sends to ``i + 1, i + 2, i + 4, ...`` modulo ``n``.

    For even ``n`` the gap is ``2 / (1 + ceil(log2 n))`` (Ying et al. 2021, arXiv 2110.13363).

    Returns
    -------
    Topology
        The directed graph of ``n`` peers.

    See Also
    --------
    p2pfl.topology.one_peer_exponential : The same edges, one per peer and gossip step.

    Examples
    --------
    >>> exponential(8).receivers("peer0")
    ('peer1', 'peer2', 'peer4')
    """
    hops = [2**k for k in range(bits(n))]
    return build_numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in hops), directed=True)


def tree(n: int, *, branching: int = 2) -> Topology:
    """Build a tree with peer 0 at its root and ``branching`` children per peer, filled level by level.

    Parameters
    ----------
    n
        Number of peers.
    branching
        Number of children of each inner peer; 1 gives the :func:`path`.

    Returns
    -------
    Topology
        The undirected graph.

    Raises
    ------
    TopologyError
        ``branching`` is below 1.

    Examples
    --------
    >>> tree(5).edges[:2], tree(5).neighbours("peer1")
    ((('peer0', 'peer1'), ('peer0', 'peer2')), ('peer0', 'peer3', 'peer4'))
    """
    check_at_least_one(branching, "branches (topology.options.branching)")
    return build_numbered(n, (((i - 1) // branching, i) for i in range(1, n)))


def build_numbered(
    n: int, edges: Iterable[tuple[int, int]], *, directed: bool = False, weights: Iterable[float] = ()
) -> Topology:
    """Return the graph of ``n`` peers named by their numbers, without edges from a peer to itself.

    Examples
    --------
    >>> build_numbered(11, [(1, 10)]).edges
    (('peer01', 'peer10'),)
    """
    peers = names(n)
    pairs = tuple((peers[a], peers[b]) for a, b in edges if a != b)
    return Topology(peers, pairs, directed=directed, weights=tuple(weights))


def names(n: int) -> tuple[str, ...]:
    """Return the names of ``n`` peers, whose numbers have as many digits as the largest.

    Examples
    --------
    >>> names(11)[9:]
    ('peer09', 'peer10')
    """
    check_at_least_one(n)
    width = len(str(n - 1))
    return tuple(map(f"peer{{:0{width}d}}".format, range(n)))


def bits(n: int) -> int:
    """Return the smallest ``t`` with ``2 ** t >= n``."""
    check_at_least_one(n)
    return (n - 1).bit_length()


def most_square(n: int) -> int:
    """Return the shorter side of the grid of ``n`` peers that is as square as possible."""
    return max(side for side in range(1, math.isqrt(n) + 1) if n % side == 0)


def check_at_least_one(n: int, subject: str = "peers") -> None:
    """Raise :class:`TopologyError` if a number is below 1."""
    if n < 1:
        raise TopologyError(f"the number of {subject} must be at least 1, but it is {n}; raise it")


def check_degree(n: int, degree: int) -> None:
    """Raise :class:`TopologyError` if no graph of ``n`` peers has this degree."""
    check_at_least_one(n)
    if not 1 <= degree < n:
        raise TopologyError(
            f"the degree must be at least 1 and below the number of peers ({n}), but it is {degree}; change the "
            "degree (topology.degree), add peers, or use a complete graph"
        )


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
    return _draw_connected(lambda rng: nx.watts_strogatz_graph(n, degree, rewire, seed=rng), seed=seed)


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
    check_regular(n, degree)
    return _draw_connected(lambda rng: draw_regular(n, degree, rng), seed=seed)


def check_regular(n: int, degree: int) -> None:
    """Raise :class:`TopologyError` if no graph of ``n`` peers has this degree at every peer."""
    check_degree(n, degree)
    if n * degree % 2:
        raise TopologyError(f"peers times degree must be even, but it is {n} times {degree}; change one of them by one")


def draw_regular(n: int, degree: int, rng: np.random.Generator) -> nx.Graph:
    """Draw a regular graph, which need not be connected."""
    if 2 * degree < n:
        return nx.random_regular_graph(degree, n, seed=_shuffler(rng))
    # Pairing up a dense graph takes many attempts; pairing up its complement does not.
    return nx.complement(nx.random_regular_graph(n - 1 - degree, n, seed=_shuffler(rng)))


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

    return _draw_connected(drawn, seed=seed)


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
    return _draw_connected(lambda rng: nx.fast_gnp_random_graph(n, probability, seed=rng), seed=seed)


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


def _draw_connected(make: Callable[[np.random.Generator], nx.Graph], *, seed: int) -> Topology:
    for attempt in range(_DRAWS):
        graph = make(draw(seed, "topology", round=attempt))
        if nx.is_connected(graph):
            return build_numbered(len(graph), graph.edges())
    raise TopologyError(f"none of {_DRAWS} random graphs is connected; raise the degree or the probability of an edge")


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise TopologyError(f"{name} must be a probability from 0 to 1, but it is {value}; change it")
