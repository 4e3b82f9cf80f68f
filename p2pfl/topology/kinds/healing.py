r"""Graphs that heal: they reconnect around missing peers, and every peer computes them from the names present.

A graph that heals is a union of **cyclic orders** of all names, in each of which a peer is joined to the peers some
hops further on. Each order skips missing peers: the neighbours of a missing peer become each other's. All present
peers therefore lie on one cycle, however few they are, and no loss splits them. In rings, circulants and random
cycles the loss of one peer changes only the edges that reach or span it, at most 3 d / 2 of them for d neighbours.

**Weights.** Peers learn of a loss at different times, and meanwhile see different graphs. Two peers that both see an
edge use it, and it keeps the sum of their models only if it weighs the same at both ends. Metropolis-Hastings weights
do not: they depend on the degrees of both ends, which follow from the view of each (in a ring of three, i knows of
the loss of a peer and gives j 1 / 2; j does not and gives i 1 / 3). Every edge of a graph that heals therefore weighs
:math:`1 / (d + 1)`, where d is the largest degree of the *whole* graph. A peer keeps the rest for its own model,
never less than :math:`1 / (d + 1)`, because a smaller graph has no larger degrees. With no peer missing, these are
the Metropolis-Hastings weights wherever all degrees are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology.graph import Schedule, Topology, brief
from p2pfl.topology.kinds import builders
from p2pfl.topology.kinds.builders import at_least_one
from p2pfl.topology.kinds.schedules import one_peer_exponential
from p2pfl.topology.mixing.weights import Weights, max_degree

KINDS = ("ring", "circulant", "random_regular", "exponential", "one_peer_exponential")
"""Kinds of topology that are unions of cyclic orders, or can be built as such."""

_DRAWS = 100
"""Number of draws of a random cycle, of which the best is kept."""


@dataclass(frozen=True)
class Healing:
    """Graph, or schedule of graphs, over any subset of its peers.

    Parameters
    ----------
    orders
        Names in each cyclic order.
    build
        Builder that joins a number of peers of one order, such as a ring.

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
        """Graph with no peer missing."""
        return self._over(self.peers)

    def over(self, there: Collection[str]) -> Topology | Schedule:
        """Return the graph of the peers that are present, with the period of the whole graph (some steps may repeat).

        Parameters
        ----------
        there
            Names of the peers that are present.

        Returns
        -------
        Topology or Schedule
            The graph over these peers.

        Raises
        ------
        TopologyError
            A name is unknown, or there are none.
        """
        if strangers := sorted(set(there) - set(self.orders[0])):
            raise TopologyError(f"the whole graph has no peers named {brief(strangers)}; correct the names")
        graph, period = self._over(frozenset(there)), self.whole.period
        return graph if graph.period == period else Schedule(tuple(graph.at(phase) for phase in range(period)))

    def _over(self, there: Collection[str]) -> Topology | Schedule:
        rows = [tuple(name for name in order if name in there) for order in self.orders]
        graphs = [self.build(len(row)).named(row) for row in rows]
        return graphs[0] if len(graphs) == 1 else _joined([graph.union for graph in graphs])

    def weights(self, graph: Topology | Schedule) -> tuple[Weights, ...]:
        """Return the weights of a graph that :meth:`over` built, one matrix per gossip step of the period."""
        return tuple(max_degree(graph.at(phase), degree=degree) for phase, degree in enumerate(self._degrees))

    @cached_property
    def _degrees(self) -> tuple[int, ...]:
        """Largest number of peers that any peer receives from in each gossip step, with no peer missing."""
        graphs = [self.whole.at(phase) for phase in range(self.whole.period)]
        return tuple(max(len(graph.senders(peer)) for peer in graph.peers) for graph in graphs)


def healing(kind: str, *, peers: int, seed: int, degree: int = 4) -> Healing:
    """Build a graph that heals.

    A ``random_regular`` graph is not drawn as by :func:`random_regular`, but as ``degree / 2`` random cycles, each
    of which shares the fewest edges with the previous ones among a hundred draws. Such unions are expanders as well.
    Where an edge lies on two cycles, its ends have one neighbour fewer.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    peers
        Number of peers of the whole graph.
    seed
        Seed of random cycles, by the key ``(seed, "topology")``.
    degree
        Even degree of circulants and random cycles.

    Raises
    ------
    TopologyError
        The kind cannot heal, or the degree is odd or no graph has it.

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
            f'a topology of kind "{kind}" cannot heal, as it is no union of cyclic orders; use one of '
            f"{', '.join(KINDS)}"
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
            "a random regular graph that heals is a sum of cycles and needs an even degree, but it is "
            f"{degree}; change it by one"
        )
    return Healing(_cycles(names, degree // 2, seed=seed), builders.ring)


def _cycles(names: tuple[str, ...], count: int, *, seed: int) -> tuple[tuple[str, ...], ...]:
    """Draw random orders, each of which shares the fewest edges with the previous ones among a hundred draws."""
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
