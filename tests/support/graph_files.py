"""Graphs as files."""

import json

import networkx as nx


def save_graph(topology, path):
    """Write a topology as node-link JSON."""
    path.write_text(json.dumps(nx.node_link_data(topology.to_graph(), edges="edges")))
