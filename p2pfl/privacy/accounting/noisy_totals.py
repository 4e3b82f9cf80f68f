r"""Guarantee of totals with private noise, for single samples.

Every peer adds normal noise of deviation :math:`\sigma \Delta` to its contribution, with :math:`\Delta` the L2 norm by
which one sample can change it. Uniform masks hide all but the total (:mod:`p2pfl.privacy.total_masks`), and t colluders
can subtract their own noise from it. So a total with the noise of N peers costs

.. math:: \mu = \frac{1}{\sigma \sqrt{N - t}}

for a sample of an honest peer: for t = 0 as much as the noise of a trusted curator. Noise is rounded to integers. With
a deviation of at least 16 of them, which :class:`p2pfl.privacy.release.PrivateNeighbourhood` requires, a sum of
rounded normal numbers differs from a rounded normal number by less than 1e-1000.

References
----------
P. Kairouz, Z. Liu, T. Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
aggregation", ICML 2021.
"""

from __future__ import annotations

import math

from p2pfl.privacy.accounting.accountant import Adjacency, Guarantee


def guarantee(peers: tuple[str, ...], *, noise: float, colluders: int, adjacency: Adjacency = "zero-out") -> Guarantee:
    r"""Return the guarantee of one total for a sample of an honest peer.

    Parameters
    ----------
    peers
        Names of all participants.
    noise
        :math:`\sigma`, deviation of the noise of a peer in units of what a sample can change.
    colluders
        t.
    adjacency
        ``"zero-out"``: with or without a sample. ``"replace"``: with another one instead, which changes twice as much.

    Examples
    --------
    >>> peers = tuple("abcde")
    >>> guarantee(peers, noise=0.5, colluders=1).mu, guarantee(peers, noise=0.5, colluders=1).local
    (1.0, 2.0)
    """
    change = 2.0 if adjacency == "replace" else 1.0
    floor = change / noise if noise else math.inf
    return Guarantee(
        observer=("the broker", "the broker and one peer")[colluders]
        if colluders < 2
        else f"the broker and {colluders} peers",
        colluders=peers[:colluders],
        adjacency=adjacency,
        mu=floor / math.sqrt(max(1, len(peers) - colluders)),
        local=floor,
        peer=peers[-1],
        search="exact",
        rounds=1,
    )


def calibrate_total(mu: float, *, peers: int, colluders: int, adjacency: Adjacency = "zero-out") -> float:
    r"""Return the deviation :math:`\sigma` with which a total costs :math:`\mu`.

    Examples
    --------
    >>> calibrate_total(1.0, peers=5, colluders=1)
    0.5
    """
    change = 2.0 if adjacency == "replace" else 1.0
    return change / (mu * math.sqrt(max(1, peers - colluders)))
