"""Places of peers in a drawing of their graph."""

from __future__ import annotations

import math

import numpy as np

from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Topology

SMALL = 60
"""Largest number of peers that are placed by their distances in the graph, which is slower and tidier than springs."""


def positions(topology: Topology) -> dict[str, tuple[float, float]]:
    """Return a place for each peer, with coordinates from -1 to 1.

    Peers of a cycle, a circulant or a complete graph are placed on a circle; others so that neighbours are close.

    Parameters
    ----------
    topology
        Graph of the peers.

    Returns
    -------
    dict of str to tuple of float
        Horizontal and vertical coordinate by peer, equal for equal topologies.

    Examples
    --------
    >>> square = Topology(("a", "b", "c", "d"), (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")))
    >>> positions(square)["a"], positions(square)["b"]
    ((0.0, -1.0), (1.0, -0.0))
    """
    around = _circle(topology)
    if around is not None:
        count = len(around)
        return {
            peer: (
                round(math.sin(2 * math.pi * place / count), 4),
                round(-math.cos(2 * math.pi * place / count), 4),
            )
            for place, peer in enumerate(around)
        }
    graph = topology.to_graph().to_undirected()
    if len(topology.peers) <= SMALL and nx.is_connected(graph):
        found = nx.kamada_kawai_layout(graph)
    else:
        found = nx.spring_layout(graph, seed=0)
    places = np.array([found[peer] for peer in topology.peers])
    low, high = places.min(axis=0), places.max(axis=0)
    places = 2 * (places - low) / np.maximum(high - low, 1e-9) - 1
    return {peer: (round(float(x), 4), round(float(y), 4)) for peer, (x, y) in zip(topology.peers, places, strict=True)}


def _circle(topology: Topology) -> list[str] | None:
    """Return the order of the peers on a circle; ``None`` if the graph has no such order."""
    peers, count = topology.peers, len(topology.peers)
    number = {peer: place for place, peer in enumerate(peers)}
    edges = {(number[a], number[b]) for a, b in topology.edges}
    both = edges | {(b, a) for a, b in edges}
    if both == {((a + 1) % count, (b + 1) % count) for a, b in both}:
        return list(peers)
    graph = topology.to_graph().to_undirected()
    if all(degree == 2 for _, degree in graph.degree()) and nx.is_connected(graph):
        return list(nx.dfs_preorder_nodes(graph, peers[0]))
    return None
