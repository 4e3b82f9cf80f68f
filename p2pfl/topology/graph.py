"""Graphs of peers: :class:`Topology` is one graph, :class:`Schedule` one per gossip step."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, compress, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.sparse and its csgraph when they are first used, which takes 20 and 10 MiB

from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.sparse_rows import SparseRows

NAME = re.compile(r"[A-Za-z0-9_-]{1,22}")
"""Pattern of peer names, which become part of MQTT topics and file names."""

TOLERANCE = 1e-9
"""Largest deviation from one that sums of given weights may have."""


@dataclass(frozen=True)
class Topology:
    """Peers and the edges between them; equal graphs are equal values, regardless of the order.

    Parameters
    ----------
    peers
        Names of 1 to 22 letters, digits, ``-`` or ``_``; kept sorted. All stacked rows follow this order.
    edges
        Undirected: ``(a, b)`` with ``a < b``. Directed: ``(sender, receiver)``. Kept sorted, each once.
    directed
        True if an edge carries models one way only.
    weights
        Weight that a receiver gives the model arriving along each edge, for graphs whose weights do not follow
        from their edges; empty for all others. The receiver keeps the rest, up to one, for its own model.

    Raises
    ------
    TopologyError
        There are no peers, a name is malformed or used twice, an edge leads to an unknown peer or from a peer to
        itself, or the weights do not fit the edges.

    Examples
    --------
    >>> pair = Topology(("bob", "ada"), (("bob", "ada"),))
    >>> pair.peers, pair.edges
    (('ada', 'bob'), (('ada', 'bob'),))
    >>> pair.senders("bob")
    ('ada',)
    """

    peers: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    directed: bool = False
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        peers = tuple(sorted(self.peers))
        pairs = self.edges if self.directed else [(min(edge), max(edge)) for edge in self.edges]
        edges = sorted(set(pairs))
        _check_peers(peers)
        _check_edges(edges, set(peers))
        object.__setattr__(self, "peers", peers)
        object.__setattr__(self, "edges", tuple(edges))
        if self.weights:
            _check_weights(pairs, self.weights)
            weight = dict(zip(pairs, self.weights, strict=True))
            object.__setattr__(self, "weights", tuple(float(weight[edge]) for edge in edges))
            _check_shares(self.peers, self.weighted_arcs)

    @classmethod
    def complete(cls, peers: Sequence[str]) -> Topology:
        """Return the complete graph of some peers, without going through its edges one by one.

        Examples
        --------
        >>> Topology.complete(("ada", "bob")) == Topology(("ada", "bob"), (("ada", "bob"),))
        True
        """
        topology = cls(tuple(peers), ())
        object.__delattr__(topology, "edges")  # computed on first use: there are N (N - 1) / 2 of them
        topology.__dict__["is_complete"] = True
        return topology

    if not TYPE_CHECKING:  # which would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Return the edges of a complete graph."""
            if name != "edges" or "is_complete" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__} has no attribute {name}")
            self.__dict__["edges"] = tuple(combinations(self.peers, 2))  # sorted, as the names are
            return self.__dict__["edges"]

    @cached_property
    def is_complete(self) -> bool:
        """True if every two peers share an edge, and edges have no weights."""
        return not self.directed and not self.weights and len(self.edges) == math.comb(len(self.peers), 2)

    @classmethod
    def from_graph(cls, graph: nx.Graph | nx.DiGraph) -> Topology:
        """Return the peers and edges of a networkx graph, without attributes; the ``str`` of a node names its peer.

        Returns
        -------
        Topology
            The graph, without weights.
        """
        edges = tuple((str(a), str(b)) for a, b in graph.edges())
        return cls(tuple(map(str, graph)), edges, directed=graph.is_directed())

    def to_graph(self) -> nx.Graph | nx.DiGraph:
        """Return the same peers and edges as a networkx graph, in sorted order."""
        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(self.peers)
        graph.add_edges_from(self.edges)
        return graph

    def joined(self, peers: Collection[str]) -> list[list[str]]:
        """Return the connected components of the graph that some peers span, regardless of the direction of edges.

        Examples
        --------
        >>> Topology(tuple("abcde"), (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e"))).joined("bda")
        [['a', 'b'], ['d']]
        """
        chosen = {*peers}
        near: dict[str, set[str]] = {peer: set() for peer in self.peers if peer in chosen}
        for one, other in self.edges:
            if one in near and other in near:
                near[one].add(other)
                near[other].add(one)
        parts = list[list[str]]()
        while near:  # without networkx, whose import takes a device a second, and 20 MB
            frontier = {next(iter(near))}
            part = set[str]()
            while frontier:
                part |= frontier
                frontier = set[str]().union(*(near.pop(peer) for peer in frontier)) & near.keys()
            parts.append(sorted(part))
        return sorted(parts)

    @property
    def period(self) -> int:
        """One: the topology is the same in every gossip step."""
        return 1

    @property
    def union(self) -> Topology:
        """The topology itself, as the union of all edges of a period."""
        return self

    def at(self, step: int) -> Topology:  # noqa: ARG002  # a Schedule answers the same question
        """Return the topology of one gossip step: always itself."""
        return self

    def named(self, peers: Sequence[str]) -> Topology:
        """Return the same graph with its peers renamed, in order."""
        if self.is_complete and len(peers) == len(self.peers):
            return Topology.complete(peers)
        name = dict(zip(self.peers, peers, strict=True))
        return Topology(tuple(peers), tuple((name[a], name[b]) for a, b in self.edges), self.directed, self.weights)

    def among(self, present: Collection[str]) -> Topology:
        """Return the same peers with only the edges whose two ends are both in ``present``."""
        here = [set(present).issuperset(edge) for edge in self.edges]
        edges, weights = tuple(compress(self.edges, here)), tuple(compress(self.weights, here))
        return Topology(self.peers, edges, self.directed, weights)

    def without(self, peers: Collection[str]) -> Topology:
        """Return the graph of the other peers: no peer of ``peers``, and none of its edges.

        Examples
        --------
        >>> Topology.complete(["ada", "bob", "cleo"]).without(["bob"]).edges
        (('ada', 'cleo'),)
        """
        rest = tuple(peer for peer in self.peers if peer not in peers)
        if self.is_complete and rest:
            return Topology.complete(rest)
        kept = self.among(rest)
        return Topology(rest, kept.edges, kept.directed, kept.weights)

    def neighbours(self, peer: str) -> tuple[str, ...]:
        """Return the peers that share an edge with ``peer``, sorted."""
        if not self.directed:
            return self.senders(peer)
        return tuple(sorted({*self.senders(peer), *self.receivers(peer)}))

    @property
    def edge_count(self) -> int:
        """Number of edges; those of a complete graph are not listed for it."""
        return math.comb(len(self.peers), 2) if self.is_complete else len(self.edges)

    def degree(self, peer: str) -> int:
        """Return the number of neighbours of a peer.

        Examples
        --------
        >>> Topology.complete(("ada", "bob", "cleo")).degree("bob")
        2
        """
        return len(self.peers) - 1 if self.is_complete else len(self.neighbours(peer))

    def senders(self, peer: str) -> tuple[str, ...]:
        """Return the peers that ``peer`` receives models from, sorted; in an undirected graph, its neighbours."""
        if self.is_complete and peer in self._numbers:
            number = self._numbers[peer]
            return self.peers[:number] + self.peers[number + 1 :]
        return self._lookup(self._senders, peer)

    def receivers(self, peer: str) -> tuple[str, ...]:
        """Return the peers that receive the model of ``peer``, sorted; in an undirected graph, its neighbours."""
        return self._lookup(self._receivers, peer) if self.directed else self.senders(peer)

    @cached_property
    def adjacency(self) -> scipy.sparse.csr_array:
        """Adjacency matrix ``[N, N]`` in the order of ``peers``: 1.0 at ``[i, j]`` if peer i receives from peer j."""
        return self.arcs.matrix

    @cached_property
    def arcs(self) -> SparseRows:
        """Entries of the :attr:`adjacency`, which need no scipy."""
        if not self.is_complete:
            return self._entries(np.ones(len(self.edges)))
        every, numbers = len(self.peers), np.arange(len(self.peers), dtype=np.int32)
        columns = np.broadcast_to(numbers, (every, every))[~np.eye(every, dtype=bool)]  # [N (N - 1)]
        ends = np.arange(every + 1, dtype=np.int32) * (every - 1)  # [N + 1]
        return SparseRows(np.ones(len(columns)), columns, ends)

    @cached_property
    def weighted_arcs(self) -> SparseRows:
        """The :attr:`arcs` with the weights of the edges in place of ones."""
        return self._entries(np.array(self.weights))

    def _entries(self, values: npt.NDArray[np.float64]) -> SparseRows:
        number = self._numbers
        pairs = np.array([(number[a], number[b]) for a, b in self.edges], dtype=np.int64).reshape(-1, 2)  # [E, 2]
        sender, listener = pairs.T
        if not self.directed:
            sender, listener = np.concatenate([pairs, pairs[:, ::-1]]).T  # [2 E]
            values = np.concatenate([values, values])  # [2 E]
        return SparseRows.of(values, listener, sender, count=len(self.peers))

    @cached_property
    def turns(self) -> dict[str, int]:
        """Turns in which the peers send large models, see :func:`turns`; the peers of a process share them."""
        return turns(self)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {peer: row for row, peer in enumerate(self.peers)}

    @cached_property
    def _senders(self) -> dict[str, tuple[str, ...]]:
        return self._names(self.arcs)

    @cached_property
    def _receivers(self) -> dict[str, tuple[str, ...]]:
        return self._names(self.arcs.transposed)

    def _names(self, arcs: SparseRows) -> dict[str, tuple[str, ...]]:
        names = [self.peers[column] for column in arcs.indices]
        return {peer: tuple(names[a:b]) for peer, (a, b) in zip(self.peers, pairwise(arcs.indptr), strict=True)}

    def _lookup(self, table: dict[str, tuple[str, ...]], peer: str) -> tuple[str, ...]:
        if peer not in table:
            raise TopologyError(
                f'peer "{peer}" is not one of the {len(self.peers)} peers ({brief(self.peers)}); check its name'
            )
        return table[peer]


class NetworkxGraph(Protocol):
    """A graph of networkx, which is imported when it is first needed."""

    def is_directed(self) -> bool:
        """Return whether edges go one way."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the nodes."""
        ...


def as_topology(graph: Topology | Schedule | NetworkxGraph) -> Topology | Schedule:
    """Return a topology as it is, and that of a networkx graph.

    Raises
    ------
    TopologyError
        It is neither.

    Examples
    --------
    >>> import networkx
    >>> as_topology(networkx.path_graph(3)).edges
    (('0', '1'), ('1', '2'))
    """
    if isinstance(graph, Topology | Schedule):
        return graph
    if isinstance(graph, nx.Graph):
        return Topology.from_graph(graph)
    raise TopologyError(
        f"the topology is of type {type(graph).__name__}; pass a graph of p2pfl.topology, such as "
        "p2pfl.topology.ring(8), or a networkx graph"
    )


@dataclass(frozen=True)
class Schedule:
    """Periodic sequence of topologies, one per gossip step.

    Parameters
    ----------
    topologies
        Gossip step ``e`` uses number ``e`` modulo the period; all have the same peers.

    Raises
    ------
    TopologyError
        There are no topologies, or two have different peers.

    Examples
    --------
    >>> left, right = Topology(("a", "b", "c"), (("a", "b"),)), Topology(("a", "b", "c"), (("b", "c"),))
    >>> Schedule((left, right)).at(3).edges
    (('b', 'c'),)
    """

    topologies: tuple[Topology, ...]

    def __post_init__(self) -> None:
        if not self.topologies:
            raise TopologyError("a schedule has no topology; add at least one")
        for number, topology in enumerate(self.topologies):
            if odd := sorted(set(topology.peers) ^ set(self.peers)):
                raise TopologyError(
                    f"topologies 0 and {number} of the schedule have different peers ({brief(odd)} only in one "
                    "of them); give all topologies the same peers"
                )

    @property
    def peers(self) -> tuple[str, ...]:
        """The peers of every topology, sorted."""
        return self.topologies[0].peers

    @property
    def period(self) -> int:
        """Number of gossip steps after which the schedule repeats."""
        return len(self.topologies)

    @cached_property
    def union(self) -> Topology:
        """Graph of every edge of a period; directed if any topology is."""
        if not any(topology.directed for topology in self.topologies):
            return Topology(self.peers, tuple(edge for each in self.topologies for edge in each.edges))
        arcs: set[tuple[str, str]] = set()
        for each in self.topologies:
            arcs.update(each.edges)
            if not each.directed:
                arcs.update((b, a) for a, b in each.edges)
        return Topology(self.peers, tuple(arcs), directed=True)

    def at(self, step: int) -> Topology:
        """Return the topology of one gossip step."""
        return self.topologies[step % self.period]

    def named(self, peers: Sequence[str]) -> Schedule:
        """Return the same graphs with their peers renamed, in order."""
        return Schedule(tuple(topology.named(peers) for topology in self.topologies))

    def among(self, present: Collection[str]) -> Schedule:
        """Return the same peers with only the edges whose two ends are both in ``present``."""
        return Schedule(tuple(topology.among(present) for topology in self.topologies))

    def without(self, peers: Collection[str]) -> Schedule:
        """Return the graphs of the other peers, see :meth:`Topology.without`."""
        return Schedule(tuple(topology.without(peers) for topology in self.topologies))

    def neighbours(self, peer: str) -> tuple[str, ...]:
        """Return the peers that share an edge with ``peer`` in any gossip step, sorted."""
        return self.union.neighbours(peer)

    def senders(self, peer: str) -> tuple[str, ...]:
        """Return the peers that ``peer`` receives models from in any gossip step, sorted."""
        return self.union.senders(peer)

    def receivers(self, peer: str) -> tuple[str, ...]:
        """Return the peers that receive the model of ``peer`` in any gossip step, sorted."""
        return self.union.receivers(peer)


def check_connected(topology: Topology | Schedule) -> None:
    """Check that every peer is reachable from every other, along the edges, within a period.

    Raises
    ------
    TopologyError
        Some peers do not reach each other; the message names the parts.

    Examples
    --------
    >>> check_connected(Topology(("a", "b"), (("a", "b"),)))
    """
    union = topology.union
    if union.is_complete:
        return
    ways = [union.arcs, union.arcs.transposed] if union.directed else [union.arcs]
    if all(depth(way) is not None for way in ways):
        return
    count, label = scipy.sparse.csgraph.connected_components(union.adjacency, directed=True, connection="strong")
    parts: dict[int, list[str]] = {}
    for peer, part in zip(union.peers, label, strict=True):
        parts.setdefault(part, []).append(peer)
    shown = [brief(part) for part in list(parts.values())[:4]] + ["..."] * (count > 4)
    raise TopologyError(
        f"the graph falls into {count} parts that do not reach each other ({' | '.join(shown)}); add edges between them"
    )


def depth(entries: SparseRows, *, start: int = 0) -> int | None:
    """Return after how many steps, from rows to the columns of their entries, all rows are reached from the first one.

    It is ``None`` if some are never reached.

    Examples
    --------
    >>> depth(Topology(("a", "b", "c"), (("a", "b"), ("b", "c"))).arcs)
    2
    """
    starts, columns = entries.indptr.tolist(), entries.indices.tolist()
    reached, new = {start}, {start}
    steps = -1
    while new:
        new = {column for row in new for column in columns[starts[row] : starts[row + 1]]} - reached
        reached |= new
        steps += 1
    return steps if len(reached) == len(starts) - 1 else None


def turns(topology: Topology) -> dict[str, int]:
    """Give each peer a turn to send, so that no receiver gets two models at once, and none while it sends.

    The turns are a greedy colouring of the square of the graph, most conflicts first, ties by name. Large
    transfers that take turns do not share a receiver's downlink.

    Returns
    -------
    dict
        Turn of each peer, from 0, in peer order.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> turns(ring(6))
    {'peer0': 0, 'peer1': 1, 'peer2': 2, 'peer3': 0, 'peer4': 1, 'peer5': 2}
    """
    if topology.is_complete:
        return {peer: number for number, peer in enumerate(topology.peers)}
    senders, receivers = (
        np.split(arcs.indices, arcs.indptr[1:-1]) for arcs in (topology.arcs, topology.arcs.transposed)
    )
    conflicts = []
    for row, reached in enumerate(receivers):
        here = np.zeros(len(senders), dtype=bool)
        for others in (senders[row], reached, *(senders[each] for each in reached)):
            here[others] = True
        conflicts.append(np.flatnonzero(here))
    colour = np.full(len(topology.peers), -1)
    for row in np.argsort([-len(each) for each in conflicts], kind="stable"):
        others = colour[conflicts[row]]
        taken = np.zeros(len(others) + 1, dtype=bool)  # one of these many is free
        taken[others[(others >= 0) & (others < len(taken))]] = True
        colour[row] = np.argmin(taken)
    return dict(zip(topology.peers, colour.tolist(), strict=True))


def brief(names: Iterable[str], *, most: int = 4) -> str:
    """Return the first names for an error message, and the number of the others."""
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _check_peers(peers: tuple[str, ...]) -> None:
    if not peers:
        raise TopologyError("the graph has no peers; add at least one")
    if set(map(type, peers)) != {str} or not all(map(NAME.fullmatch, peers)):  # a million names take no Python calls
        for name in peers:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise TopologyError(
                    f'{name!r} is not a valid peer name; rename it with 1 to 22 letters, digits, "-" or "_"'
                )
    if len(set(peers)) < len(peers):
        name = next(name for name, following in pairwise(peers) if name == following)
        raise TopologyError(f'peer name "{name}" is used twice; rename one of the peers')


def _check_edges(edges: list[tuple[str, str]], peers: set[str]) -> None:
    for a, b in edges:
        if a == b:
            raise TopologyError(f'an edge connects "{a}" to itself; remove it, as a peer always mixes in its own model')
        if not {a, b} <= peers:
            raise TopologyError(
                f'the edge ("{a}", "{b}") leads to an unknown peer; add {brief(sorted({a, b} - peers))} to the '
                "peers or remove the edge"
            )


def _check_weights(edges: Sequence[tuple[str, str]], weights: tuple[float, ...]) -> None:
    if len(weights) != len(edges):
        raise TopologyError(
            f"the weights ({len(weights)}) do not match the edges ({len(edges)}); give one weight for each edge"
        )
    seen: dict[tuple[str, str], float] = {}
    for (a, b), weight in zip(edges, weights, strict=True):
        if not 0 < weight <= 1:
            raise TopologyError(
                f'the weight from "{a}" to "{b}" is {weight}, not above 0 and at most 1; change it or remove the edge'
            )
        if seen.setdefault((a, b), weight) != weight:
            raise TopologyError(
                f'the edge from "{a}" to "{b}" has two weights, {seen[a, b]} and {weight}; keep one of them'
            )


def _check_shares(peers: tuple[str, ...], shares: SparseRows) -> None:
    received = np.bincount(shares.rows, weights=shares.data, minlength=len(peers))  # [N]
    most = int(np.argmax(received))
    if received[most] > 1 + TOLERANCE:
        raise TopologyError(
            f'the weights of the models that "{peers[most]}" receives sum to {received[most]:.12g}; scale them to '
            "sum to at most 1"
        )


UNBOUND = Topology(("unbound",), ())
"""Stands for the topology of a run in an algorithm that has not been given it yet."""
