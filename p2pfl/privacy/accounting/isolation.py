r"""Isolation: the masks that a malicious broker can remove without the attacked peer noticing.

A broker that drops messages, delays them or replays Last Wills decides who each peer believes to be there. A peer that
misses a mask partner charges its local floor. But a peer u does not see whom its partners mask with: if each of its d
honest partners is made to mask with u alone, the mask graph around u is a star, and of one round

.. math:: \mu^2 = S^2 \Big/ \Big(s^2 + d \, \frac{m^2 s^2}{m^2 + s^2}\Big)

with the private noise s and the mask deviation m, while u charges what the whole graph would give. No more can be taken
away unnoticed: an edge of u itself that is missing is charged. It is never above the local floor S / s.
"""

from __future__ import annotations

import math

from p2pfl.privacy.accounting.accountant import Adjacency, sensitivity
from p2pfl.topology import Topology


def find_isolated(
    graph: Topology,
    *,
    clip: float,
    noise: float,
    mask: float,
    bits: int = 20,
    adjacency: Adjacency = "zero-out",
    colluders: int = 0,
    size: int | None = None,
) -> tuple[str, float]:
    r"""Return who is worst off if its honest mask partners mask with it alone, and :math:`\mu` of one round.

    Parameters
    ----------
    graph, clip, noise, mask, bits, adjacency, size
        As in :func:`p2pfl.privacy.accounting.accountant.account`.
    colluders
        Number of mask partners that reveal their masks to the broker.

    Examples
    --------
    >>> from p2pfl.topology import ring
    >>> peer, mu = find_isolated(ring(8), clip=1.0, noise=1.0, mask=4.0)
    >>> round(mu, 4)
    0.589
    """
    change = sensitivity(clip=clip, adjacency=adjacency, bits=bits, size=size)
    peer = min(graph.peers, key=lambda each: len(graph.neighbours(each)))
    if not noise:
        return peer, math.inf
    partners = max(0, len(graph.neighbours(peer)) - colluders)
    return peer, change / math.sqrt(noise**2 + partners * (mask * noise) ** 2 / (mask**2 + noise**2))
