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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
