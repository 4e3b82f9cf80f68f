"""Spanning trees, along which sums go up to a root and totals down, and peers whose absence disconnects a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Schedule, Topology, brief


@dataclass(frozen=True)
class Tree:
    """Rooted spanning tree.

    Parameters
    ----------
    root
        The peer at which all sums end.
    parents
        Parent of every other peer.

    Examples
    --------
    >>> tree = Tree("bob", {"ada": "bob", "cleo": "bob", "dan": "cleo"})
    >>> tree.children("bob"), tree.subtree("cleo")
    (('ada', 'cleo'), ('cleo', 'dan'))
    """

    root: str
    parents: Mapping[str, str]

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """All peers of the tree, sorted."""
        return tuple(sorted((self.root, *self.parents)))

    def parent(self, peer: str) -> str | None:
        """Return the parent of a peer; ``None`` for the root."""
        return self.parents.get(peer)

    def children(self, peer: str) -> tuple[str, ...]:
        """Return the children of a peer, sorted."""
        return self._children.get(peer, ())

    def subtree(self, peer: str) -> tuple[str, ...]:
        """Return a peer and all peers below it, sorted."""
        found = [peer]
        for each in found:  # which grows
            found += self.children(each)
        return tuple(sorted(found))

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for child, parent in sorted(self.parents.items()):
            found.setdefault(parent, []).append(child)
        return {parent: tuple(children) for parent, children in found.items()}


def spanning(graph: Topology | Schedule, *, among: Collection[str]) -> Tree:
    """Return the breadth-first tree of a participant set, from the first peer of its centre in the order of names.

    Every peer that knows the graph and the set computes the same tree.

    Parameters
    ----------
    graph
        Edges count in both directions, for peers at both ends can send to each other. Of equally near parents a peer
        has the one with which it shares an edge in the earliest graph of a schedule, which are the innermost groups of
        :func:`~p2pfl.topology.nested`, so one edge leads out of each group; then the first one in the order of names.
    among
        Participants.

    Raises
    ------
    TopologyError
        There are no participants or unknown ones, or the participants are not connected.

    Examples
    --------
    >>> from p2pfl.topology import path, ring
    >>> spanning(path(3), among=["peer0", "peer1", "peer2"]).root
    'peer1'
    >>> spanning(ring(4), among=ring(4).peers)
    Tree(root='peer0', parents={'peer1': 'peer0', 'peer3': 'peer0', 'peer2': 'peer1'})
    >>> from p2pfl.topology import nested
    >>> spanning(nested(6, levels=[2, 3]), among=nested(6).peers).parents["peer4"]
    'peer3'
    """
    return _spanning(graph, tuple(sorted({*among})))


@lru_cache(maxsize=64)
def _spanning(graph: Topology | Schedule, among: tuple[str, ...]) -> Tree:
    whole = graph.union if isinstance(graph, Schedule) else graph
    _check(whole, among)
    rest, root = {*among}, _centre(whole, among)
    graphs = graph.topologies if isinstance(graph, Schedule) else (graph,)
    ranks = {edge: rank for rank, each in reversed([*enumerate(graphs)]) for edge in each.edges}
    parents, frontier = dict[str, str](), [root]
    rest.discard(root)
    while frontier:
        found = dict[str, tuple[int, str]]()  # in the order in which peers are reached
        for peer in frontier:
            for other in whole.neighbours(peer):
                if other in rest:
                    rank = min(ranks.get(edge, len(graphs)) for edge in ((peer, other), (other, peer)))
                    if other not in found or rank < found[other][0]:
                        found[other] = rank, peer
        parents |= {other: peer for other, (_, peer) in found.items()}
        frontier = [*found]
        rest -= found.keys()
    return Tree(root, parents)


def _centre(graph: Topology, among: tuple[str, ...]) -> str:
    """Return the first participant whose furthest participant is nearest.

    The set of reached peers of each participant grows by one edge at a time, as bits, until one contains everybody.
    """
    place = {peer: 1 << number for number, peer in enumerate(among)}
    everybody = (1 << len(among)) - 1
    around = {peer: [other for other in graph.neighbours(peer) if other in place] for peer in among}
    balls = dict(place)
    while everybody not in balls.values():
        grown = dict(balls)
        for peer, others in around.items():
            for other in others:
                grown[peer] |= balls[other]
        balls = grown
    return next(peer for peer in among if balls[peer] == everybody)


def _check(graph: Topology, among: tuple[str, ...]) -> None:
    if not among:
        raise TopologyError("a total needs at least one participant, but the participant set is empty; name a peer")
    unknown = sorted({*among} - {*graph.peers})
    if unknown:
        raise TopologyError(f"the participants {brief(unknown)} are not in the topology; name peers of the topology")
    parts = graph.joined(among)
    if len(parts) > 1:
        _, smallest = min((len(part), part) for part in parts)
        raise TopologyError(
            f"{brief(smallest)} cannot reach the other participants of a total without the peers that are "
            "missing; start those again, or choose a denser topology"
        )


def cut(graph: Topology, *, among: Collection[str], least: int) -> tuple[str, ...] | None:
    """Return fewer than ``least`` participants without which the others are not connected; ``None`` if there are none.

    Parameters
    ----------
    graph
        Edges count in both directions.
    among
        Participants.
    least
        Number of participants that it should take to disconnect the others.

    Examples
    --------
    >>> from p2pfl.topology import complete, path, ring
    >>> cut(path(3), among=path(3).peers, least=2)
    ('peer1',)
    >>> cut(ring(5), among=ring(5).peers, least=2) is None
    True
    >>> cut(complete(4), among=complete(4).peers, least=3) is None
    True
    """
    return _cut(graph, tuple(sorted({*among})), least)


@lru_cache(maxsize=64)
def _cut(graph: Topology, among: tuple[str, ...], least: int) -> tuple[str, ...] | None:
    here = nx.Graph(graph.to_graph().subgraph(among).to_undirected())
    if nx.number_connected_components(here) != 1:
        return ()
    if here.number_of_edges() * 2 == len(here) * (len(here) - 1):
        return None  # the others all share edges, whichever participants leave
    alone = min(nx.articulation_points(here), default=None)  # in linear time, as flows are not
    if alone is not None or least <= 2:
        return (alone,) if alone is not None and least > 1 else None
    names = sorted(here)
    numbered = nx.convert_node_labels_to_integers(here, ordering="sorted")  # so that all peers find the same cut
    found = tuple(names[number] for number in sorted(nx.minimum_node_cut(numbered)))
    return found if len(found) < least else None
