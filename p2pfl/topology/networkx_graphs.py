"""Topology files: any format that networkx reads, chosen by the suffix."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import TopologyError
from p2pfl.topology import lazy_networkx as nx
from p2pfl.topology.graph import Topology


def load(path: str | Path) -> Topology:
    """Read a topology from a file whose suffix names its format.

    ``.graphml`` is GraphML, ``.gml`` GML, ``.json`` node-link JSON; ``.edgelist`` and ``.edges`` have two names per
    line, ``.adjlist`` a name and its neighbours per line. The last three are undirected. Attributes are ignored.
    Edges of a directed file run from sender to receiver.

    Parameters
    ----------
    path
        Path of the file.

    Returns
    -------
    Topology
        The graph, its peers and edges sorted.

    Raises
    ------
    TopologyError
        The file is missing, its suffix is unknown, its content is broken, or its graph is not a valid
        :class:`Topology`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "pair.edges").write_text("ada bob")
    ...     load(Path(folder, "pair.edges")).edges
    (('ada', 'bob'),)
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise TopologyError(
            f'"{path}" does not have a suffix of a topology file ({", ".join(_READERS)}); convert or rename it'
        )
    if not path.is_file():
        raise TopologyError(f'topology file "{path}" does not exist; check the path')
    try:
        graph = _READERS[suffix](path)
    except (*_BROKEN, nx.NetworkXException) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TopologyError(f'"{path}" is not a readable {suffix} graph ({reason}); fix the file') from error
    try:
        return Topology.from_graph(graph)
    except TopologyError as error:
        raise TopologyError(f'in "{path}": {error}') from error


def _gml(path: Path) -> Any:
    try:
        return nx.read_gml(path)
    except nx.NetworkXError as error:
        if "label" not in str(error):
            raise
    return nx.read_gml(path, label="id")  # many exporters omit labels


def _node_link(path: Path) -> Any:
    data = json.loads(path.read_text(encoding="utf-8"))
    edges = "links" if "links" in data else "edges"  # networkx before and after 3.4
    return nx.node_link_graph({"multigraph": False, **data}, edges=edges)


def _edge_list(path: Path) -> Any:
    return nx.read_edgelist(path, data=False)  # further columns, such as weights, are ignored


_READERS: dict[str, Callable[[Path], Any]] = {
    ".graphml": lambda path: nx.read_graphml(path),  # noqa: PLW0108 (imports networkx only to read a file)
    ".gml": _gml,
    ".json": _node_link,
    ".edgelist": _edge_list,
    ".edges": _edge_list,
    ".adjlist": lambda path: nx.read_adjlist(path),  # noqa: PLW0108
}

# The parsers raise these on broken input; SyntaxError is the base of XML's ParseError.
_BROKEN = OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError


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
                round(math.sin(2 * math.pi * index / count), 4),
                round(-math.cos(2 * math.pi * index / count), 4),
            )
            for index, peer in enumerate(around)
        }
    graph = topology.to_graph().to_undirected()
    if len(topology.peers) <= SMALL and nx.is_connected(graph):
        layout = nx.kamada_kawai_layout(graph)
    else:
        layout = nx.spring_layout(graph, seed=0)
    coordinates = np.array([layout[peer] for peer in topology.peers])
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    coordinates = 2 * (coordinates - low) / np.maximum(high - low, 1e-9) - 1
    return {
        peer: (round(float(x), 4), round(float(y), 4)) for peer, (x, y) in zip(topology.peers, coordinates, strict=True)
    }


def _circle(topology: Topology) -> list[str] | None:
    """Return the order of the peers on a circle; ``None`` if the graph has no such order."""
    peers, count = topology.peers, len(topology.peers)
    number = {peer: index for index, peer in enumerate(peers)}
    edges = {(number[a], number[b]) for a, b in topology.edges}
    both = edges | {(b, a) for a, b in edges}
    if both == {((a + 1) % count, (b + 1) % count) for a, b in both}:
        return list(peers)
    graph = topology.to_graph().to_undirected()
    if all(degree == 2 for _, degree in graph.degree()) and nx.is_connected(graph):
        return list(nx.dfs_preorder_nodes(graph, peers[0]))
    return None
