"""Builders: one noun per family of graphs.

Peers are called ``peer0`` ... with zeros in front, so that their order is their number's. Random
graphs are drawn by key ``(seed, "topology")`` and redrawn until connected.
"""

from collections.abc import Callable, Iterable

import networkx as nx
import numpy as np

from p2pfl.draws import draw
from p2pfl.errors import TopologyError
from p2pfl.topology.graph import Topology

_DRAWS = 100
"""How often a random graph is drawn before it counts as never connected."""


def ring(n: int) -> Topology:
    """Each peer between two others; a single edge for two peers, none for one."""
    return numbered(n, ((i, (i + 1) % n) for i in range(n)))


def path(n: int) -> Topology:
    """Build a ring that is open at one place."""
    return numbered(n, ((i, i + 1) for i in range(n - 1)))


def star(n: int) -> Topology:
    """Peer 0 in the middle of all others."""
    return numbered(n, ((0, i) for i in range(1, n)))


def complete(n: int) -> Topology:
    """Everybody hears everybody."""
    return numbered(n, ((i, j) for i in range(n) for j in range(i)))


def grid(rows: int, columns: int) -> Topology:
    """Rows and columns, each peer beside up to four others."""
    at_least_one(min(rows, columns), "rows and columns")
    across = ((r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1))
    down = ((r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns))
    return numbered(rows * columns, (*across, *down))


def torus(rows: int, columns: int) -> Topology:
    """Build a grid whose opposite borders touch; a side shorter than three adds no second edge."""
    at_least_one(min(rows, columns), "rows and columns")
    places = [(r, c) for r in range(rows) for c in range(columns)]
    across = ((r * columns + c, r * columns + (c + 1) % columns) for r, c in places)
    down = ((r * columns + c, (r + 1) % rows * columns + c) for r, c in places)
    return numbered(rows * columns, (*across, *down))


def hypercube(dimension: int) -> Topology:
    """``2 ** dimension`` peers, an edge where the numbers differ in one bit."""
    if dimension < 0:
        raise TopologyError(f"expected a hypercube of dimension 0 or more, got {dimension}; raise it")
    n = 2**dimension
    return numbered(n, ((i, i ^ 1 << bit) for i in range(n) for bit in range(dimension)))


def small_world(n: int, *, degree: int, rewire: float, seed: int) -> Topology:
    """Ring of ``degree`` nearest neighbours, each edge rewired with probability ``rewire``.

    Watts and Strogatz (1998), redrawn until connected.

    Raises
    ------
    TopologyError
        ``degree`` odd or not below ``n``, ``rewire`` not a probability, or never connected.
    """
    check_degree(n, degree)
    _check_probability("rewire", rewire)
    if degree % 2:
        raise TopologyError(
            f"expected an even degree for a small world, half on each side, got {degree}; change it by one"
        )
    return _connected(lambda rng: nx.watts_strogatz_graph(n, degree, rewire, seed=rng), seed=seed)


def random_regular(n: int, *, degree: int, seed: int) -> Topology:
    """Every peer has ``degree`` neighbours, drawn at random and redrawn until connected.

    Such graphs are expanders: the gap stays while ``n`` grows.

    Raises
    ------
    TopologyError
        ``degree`` not below ``n``, ``n * degree`` odd, or never connected.
    """
    check_degree(n, degree)
    if n * degree % 2:
        raise TopologyError(
            f"expected peers times degree to be even, got {n} times {degree}; change one of them by one"
        )
    if 2 * degree < n:
        return _connected(lambda rng: nx.random_regular_graph(degree, n, seed=rng), seed=seed)
    # Dense graphs are slow to pair up, their complements are not.
    return _connected(lambda rng: nx.complement(nx.random_regular_graph(n - 1 - degree, n, seed=rng)), seed=seed)


def circulant(n: int, *, degree: int) -> Topology:
    """Each peer beside the ``degree / 2`` next ones on either side of a ring (Harary's graph).

    Any ``degree - 1`` peers may be taken away and the others stay connected.

    Raises
    ------
    TopologyError
        ``degree`` odd or below 2.
    """
    at_least_one(n)
    if degree < 2 or degree % 2:
        raise TopologyError(f"expected an even degree of at least 2, got {degree}; add one")
    return numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in range(1, degree // 2 + 1)))


def random_k_out(n: int, *, degree: int, seed: int) -> Topology:
    """Each peer draws ``degree`` others; an edge is there whoever of its ends drew it.

    Raises
    ------
    TopologyError
        More others to draw than there are, or never connected.

    References
    ----------
    The mask graph of C. Sabater et al. (GOPA), Machine Learning 111, 2022.
    """
    at_least_one(n)
    if not 1 <= degree < max(n, 2):
        raise TopologyError(f"expected a degree of at least 1 and less than {n} peers, got {degree}; change it")

    def drawn(rng: np.random.Generator) -> nx.Graph:
        graph = nx.empty_graph(n)
        for i in range(n):
            others = rng.choice(n - 1, size=min(degree, n - 1), replace=False)
            graph.add_edges_from((i, int(other + (other >= i))) for other in others)
        return graph

    return _connected(drawn, seed=seed)


def erdos_renyi(n: int, *, probability: float, seed: int) -> Topology:
    """Every edge is there with the same probability, redrawn until connected.

    Raises
    ------
    TopologyError
        ``probability`` out of range, or too small to ever connect (below about ``log(n) / n``).
    """
    at_least_one(n)
    _check_probability("probability", probability)
    return _connected(lambda rng: nx.fast_gnp_random_graph(n, probability, seed=rng), seed=seed)


def exponential(n: int) -> Topology:
    """Directed: peer ``i`` sends to ``i + 1, i + 2, i + 4, ...`` modulo ``n``.

    For even ``n`` the gap is ``2 / (1 + ceil(log2 n))`` (Ying et al. 2021, arXiv 2110.13363).
    """
    hops = [2**k for k in range(bits(n))]
    return numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in hops), directed=True)


def tree(n: int, *, branching: int = 2) -> Topology:
    """Peer 0 at the root, each peer above ``branching`` others, level by level; 1 gives the :func:`path`.

    Raises
    ------
    TopologyError
        ``branching`` below 1.

    Examples
    --------
    >>> tree(5).edges[:2], tree(5).neighbours("peer1")
    ((('peer0', 'peer1'), ('peer0', 'peer2')), ('peer0', 'peer3', 'peer4'))
    """
    at_least_one(branching, "branches (topology.branching)")
    return numbered(n, (((i - 1) // branching, i) for i in range(1, n)))


def numbered(
    n: int, edges: Iterable[tuple[int, int]], *, directed: bool = False, weights: Iterable[float] = ()
) -> Topology:
    """Return the graph of ``n`` peers called by their numbers; an edge to oneself is left out.

    Examples
    --------
    >>> numbered(11, [(1, 10)]).edges
    (('peer01', 'peer10'),)
    """
    at_least_one(n)
    width = len(str(n - 1))
    names = [f"peer{i:0{width}d}" for i in range(n)]
    pairs = tuple((names[a], names[b]) for a, b in edges if a != b)
    return Topology(tuple(names), pairs, directed=directed, weights=tuple(weights))


def _connected(make: Callable[[np.random.Generator], nx.Graph], *, seed: int) -> Topology:
    for attempt in range(_DRAWS):
        graph = make(draw(seed, "topology", round=attempt))
        if nx.is_connected(graph):
            return numbered(len(graph), graph.edges())
    raise TopologyError(
        f"expected a random graph that is connected, got {_DRAWS} draws that are not; "
        "raise the degree or the probability of an edge"
    )


def bits(n: int) -> int:
    """Smallest ``t`` with ``2 ** t >= n``."""
    at_least_one(n)
    return (n - 1).bit_length()


def at_least_one(n: int, what: str = "peers") -> None:
    """Refuse numbers below 1."""
    if n < 1:
        raise TopologyError(f"expected at least 1 of {what}, got {n}; raise it")


def check_degree(n: int, degree: int) -> None:
    """Refuse degrees that no graph of ``n`` peers has."""
    at_least_one(n)
    if not 1 <= degree < n:
        raise TopologyError(
            f"expected a degree of at least 1 and below the number of peers ({n}), got {degree}; "
            "change the degree (topology.degree), add peers, or take a complete graph"
        )


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise TopologyError(f"expected {name} to be a probability from 0 to 1, got {value}; change it")
