"""Distances in communication graphs, in edges and in gossip steps."""

import numpy as np
import scipy.sparse  # imports csgraph when that is first used, which takes 10 MiB

from p2pfl.topology.graph import Schedule, Topology, check_connected, depth

FEW = 64
"""Largest number of peers whose distances are not worth the import of csgraph."""


def diameter(topology: Topology | Schedule) -> int:
    """Return the largest number of edges between two peers on a shortest path; 0 for a single peer.

    Raises
    ------
    TopologyError
        The graph is not connected.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> diameter(ring(6))
    3
    """
    check_connected(topology)
    adjacency = topology.union.adjacency
    if len(topology.peers) <= FEW:
        return max(depth(adjacency, start=start) or 0 for start in range(adjacency.shape[0]))
    longest = 0.0
    for start in range(0, adjacency.shape[0], 256):  # in blocks, to keep memory at 256 x N
        sources = np.arange(start, min(start + 256, adjacency.shape[0]))
        longest = max(longest, scipy.sparse.csgraph.dijkstra(adjacency, indices=sources, unweighted=True).max())
    return int(longest)


def flood_steps(topology: Topology | Schedule) -> int:
    """Return after how many gossip steps a number has reached all peers, from whichever step of the period it starts.

    On a fixed graph it is the diameter. Time grows with the square of the number of peers.

    Raises
    ------
    TopologyError
        The graph is not connected.

    Examples
    --------
    >>> from p2pfl.topology import one_peer_exponential, ring
    >>> flood_steps(ring(6)), flood_steps(one_peer_exponential(8))
    (3, 3)
    """
    if isinstance(topology, Topology):
        return diameter(topology)
    check_connected(topology)
    hears = [topology.at(phase).adjacency.astype(np.float32) for phase in range(topology.period)]
    longest = 0
    for first in range(topology.period):
        reached = np.eye(len(topology.peers), dtype=bool)  # [N, N]: peers that each has heard of
        steps = 0
        while not reached.all():
            reached |= hears[(first + steps) % topology.period] @ reached.astype(np.float32) > 0
            steps += 1
        longest = max(longest, steps)
    return longest
