"""Who hears whom, with which weight, and how fast that brings everybody together.

A :class:`Topology` is a set of peers and the edges between them, a :class:`Schedule` one topology
per exchange. Builders are nouns (:func:`ring`, :func:`small_world`), :func:`load` reads any file
networkx reads, :func:`metropolis` turns a graph into mixing weights, and the spectral facts
(:func:`contraction`, :func:`gap`, :func:`steps`) say how many exchanges a tolerance costs.

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

from p2pfl.topology.builders import (
    BUILDERS,
    build,
    circulant,
    complete,
    erdos_renyi,
    exponential,
    grid,
    hypercube,
    one_peer_exponential,
    path,
    random_k_out,
    random_regular,
    ring,
    small_world,
    star,
    torus,
)
from p2pfl.topology.files import load, save
from p2pfl.topology.graph import Schedule, Topology, check_connected, diameter, turns
from p2pfl.topology.spectrum import chebyshev_steps, contraction, gap, heavy_ball_steps, lowest, steps
from p2pfl.topology.weights import Weights, given, max_degree, metropolis

__all__ = [
    "BUILDERS",
    "Schedule",
    "Topology",
    "Weights",
    "build",
    "chebyshev_steps",
    "check_connected",
    "circulant",
    "complete",
    "contraction",
    "diameter",
    "erdos_renyi",
    "exponential",
    "gap",
    "given",
    "grid",
    "heavy_ball_steps",
    "hypercube",
    "load",
    "lowest",
    "max_degree",
    "metropolis",
    "one_peer_exponential",
    "path",
    "random_k_out",
    "random_regular",
    "ring",
    "save",
    "small_world",
    "star",
    "steps",
    "torus",
    "turns",
]
