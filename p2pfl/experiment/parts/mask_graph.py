"""The graph of mask partners."""

from __future__ import annotations

import math

from p2pfl import topology as graphs
from p2pfl.experiment import schema


def mask_graph(wanted: schema.PrivacySettings, topology: graphs.Topology, *, seed: int) -> graphs.Topology:
    """Return the graph of mask partners; any two peers can agree on a key through the broker.

    The number of partners is ``mask_degree``, by default the smallest that leaves the honest peers
    connected: always for ``circulant``, with a probability of failure of one in a million for ``random``.
    """
    peers, kind, degree = topology.peers, wanted.mask_graph, wanted.mask_degree
    if kind == "same":
        return topology
    if kind == "circulant":
        degree = degree or 2 * (wanted.colluders // 2 + 1)
    elif degree is None:
        degree = random_degree(len(peers), colluders=wanted.colluders)
    name = "random_k_out" if kind == "random" else kind
    return graphs.build(name, peers=len(peers), degree=degree, seed=seed).union.named(peers)


def random_degree(peers: int, *, colluders: int) -> int:
    r"""Return how many partners each peer must draw for a random mask graph in which no honest peer is isolated.

    With h honest peers among n, a share :math:`\rho = h / n`, the expected number of those that draw only colluders
    and are drawn only by colluders is :math:`h ((1 - \rho) e^{-\rho})^k`, which should be one in a million:

    .. math:: k \ge \frac{\ln (10^6 h)}{\rho - \ln (1 - \rho)}

    Examples
    --------
    >>> random_degree(100, colluders=50), random_degree(10_000, colluders=1000)
    (15, 8)
    """
    honest = max(1, peers - colluders)
    share = min(1 - 1 / peers, honest / peers)
    return min(math.ceil(math.log(honest / 1e-6) / (share - math.log(1 - share))), peers - 1)
