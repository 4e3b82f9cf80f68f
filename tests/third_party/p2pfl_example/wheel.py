"""A topology of one's own."""

import networkx as nx


def wheel(peers: int) -> nx.Graph:
    """Return a ring of all peers but one, to which all others have an edge."""
    return nx.wheel_graph(peers)
