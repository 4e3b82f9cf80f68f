"""Communication graphs, mixing weights, and how fast gossip over them converges.

A :class:`Topology` is a set of peers and the edges between them; a :class:`Schedule` holds one topology
per gossip step. Builders are nouns (:func:`ring`, :func:`base`). :func:`load` reads any file that networkx
reads, :func:`natural` turns a graph into mixing weights, the spectral functions (:func:`contraction`,
:func:`steps`) give the number of gossip steps that a tolerance costs, and :func:`effective_neighbours` gives
the number of peers that average the noise of learning.

Examples
--------
>>> from p2pfl import topology
>>> cube = topology.hypercube(3)
>>> weights = topology.metropolis(cube)
>>> round(topology.contraction([weights]), 6), topology.diameter(cube)
(0.5, 3)
>>> topology.steps([weights], tolerance=1e-3)
10
"""

from p2pfl.topology.distances import diameter, flood_steps
from p2pfl.topology.graph import UNBOUND, NetworkxGraph, Schedule, Topology, as_topology, check_connected, turns
from p2pfl.topology.graph_files import load, save
from p2pfl.topology.kinds.builder_table import BUILDERS, build, check_kind, options_of
from p2pfl.topology.kinds.builders import (
    circulant,
    complete,
    exponential,
    grid,
    hypercube,
    path,
    ring,
    star,
    torus,
    tree,
)
from p2pfl.topology.kinds.finite_time import base
from p2pfl.topology.kinds.random_graphs import erdos_renyi, random_k_out, random_regular, small_world
from p2pfl.topology.kinds.schedules import (
    double_binary_tree,
    epidemic_local,
    epidemic_oracle,
    hierarchical,
    nested,
    one_peer_exponential,
)
from p2pfl.topology.mixing.gradient_noise import best_rate, effective_neighbours, rate, remainder
from p2pfl.topology.mixing.spectrum import chebyshev_steps, contraction, gap, lowest, steps
from p2pfl.topology.mixing.weights import Weights, edge_weights, given, max_degree, metropolis, natural, push
from p2pfl.topology.partitions import owners, partition
from p2pfl.topology.spanning import Tree, cut, spanning

__all__ = [
    "BUILDERS",
    "UNBOUND",
    "NetworkxGraph",
    "Schedule",
    "Topology",
    "Tree",
    "Weights",
    "as_topology",
    "base",
    "best_rate",
    "build",
    "chebyshev_steps",
    "check_connected",
    "check_kind",
    "circulant",
    "complete",
    "contraction",
    "cut",
    "diameter",
    "double_binary_tree",
    "edge_weights",
    "effective_neighbours",
    "epidemic_local",
    "epidemic_oracle",
    "erdos_renyi",
    "exponential",
    "flood_steps",
    "gap",
    "given",
    "grid",
    "hierarchical",
    "hypercube",
    "load",
    "lowest",
    "max_degree",
    "metropolis",
    "natural",
    "nested",
    "one_peer_exponential",
    "options_of",
    "owners",
    "partition",
    "path",
    "push",
    "random_k_out",
    "random_regular",
    "rate",
    "remainder",
    "ring",
    "save",
    "small_world",
    "spanning",
    "star",
    "steps",
    "torus",
    "tree",
    "turns",
]
