"""Topologies in files: any that networkx reads, told apart by their suffix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx

from p2pfl.errors import TopologyError
from p2pfl.topology.graph import Topology


def load(path: str | Path) -> Topology:
    """Read a topology; the suffix says how.

    ``.graphml`` GraphML, ``.gml`` GML, ``.json`` node-link JSON, ``.edgelist`` or ``.edges`` two names a
    line, ``.adjlist`` a name and its neighbours a line; the last two are undirected. Attributes are
    ignored. Edges of a directed file run from sender to listener.

    Raises
    ------
    TopologyError
        The file is missing, its suffix unknown, its content broken, or its graph no :class:`Topology`.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise TopologyError(
            f'expected a topology file ending in {", ".join(_READERS)}, got "{path}"; convert or rename it'
        )
    if not path.is_file():
        raise TopologyError(f'expected a topology file, got "{path}", where there is none; check the path')
    try:
        graph = _READERS[suffix](path)
    except _BROKEN as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TopologyError(
            f'expected a readable {suffix} graph, got "{path}", which is broken ({reason}); mend it'
        ) from error
    try:
        return Topology.from_graph(graph)
    except TopologyError as error:
        raise TopologyError(f'in "{path}": {error}') from error


def save(topology: Topology, path: str | Path) -> None:
    """Write a topology as node-link JSON, equal graphs to equal bytes.

    Raises
    ------
    TopologyError
        The path does not end in ``.json`` or cannot be written.
    """
    path = Path(path)
    if path.suffix != ".json":
        raise TopologyError(f'expected a path ending in .json to save a topology to, got "{path}"; rename it')
    data = nx.node_link_data(topology.to_graph(), edges="edges")
    try:
        path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise TopologyError(
            f'expected a path that can be written, got "{path}" ({error.strerror}); choose another'
        ) from error


def _gml(path: Path) -> Any:
    try:
        return nx.read_gml(path)
    except nx.NetworkXError as error:
        if "label" not in str(error):
            raise
    return nx.read_gml(path, label="id")  # many exporters write no labels


def _node_link(path: Path) -> Any:
    data = json.loads(path.read_text(encoding="utf-8"))
    edges = "links" if "links" in data else "edges"  # networkx before and after 3.4
    return nx.node_link_graph({"multigraph": False, **data}, edges=edges)


def _edge_list(path: Path) -> Any:
    return nx.read_edgelist(path, data=False)  # further columns, such as weights, are ignored


_READERS: dict[str, Callable[[Path], Any]] = {
    ".graphml": nx.read_graphml,
    ".gml": _gml,
    ".json": _node_link,
    ".edgelist": _edge_list,
    ".edges": _edge_list,
    ".adjlist": nx.read_adjlist,
}

# What the parsers raise on broken input; SyntaxError is the base of XML's ParseError.
_BROKEN = (
    *(OSError, ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError),
    nx.NetworkXException,
)
