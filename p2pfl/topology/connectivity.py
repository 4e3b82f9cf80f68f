"""Spanning trees, along which sums go up to a root and totals down, and peers whose absence disconnects a graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.sparse and its csgraph when they are first used, which takes 20 and 10 MiB

from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Schedule, Topology, brief, check_connected, depth
from p2pfl.topology.weights import Weights


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
        members = [peer]
        for each in members:  # which grows
            members += self.children(each)
        return tuple(sorted(members))

    def depths_behind(self, peer: str) -> dict[str, int]:
        """Return, by neighbour in the tree, the number of edges of the longest path that leads on from it.

        Examples
        --------
        >>> Tree("bob", {"ada": "bob", "cleo": "bob", "dan": "cleo"}).depths_behind("ada")
        {'bob': 2}
        """
        return {neighbour: self._depth(neighbour, avoiding=peer) for neighbour in self._adjacent(peer)}

    def _adjacent(self, peer: str) -> tuple[str, ...]:
        parent = self.parent(peer)
        return self.children(peer) if parent is None else (parent, *self.children(peer))

    def _depth(self, peer: str, *, avoiding: str) -> int:
        """Return the number of edges of the longest path from a peer that does not begin with one neighbour."""
        ends, depth = [(peer, avoiding)], -1
        while ends:
            depth += 1
            ends = [(on, each) for each, before in ends for on in self._adjacent(each) if on != before]
        return depth

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        children_of: dict[str, list[str]] = {}
        for child, parent in sorted(self.parents.items()):
            children_of.setdefault(parent, []).append(child)
        return {parent: tuple(children) for parent, children in children_of.items()}


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


def tree_to(graph: Topology | Schedule, *, root: str, among: Collection[str]) -> Tree:
    """Return the tree in which some peers send to one neighbour of all of them, the root.

    Parameters
    ----------
    graph
        Edges count in both directions.
    root
        Peer that receives.
    among
        Peers that send; the root may be one of them.

    Raises
    ------
    TopologyError
        A peer is unknown, or shares no edge with the root.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> tree_to(ring(3), root="peer0", among=["peer0", "peer2"])
    Tree(root='peer0', parents={'peer2': 'peer0'})
    """
    whole = graph.union if isinstance(graph, Schedule) else graph
    _check(whole, (root,))
    others = sorted({*among} - {root})
    if apart := [peer for peer in others if peer not in whole.neighbours(root)]:
        raise TopologyError(
            f"{apart[0]} and {root} share no edge, over which {root} alone would receive a total; set topology.kind to "
            '"complete"'
        )
    return Tree(root, dict.fromkeys(others, root))


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
        reached = dict[str, tuple[int, str]]()  # in the order in which peers are reached
        for peer in frontier:
            for other in whole.neighbours(peer):
                if other in rest:
                    rank = min(ranks.get(edge, len(graphs)) for edge in ((peer, other), (other, peer)))
                    if other not in reached or rank < reached[other][0]:
                        reached[other] = rank, peer
        parents |= {other: peer for other, (_, peer) in reached.items()}
        frontier = [*reached]
        rest -= reached.keys()
    return Tree(root, parents)


def _centre(graph: Topology, among: tuple[str, ...]) -> str:
    """Return the first participant whose furthest participant is nearest.

    The set of reached peers of each participant grows by one edge at a time, as bits, until one contains everybody.
    """
    bits = {peer: 1 << number for number, peer in enumerate(among)}
    everybody = (1 << len(among)) - 1
    around = {peer: [other for other in graph.neighbours(peer) if other in bits] for peer in among}
    balls = dict(bits)
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
    cut = tuple(names[number] for number in sorted(nx.minimum_node_cut(numbered)))
    return cut if len(cut) < least else None


MAX_PLAIN_PEERS = 64
"""Largest number of peers whose distances are not worth the import of csgraph."""


def diameter(topology: Topology | Schedule) -> int:
    """Return the largest number of edges between two peers on a shortest path; 0 for a single peer.

    Raises
    ------
    TopologyError
        The graph is not connected.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> diameter(ring(6))
    3
    """
    check_connected(topology)
    if topology.union.is_complete:
        return min(1, len(topology.peers) - 1)
    adjacency = topology.union.adjacency
    if len(topology.peers) <= MAX_PLAIN_PEERS:
        return max(depth(adjacency, start=start) or 0 for start in range(adjacency.shape[0]))
    longest = 0.0
    for start in range(0, adjacency.shape[0], 256):  # in blocks, to keep memory at 256 x N
        sources = np.arange(start, min(start + 256, adjacency.shape[0]))
        longest = max(longest, scipy.sparse.csgraph.dijkstra(adjacency, indices=sources, unweighted=True).max())
    return int(longest)


def flood_steps(topology: Topology | Schedule) -> int:
    """Return after how many gossip steps a number has reached all peers, from whichever step of the period it starts.

    On a fixed graph it is the diameter. Time grows with the square of the number of peers.

    Raises
    ------
    TopologyError
        The graph is not connected.

    Examples
    --------
    >>> from p2pfl.topology import one_peer_exponential, ring
    >>> flood_steps(ring(6)), flood_steps(one_peer_exponential(8))
    (3, 3)
    """
    if isinstance(topology, Topology):
        return diameter(topology)
    check_connected(topology)
    hears = [topology.at(phase).adjacency.astype(np.float32) for phase in range(topology.period)]
    longest = 0
    for first in range(topology.period):
        reached = np.eye(len(topology.peers), dtype=bool)  # [N, N]: peers that each has heard of
        steps = 0
        while not reached.all():
            reached |= hears[(first + steps) % topology.period] @ reached.astype(np.float32) > 0
            steps += 1
        longest = max(longest, steps)
    return longest


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
    partitions = [_blocks(order, parts) for order in orders]
    return min(partitions, key=lambda blocks: crossings(edges, blocks))


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
