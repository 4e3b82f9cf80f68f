"""Secure sums: mask graph, numbers of senders, and admissible terms."""

from __future__ import annotations

import numpy as np

from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Released
from p2pfl.core.tensors import torch
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import Ints
from p2pfl.topology import Topology, Weights


def partners(weights: Weights) -> Topology:
    """Return the graph of mask partners: every two peers that send to the same receiver.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> partners(metropolis(ring(5))).neighbours("peer0")
    ('peer2', 'peer3')
    """
    peers, matrix = weights.peers, weights.rows
    edges: set[Edge] = set()
    for receiver in range(len(peers)):
        received = matrix.indices[matrix.indptr[receiver] : matrix.indptr[receiver + 1]]
        senders = sorted(peers[sender] for sender in received if sender != receiver)
        edges |= {(a, b) for number, a in enumerate(senders) for b in senders[number + 1 :]}
    return Topology(peers, tuple(sorted(edges)))


def senders(weights: Weights) -> Ints:
    """Return the number of senders of each peer, ``[N]``.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> senders(metropolis(ring(4))).tolist()
    [2, 2, 2, 2]
    """
    rows = weights.rows
    return np.bincount(rows.rows[rows.rows != rows.indices], minlength=len(weights.peers))


def grid_points(released: Released, *, bits: int) -> torch.Tensor:
    """Return rows in steps of the grid, ``[R, P]`` float64: whole numbers where they were hidden or mixed before.

    Examples
    --------
    >>> grid_points(Released(torch.tensor([[0.5, 0.375]])), bits=2).tolist()
    [[2.0, 1.5]]
    """
    rows = released.rows.detach().to(torch.float64)
    return rows if released.grid == bits else rows * 2.0**bits


def refuse_rows(released: Released) -> None:
    """Refuse to pass on single models; one public number a peer may pass.

    Raises
    ------
    PrivacyError
        The release consists of models.
    """
    if released.rows.shape[-1] > 1 or released.grid is not None or released.masses is not None:
        raise PrivacyError(
            'the algorithm requests single models, and privacy.mode = "secagg" reveals only sums; use an algorithm '
            "that mixes, or another mode"
        )
