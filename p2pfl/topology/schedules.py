"""Schedules: one noun per family of graphs that take turns.

All peers compute the same schedule, by key where it is random, and need not talk about it.
"""

from collections.abc import Iterable
from itertools import combinations, pairwise

import networkx as nx
import numpy as np

from p2pfl.draws import draw
from p2pfl.errors import TopologyError
from p2pfl.topology.builders import at_least_one, bits, check_degree, numbered
from p2pfl.topology.graph import Schedule, Topology


def one_peer_exponential(n: int) -> Schedule:
    """Directed: in exchange ``k`` peer ``i`` sends only to ``i + 2 ** k`` modulo ``n``, over and over.

    For ``n = 2 ** t`` the weights of ``t`` exchanges multiply to the exact average
    (Ying et al. 2021, arXiv 2110.13363).

    Examples
    --------
    >>> [graph.heard_by("peer0") for graph in one_peer_exponential(8).topologies]
    [('peer1',), ('peer2',), ('peer4',)]
    """
    hops = [2**k for k in range(bits(n))] or [1]
    return Schedule(tuple(numbered(n, [(i, (i + hop) % n) for i in range(n)], directed=True) for hop in hops))


def double_binary_tree(n: int) -> Schedule:
    r"""Two binary trees in turn; whoever is inside one is a leaf of the other.

    In the first, counted from zero, peer :math:`i = (2 a + 1) 2^h` lies at height h, where its parent is
    the even one of :math:`i \pm 2^h` that exists, so that odd peers are leaves; peer 0 is on top. The second
    is the first from the other end (n even) or moved on by one (n odd).

    References
    ----------
    Sanders, Speck and Träff, Two-tree algorithms for full bandwidth broadcast, reduction and scan,
    Parallel Computing 35, 2009.

    Examples
    --------
    >>> one, other = double_binary_tree(8).topologies
    >>> one.neighbours("peer2"), other.neighbours("peer2")
    (('peer1', 'peer3', 'peer4'), ('peer1',))
    """
    at_least_one(n)
    edges = [(_parent(i, n), i) for i in range(1, n)]
    moved = [n - 1 - i if n % 2 == 0 else (i + 1) % n for i in range(n)]
    return Schedule((numbered(n, edges), numbered(n, ((moved[a], moved[b]) for a, b in edges))))


def hierarchical(n: int, *, clusters: int = 4, inside: str = "complete", every: int = 4) -> Schedule:
    r"""Clusters that mix in every exchange, and bridges between them in the last one of ``every``.

    Clusters are runs of peers, equal up to one; a bridge joins the last peer of each with the first of
    the next, all around. Where there are no bridges the weights are Metropolis-Hastings'. Where there are,
    each bridge takes :math:`1/2` (as Metropolis-Hastings has it for bridges alone) and the other edges of
    those who bridge keep half of their weight: all exchanges are doubly stochastic, and what crosses a bridge
    does not dwindle as clusters grow.

    Parameters
    ----------
    n
        How many peers.
    clusters
        How many groups; 1 has no bridges.
    inside
        ``complete`` or ``ring``.
    every
        K: exchanges until the bridges are used again.

    Raises
    ------
    TopologyError
        More clusters than peers, ``every`` below 1, or another kind inside.

    Examples
    --------
    >>> inner, bridged = hierarchical(6, clusters=2, every=2).topologies
    >>> sorted(set(bridged.edges) - set(inner.edges))
    [('peer0', 'peer5'), ('peer2', 'peer3')]
    """
    at_least_one(n)
    at_least_one(every, "exchanges from bridge to bridge (topology.every)")
    if inside not in {"complete", "ring"}:
        raise TopologyError(f'expected clusters that are "complete" or "ring" inside, got "{inside}"; take one of them')
    if not 1 <= clusters <= n:
        raise TopologyError(f"expected 1 to {n} clusters of {n} peers, got {clusters}; change it")
    first = [n * c // clusters for c in range(clusters + 1)]
    groups = [range(a, b) for a, b in pairwise(first)]
    inner = numbered(n, (edge for group in groups for edge in _inside(group, inside)))
    if clusters == 1:
        return Schedule((inner,))
    outer = numbered(n, ((groups[c - 1][-1], groups[c][0]) for c in range(clusters)))
    return Schedule((*[inner] * (every - 1), _bridged(inner, outer)))


def epidemic_oracle(n: int, *, degree: int = 4, period: int = 64, seed: int) -> Schedule:
    r"""Epidemic Learning, EL-Oracle: in every exchange another random graph of ``degree`` neighbours each.

    With Metropolis-Hastings weights, which are :math:`1 / (s + 1)` here, an exchange leaves

    .. math:: \alpha_s = \frac{1 - s / (n - 1)}{s + 1}

    of the squared deviation from the mean, on average over where it is (:func:`p2pfl.topology.remainder`).

    Parameters
    ----------
    n
        How many peers.
    degree
        s.
    period
        After how many exchanges the draws repeat; live, each keeps streams of its own.
    seed
        Of the draws, by key ``(seed, "topology")`` and the exchange.

    Raises
    ------
    TopologyError
        ``degree`` not below ``n``, or ``n * degree`` odd.

    References
    ----------
    De Vos et al., Epidemic learning: boosting decentralized learning with randomized communication,
    NeurIPS 2023.
    """
    check_degree(n, degree)
    at_least_one(period, "exchanges in a period (topology.period)")
    if n * degree % 2:
        raise TopologyError(
            f"expected peers times degree to be even, got {n} times {degree}; change one of them by one"
        )
    sparse = 2 * degree < n  # dense graphs are slow to pair up, their complements are not
    graphs = []
    for exchange in range(period):
        rng = draw(seed, "topology", round=exchange)
        graph = nx.random_regular_graph(degree if sparse else n - 1 - degree, n, seed=rng)
        graphs.append(numbered(n, (graph if sparse else nx.complement(graph)).edges()))
    return Schedule(tuple(graphs))


def epidemic_local(n: int, *, degree: int = 4, period: int = 64, seed: int) -> Schedule:
    r"""Epidemic Learning, EL-Local: in every exchange each peer pushes to ``degree`` random others.

    Directed. A listener gives itself and all d whom it hears :math:`1 / (1 + d)`: its weights sum to one,
    those of a sender need not, so that the mean moves a little (and masks do not cancel). An exchange leaves

    .. math:: \beta_s = \frac{1 - (1 - s / (n - 1))^n}{s} - \frac{1}{n - 1}

    of the squared deviation, about the mean before it.

    Parameters
    ----------
    n
        How many peers.
    degree
        s.
    period
        After how many exchanges the draws repeat; live, each keeps streams of its own.
    seed
        Of the draws, by key ``(seed, "topology", peer)`` and the exchange.

    Raises
    ------
    TopologyError
        ``degree`` not below ``n``.

    References
    ----------
    De Vos et al., NeurIPS 2023, as :func:`epidemic_oracle`.

    Examples
    --------
    >>> graph = epidemic_local(6, degree=2, seed=1).at(0)
    >>> {len(graph.heard_by(peer)) for peer in graph.peers}
    {2}
    """
    check_degree(n, degree)
    at_least_one(period, "exchanges in a period (topology.period)")
    return Schedule(tuple(_pushed(n, degree, exchange=exchange, seed=seed) for exchange in range(period)))


def _inside(group: range, kind: str) -> Iterable[tuple[int, int]]:
    if kind == "ring":
        return zip(group, [*group[1:], group[0]], strict=True)
    return combinations(group, 2)


def _bridged(inner: Topology, outer: Topology) -> Topology:
    """Both graphs at once; inner edges of those who bridge keep half of their weight."""
    bridging = {peer for edge in outer.edges for peer in edge}
    weight = {edge: _share(inner, edge) / (2 if bridging & set(edge) else 1) for edge in inner.edges}
    weight |= {edge: _share(outer, edge) for edge in outer.edges}
    return Topology(inner.peers, tuple(weight), weights=tuple(weight.values()))


def _share(topology: Topology, edge: tuple[str, str]) -> float:
    """As Metropolis-Hastings has it."""
    return 1.0 / (1.0 + max(len(topology.hears(peer)) for peer in edge))


def _pushed(n: int, degree: int, *, exchange: int, seed: int) -> Topology:
    rng = draw(seed, "topology", round=exchange)
    others = np.stack([rng.choice(n - 1, size=degree, replace=False) for _ in range(n)])  # [N, s]
    others += others >= np.arange(n)[:, None]  # nobody draws himself
    heard = np.bincount(others.ravel(), minlength=n).tolist()
    edges = [(sender, listener) for sender, row in enumerate(others.tolist()) for listener in row]
    return numbered(n, edges, directed=True, weights=(1.0 / (1.0 + heard[listener]) for _, listener in edges))


def _parent(i: int, n: int) -> int:
    """Whom peer ``i`` of ``n`` is below in the first of two trees; the highest is below peer 0."""
    height = i & -i
    above = (i ^ height) | 2 * height
    return above if above < n else i ^ height
