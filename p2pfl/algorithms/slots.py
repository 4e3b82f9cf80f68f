"""Where a listener keeps what each of its neighbours said."""

from __future__ import annotations

import torch

from p2pfl.neighbourhood import Heard
from p2pfl.topology import Topology


def width(topology: Topology) -> int:
    """How many places a listener needs: D, the most peers that one hears."""
    return max(len(topology.hears(peer)) for peer in topology.peers)


def slots(
    topology: Topology, peers: tuple[str, ...], heard: Heard
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Number the rows that came from others.

    Parameters
    ----------
    topology
        A listener's places are those it hears, in peer order, whoever was heard this time.
    peers
        Whose R rows listen.
    heard
        What they heard.

    Returns
    -------
    listener, sender, slot, back
        ``[E]`` each, without anybody hearing itself: indices into the R rows and into ``heard.rows``;
        the sender's place at the listener; and the listener's place at the sender (-1 on a one-way edge).

    Examples
    --------
    >>> from p2pfl.topology import path
    >>> one = torch.ones(3)
    >>> both = Heard(torch.eye(3), torch.tensor([0, 0, 0]), torch.arange(3), one, ("peer1", "peer0", "peer2"))
    >>> [each.tolist() for each in slots(path(4), ("peer1",), both)]
    [[0, 0], [1, 2], [0, 1], [0, 0]]
    """
    place = {
        peer: {sender: number for number, sender in enumerate(topology.hears(peer))} for peer in {*peers, *heard.peers}
    }
    edges = []
    for listener, sender in zip(heard.listener.tolist(), heard.sender.tolist(), strict=True):
        me, other = peers[listener], heard.peers[sender]
        if me != other:
            edges.append((listener, sender, place[me][other], place[other].get(me, -1)))
    numbers = torch.tensor(edges, dtype=torch.int64).reshape(-1, 4)  # [E, 4]
    listener, sender, slot, back = numbers.unbind(-1)  # [E] each
    return listener, sender, slot, back
