"""Secure sums in one process: mask graph, admissible terms, and all messages of a sum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Released
from p2pfl.privacy.keys import Source
from p2pfl.privacy.masks import Edge
from p2pfl.privacy.normal_stream import Ints
from p2pfl.privacy.secagg.protocol import Consent, Receiver, Sender, Sum
from p2pfl.topology import Topology, Weights


def partners(weights: Weights) -> Topology:
    """Return the graph of mask partners: every two peers that send to the same receiver.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> partners(metropolis(ring(5))).neighbours("peer0")
    ('peer2', 'peer3')
    """
    peers, matrix = weights.peers, weights.matrix
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
    matrix = weights.matrix
    listener = np.repeat(np.arange(len(weights.peers)), np.diff(matrix.indptr))  # [E]
    return np.bincount(listener[listener != matrix.indices], minlength=len(weights.peers))


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


def run_sum(
    sum: Sum, terms: Mapping[str, Ints], *, secrets: Mapping[Edge, bytes], source: Source
) -> tuple[tuple[str, ...], Ints | None]:
    """Carry out a sum with all its messages, for simulations that draw the masks.

    Parameters
    ----------
    sum
        Facts about the sum.
    terms
        ``[P]`` grid points of each sender whose share arrives; the others' are lost.
    secrets, source
        Edge secrets, and the source of the keys, of all senders.

    Returns
    -------
    here, total
        The participant set, and the sum; empty and ``None`` if the set would be too small.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> from p2pfl.privacy.masks import swarm_secrets
    >>> from p2pfl.privacy.secagg.protocol import SumSlot
    >>> from p2pfl.topology import complete
    >>> names = ("ada", "bob", "cleo", "dan")
    >>> given = {"secrets": swarm_secrets(complete(4).named(names), source=SeededSource(7), run="demo")}
    >>> terms = {name: np.full(3, number) for number, name in enumerate(names)}
    >>> run_sum(Sum(SumSlot("eve", 0, 0), names, size=3), terms, source=SeededSource(7), **given)
    (('ada', 'bob', 'cleo', 'dan'), array([6, 6, 6]))
    >>> del terms["bob"]
    >>> run_sum(Sum(SumSlot("eve", 1, 0), names, size=3), terms, source=SeededSource(7), **given)
    (('ada', 'cleo', 'dan'), array([5, 5, 5]))
    """
    receiver = Receiver(sum)
    senders = {peer: Sender(sum, peer=peer, secrets=secrets, source=source) for peer in terms}
    for peer, sender in senders.items():
        receiver.take(sender.share(terms[peer].copy()))
    roll = receiver.close()
    if roll is None:
        return (), None
    consents: tuple[Consent, ...] = ()
    for peer in roll.here:
        consent = senders[peer].consent(roll)
        if consent is not None:
            consents = receiver.collect(consent) or ()
    for peer in roll.here:
        receiver.unlock(senders[peer].keys(consents))
    return roll.here, receiver.total()
