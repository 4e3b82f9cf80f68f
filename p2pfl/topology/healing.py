r"""Graphs that close over whoever is missing, as every peer computes them from the names that are there.

A graph that heals is a union of **cyclic orders** of all names, in each of which a peer is joined to those some hops
further on. Who is missing is skipped in each order: its neighbours in it become each other's. So whoever is there
is on a cycle of all that are there, however few they are, and no loss splits them. In rings, circulants and random
cycles a loss of one changes only the edges that reach it or span it, no more than 3 d / 2 of them for d neighbours.

**Weights.** For a time peers do not know the same of who is there: one has heard of a death, another has not. Where
both believe in an edge they use it, and the sum of their rows stays as it is only if it weighs alike at both ends.
Metropolis-Hastings' weights do not: they depend on the degrees of both ends, which follow from what each believes (of
a ring of three, i has heard that one died and would give j 1 / 2, j has not and would give i 1 / 3). So an edge weighs
:math:`1 / (d + 1)` in any graph that heals, d the largest degree of the *whole* graph, whoever is there; what is
missing to one is the own row's, and never less than :math:`1 / (d + 1)`, as fewer peers have no more neighbours each.
With nobody missing these are Metropolis-Hastings' weights wherever all degrees are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from p2pfl.draws import draw
from p2pfl.errors import TopologyError
from p2pfl.topology import builders
from p2pfl.topology.builders import at_least_one
from p2pfl.topology.graph import Schedule, Topology, brief
from p2pfl.topology.schedules import one_peer_exponential
from p2pfl.topology.weights import Weights, max_degree

KINDS = ("ring", "circulant", "random_regular", "exponential", "one_peer_exponential")
"""Those that are cyclic orders, or can be."""

_DRAWS = 100
"""Of a random cycle, of which the best counts."""


@dataclass(frozen=True)
class Healing:
    """A graph, or one per exchange, over any of its peers.

    Parameters
    ----------
    orders
        The names in each cyclic order.
    build
        What joins so many peers of one order: a ring, say.

    Examples
    --------
    >>> ring = healing("ring", peers=6, seed=0)
    >>> ring.over(["peer0", "peer1", "peer3", "peer4", "peer5"]).neighbours("peer1")
    ('peer0', 'peer3')
    """

    orders: tuple[tuple[str, ...], ...]
    build: Callable[[int], Topology | Schedule]

    @property
    def peers(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self.orders[0]))

    @cached_property
    def whole(self) -> Topology | Schedule:
        """The graph with nobody missing."""
        return self._over(self.peers)

    def over(self, there: Collection[str]) -> Topology | Schedule:
        """Return the graph of those who are there; of the period of the whole one, though some of it may repeat.

        Raises
        ------
        TopologyError
            A stranger, or nobody.
        """
        if strangers := sorted(set(there) - set(self.orders[0])):
            raise TopologyError(f"expected names of the whole graph, got {brief(strangers)}: correct them")
        graph, period = self._over(frozenset(there)), self.whole.period
        return graph if graph.period == period else Schedule(tuple(graph.at(phase) for phase in range(period)))

    def _over(self, there: Collection[str]) -> Topology | Schedule:
        rows = [tuple(name for name in order if name in there) for order in self.orders]
        graphs = [self.build(len(row)).named(row) for row in rows]
        return graphs[0] if len(graphs) == 1 else _joined([graph.union for graph in graphs])

    def weights(self, graph: Topology | Schedule) -> tuple[Weights, ...]:
        """Return the weights of a graph that is :meth:`over` some, one matrix for each exchange of the period."""
        return tuple(max_degree(graph.at(phase), degree=degree) for phase, degree in enumerate(self._degrees))

    @cached_property
    def _degrees(self) -> tuple[int, ...]:
        """By exchange, the most that anybody hears while nobody is missing."""
        graphs = [self.whole.at(phase) for phase in range(self.whole.period)]
        return tuple(max(len(graph.hears(peer)) for peer in graph.peers) for graph in graphs)


def healing(kind: str, *, peers: int, seed: int, degree: int = 4) -> Healing:
    r"""Make a graph that heals.

    A ``random_regular`` one is drawn otherwise than :func:`random_regular` draws it: as ``degree / 2`` random cycles,
    each of a hundred draws that which shares fewest edges with those before. Such unions are expanders as well. Where
    an edge lies on two cycles its ends have a neighbour fewer.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    peers
        How many there are when all are.
    seed
        Of random cycles, by key ``(seed, "topology")``.
    degree
        Of circulants and random cycles; even.

    Raises
    ------
    TopologyError
        A kind that cannot heal, or a degree that is odd or of which no graph exists.

    References
    ----------
    Unions of random Hamiltonian cycles: Law and Siu, Distributed construction of random expander networks, INFOCOM
    2003; Friedman, Kahn and Szemerédi, On the second eigenvalue of random regular graphs, STOC 1989.

    Examples
    --------
    >>> healing("exponential", peers=8, seed=0).whole == builders.exponential(8)
    True
    """
    if kind not in KINDS:
        raise TopologyError(
            f'expected a kind of topology that heals ({", ".join(KINDS)}), got "{kind}", which is no union of cyclic '
            "orders: take one of them"
        )
    at_least_one(peers)
    names = builders.ring(peers).peers
    if kind != "random_regular":
        build: dict[str, Callable[[int], Topology | Schedule]] = {
            "ring": builders.ring,
            "circulant": partial(builders.circulant, degree=degree),
            "exponential": builders.exponential,
            "one_peer_exponential": one_peer_exponential,
        }
        return Healing((names,), build[kind])
    builders.check_degree(peers, degree)
    if degree % 2:
        raise TopologyError(
            f"expected an even degree of a random regular graph that heals, a sum of cycles, got {degree}; change it "
            "by one"
        )
    return Healing(_cycles(names, degree // 2, seed=seed), builders.ring)


def _cycles(names: tuple[str, ...], count: int, *, seed: int) -> tuple[tuple[str, ...], ...]:
    """Random orders, each of a hundred that which shares fewest edges with those before."""
    chosen: list[tuple[str, ...]] = []
    taken: set[frozenset[str]] = set()
    for number in range(count):
        rng = draw(seed, "topology", round=number)
        drawn = [tuple(names[place] for place in rng.permutation(len(names))) for _ in range(_DRAWS)]
        chosen.append(min(drawn, key=lambda order: len(taken & _edges(order))))
        taken |= _edges(chosen[-1])
    return tuple(chosen)


def _edges(order: tuple[str, ...]) -> set[frozenset[str]]:
    return {frozenset(edge) for edge in pairwise((order[-1], *order))}


def _joined(graphs: list[Topology]) -> Topology:
    return Topology(graphs[0].peers, tuple(edge for graph in graphs for edge in graph.edges))
