"""Places in which a receiver keeps the messages of its neighbours."""

from __future__ import annotations

from p2pfl.core.errors import TopologyError
from p2pfl.core.neighbourhood import ReceivedModels
from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.topology import Schedule, Topology


def width(topology: Topology) -> int:
    """Return D, the number of places that a receiver needs: the largest number of peers from which one receives."""
    return max(len(topology.senders(peer)) for peer in topology.peers)


def slots(
    topology: Topology, peers: tuple[str, ...], received: ReceivedModels
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Assign the received models to places.

    Parameters
    ----------
    topology
        Topology; a receiver has a place for each peer from which it receives, in peer order.
    peers
        Names of the R receivers.
    received
        Received models.

    Returns
    -------
    listener, sender, slot, back
        ``[E]`` each on the device of the models, without the peers' own ones: indices into the R receivers and into
        ``received.rows``; the sender's place at the receiver; and the receiver's place at the sender (-1 on a one-way
        edge).

    Examples
    --------
    >>> from p2pfl.topology import path
    >>> one = torch.ones(3)
    >>> both = ReceivedModels(torch.eye(3), torch.tensor([0, 0, 0]), torch.arange(3), one, ("peer1", "peer0", "peer2"))
    >>> [each.tolist() for each in slots(path(4), ("peer1",), both)]
    [[0, 0], [1, 2], [0, 1], [0, 0]]
    """
    slot_of = {
        peer: {sender: number for number, sender in enumerate(topology.senders(peer))}
        for peer in {*peers, *received.peers}
    }
    edges = []
    for listener, sender in zip(received.listener.tolist(), received.sender.tolist(), strict=True):
        me, other = peers[listener], received.peers[sender]
        if me != other:
            edges.append((listener, sender, slot_of[me][other], slot_of[other].get(me, -1)))
    numbers = to_device(torch.tensor(edges, dtype=torch.int64).reshape(-1, 4), received.rows.device)  # [E, 4]
    listener, sender, slot, back = numbers.unbind(-1)  # [E] each
    return listener, sender, slot, back


def one_graph(topology: Topology | Schedule, *, name: str) -> Topology:
    """Return the one graph of all gossip steps.

    Raises
    ------
    TopologyError
        The topology is a schedule of several graphs.
    """
    if topology.period > 1:
        raise TopologyError(
            f"{name} does not work with a schedule of {topology.period} graphs, because its peers remember what each "
            "neighbour sent; take one graph, such as exponential"
        )
    return topology.at(0)
