"""Builders: one noun per family of graphs.

Peers are called ``peer0`` ... with zeros in front, so that their order is their number's. Random
graphs are drawn by key ``(seed, "topology")`` and redrawn until connected.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from difflib import get_close_matches

import networkx as nx
import numpy as np

from p2pfl.errors import TopologyError
from p2pfl.rows import draw
from p2pfl.topology.graph import Schedule, Topology

_DRAWS = 100
"""How often a random graph is drawn before it counts as never connected."""


def ring(n: int) -> Topology:
    """Each peer between two others; a single edge for two peers, none for one."""
    return _numbered(n, ((i, (i + 1) % n) for i in range(n)))


def path(n: int) -> Topology:
    """Build a ring that is open at one place."""
    return _numbered(n, ((i, i + 1) for i in range(n - 1)))


def star(n: int) -> Topology:
    """Peer 0 in the middle of all others."""
    return _numbered(n, ((0, i) for i in range(1, n)))


def complete(n: int) -> Topology:
    """Everybody hears everybody."""
    return _numbered(n, ((i, j) for i in range(n) for j in range(i)))


def grid(rows: int, columns: int) -> Topology:
    """Rows and columns, each peer beside up to four others."""
    _at_least_one(min(rows, columns), "rows and columns")
    across = ((r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1))
    down = ((r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns))
    return _numbered(rows * columns, (*across, *down))


def torus(rows: int, columns: int) -> Topology:
    """Build a grid whose opposite borders touch; a side shorter than three adds no second edge."""
    _at_least_one(min(rows, columns), "rows and columns")
    places = [(r, c) for r in range(rows) for c in range(columns)]
    across = ((r * columns + c, r * columns + (c + 1) % columns) for r, c in places)
    down = ((r * columns + c, (r + 1) % rows * columns + c) for r, c in places)
    return _numbered(rows * columns, (*across, *down))


def hypercube(dimension: int) -> Topology:
    """``2 ** dimension`` peers, an edge where the numbers differ in one bit."""
    if dimension < 0:
        raise TopologyError(f"expected a hypercube of dimension 0 or more, got {dimension}; raise it")
    n = 2**dimension
    return _numbered(n, ((i, i ^ 1 << bit) for i in range(n) for bit in range(dimension)))


def small_world(n: int, *, degree: int, rewire: float, seed: int) -> Topology:
    """Ring of ``degree`` nearest neighbours, each edge rewired with probability ``rewire``.

    Watts and Strogatz (1998), redrawn until connected.

    Raises
    ------
    TopologyError
        ``degree`` odd or not below ``n``, ``rewire`` not a probability, or never connected.
    """
    _check_degree(n, degree)
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
    _check_degree(n, degree)
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
    _at_least_one(n)
    if degree < 2 or degree % 2:
        raise TopologyError(f"expected an even degree of at least 2, got {degree}; add one")
    return _numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in range(1, degree // 2 + 1)))


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
    _at_least_one(n)
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
    _at_least_one(n)
    _check_probability("probability", probability)
    return _connected(lambda rng: nx.fast_gnp_random_graph(n, probability, seed=rng), seed=seed)


def exponential(n: int) -> Topology:
    """Directed: peer ``i`` sends to ``i + 1, i + 2, i + 4, ...`` modulo ``n``.

    For even ``n`` the gap is ``2 / (1 + ceil(log2 n))`` (Ying et al. 2021, arXiv 2110.13363).
    """
    hops = [2**k for k in range(_bits(n))]
    return _numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in hops), directed=True)


def one_peer_exponential(n: int) -> Schedule:
    """Directed: in exchange ``k`` peer ``i`` sends only to ``i + 2 ** k`` modulo ``n``, over and over.

    For ``n = 2 ** t`` the weights of ``t`` exchanges multiply to the exact average
    (Ying et al. 2021, arXiv 2110.13363).
    """
    hops = [2**k for k in range(_bits(n))] or [1]
    return Schedule(tuple(_numbered(n, [(i, (i + hop) % n) for i in range(n)], directed=True) for hop in hops))


BUILDERS: dict[str, Callable[..., Topology | Schedule]] = {
    builder.__name__: builder
    for builder in (
        *(ring, path, star, complete, grid, torus, hypercube),
        *(small_world, random_regular, circulant, random_k_out, erdos_renyi, exponential, one_peer_exponential),
    )
}
"""Every kind an experiment file may name."""


def build(
    kind: str,
    *,
    peers: int,
    seed: int,
    degree: int = 4,
    rewire: float = 0.1,
    probability: float = 0.3,
    rows: int | None = None,
) -> Topology | Schedule:
    """Build any kind from a number of peers; each builder takes what it knows of the rest.

    Parameters
    ----------
    kind
        A key of :data:`BUILDERS`.
    peers
        How many; a power of two for a hypercube.
    rows
        Of a grid or torus; by default it is made as square as the number of peers allows.

    Raises
    ------
    TopologyError
        An unknown kind (the nearest is named), or numbers of which no such graph exists.

    Examples
    --------
    >>> build("torus", peers=12, seed=0) == torus(3, 4)
    True
    """
    if kind not in BUILDERS:
        near = get_close_matches(kind.lower(), BUILDERS, n=1, cutoff=0.0)[0]
        raise TopologyError(f'expected a kind of topology ({", ".join(BUILDERS)}), got "{kind}"; try "{near}"')
    _at_least_one(peers)
    if kind in {"grid", "torus"}:
        rows = _most_square(peers) if rows is None else rows
        if rows < 1 or peers % rows:
            raise TopologyError(f"expected rows of equal length, got {peers} peers in {rows} rows; change one of them")
        return BUILDERS[kind](rows, peers // rows)
    if kind == "hypercube":
        if peers != 2 ** _bits(peers):
            nearest = 2 ** round(math.log2(peers))
            raise TopologyError(f"expected a power of two of peers in a hypercube, got {peers}; try {nearest}")
        return hypercube(_bits(peers))
    options = {"seed": seed, "degree": degree, "rewire": rewire, "probability": probability}
    known = inspect.signature(BUILDERS[kind]).parameters
    return BUILDERS[kind](peers, **{name: value for name, value in options.items() if name in known})


def _numbered(n: int, edges: Iterable[tuple[int, int]], *, directed: bool = False) -> Topology:
    _at_least_one(n)
    width = len(str(n - 1))
    names = [f"peer{i:0{width}d}" for i in range(n)]
    return Topology(tuple(names), tuple((names[a], names[b]) for a, b in edges if a != b), directed=directed)


def _connected(make: Callable[[np.random.Generator], nx.Graph], *, seed: int) -> Topology:
    for attempt in range(_DRAWS):
        graph = make(draw(seed, "topology", round=attempt))
        if nx.is_connected(graph):
            return _numbered(len(graph), graph.edges())
    raise TopologyError(
        f"expected a random graph that is connected, got {_DRAWS} draws that are not; "
        "raise the degree or the probability of an edge"
    )


def _bits(n: int) -> int:
    """Smallest ``t`` with ``2 ** t >= n``."""
    _at_least_one(n)
    return (n - 1).bit_length()


def _most_square(n: int) -> int:
    return max(side for side in range(1, math.isqrt(n) + 1) if n % side == 0)


def _at_least_one(n: int, what: str = "peers") -> None:
    if n < 1:
        raise TopologyError(f"expected at least 1 of {what}, got {n}; raise it")


def _check_degree(n: int, degree: int) -> None:
    _at_least_one(n)
    if not 1 <= degree < n:
        raise TopologyError(
            f"expected a degree of at least 1 and below the number of peers ({n}), got {degree}; "
            "change the degree (topology.degree), add peers, or take a complete graph"
        )


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise TopologyError(f"expected {name} to be a probability from 0 to 1, got {value}; change it")
