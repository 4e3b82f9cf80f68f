"""RelaySGD: exact sums on a tree, with delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.message_slots import one_graph, slots, width
from p2pfl.core.errors import TopologyError
from p2pfl.core.neighbourhood import Neighbourhood, Released
from p2pfl.core.rows import Rows
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.topology import UNBOUND, Schedule, Topology, check_connected

Relayed = Mapping[str, torch.Tensor]
"""``received`` and ``sent``, ``[R, D, P + 1]`` by neighbour; ``included`` ``[R, D]``; ``round`` ``[R, 1]``."""


@dataclass(frozen=True)
class RelaySGD:
    r"""Send each neighbour on a tree the sum of the own model and of what the other neighbours sent.

    .. math:: m_{i \to j}^t = x_i' + \sum_{k \in N_i \setminus j} m_{k \to i}^{t-1}, \qquad
              c_{i \to j}^t = 1 + \sum_{k \in N_i \setminus j} c_{k \to i}^{t-1}, \qquad
              x_i \leftarrow \frac{x_i' + \sum_j m_{j \to i}^t}{1 + \sum_j c_{j \to i}^t}

    where :math:`x_i'` is the model after its step. Every model has the same weight in every mean, with a delay
    of as many rounds as its distance, so differences between the peers' data hardly matter. A peer sends one
    message to all neighbours, :math:`x_i' + \sum_k m_{k \to i}^{t-1}`, from which each neighbour subtracts what
    it sent itself. With it the peer sends a flag for each neighbour: whether its message of the round before
    arrived. A missing message is missing in sum and count of that round, and peers relay nothing stale.

    Parameters
    ----------
    topology
        A tree; a run fills it in.

    Raises
    ------
    TopologyError
        The topology is not a tree, or it is a schedule.

    Examples
    --------
    >>> from p2pfl.topology import path
    >>> RelaySGD(path(4)).beside
    3

    References
    ----------
    Vogels, He, Koloskova, Lin, Karimireddy, Stich and Jaggi, RelaySum for decentralized deep learning on
    heterogeneous data, NeurIPS 2021, Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        single_step=True,
        default_steps=1,
        nonlinear="sends sums of rows",
        no_privacy="sums rows of different rounds, whose masks do not cancel",
        no_compression="subtracts from what it receives exactly what it had sent",
        needs_plain_averages="sends sums of rows",
        needs_one_graph="remembers what each neighbour sent",
        state_per_edge="passes sums along the edges of a tree",
    )
    topology: Topology | Schedule = UNBOUND

    def __post_init__(self) -> None:
        tree = one_graph(self.topology, name="relay_sgd")
        check_connected(tree)
        if tree.directed or len(tree.edges) != len(tree.peers) - 1:
            kind = "directed" if tree.directed else f"no tree, with {len(tree.edges)} edges for {len(tree.peers)} peers"
            raise TopologyError(
                f"relay_sgd needs a tree, and the topology is {kind}; take a path or a star, or a file with a spanning "
                "tree"
            )

    @property
    def beside(self) -> int:
        """Numbers sent beside a model: a count, and a flag for each neighbour."""
        return 1 + width(self.topology.at(0))

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and a relay."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        released = await net.release(fitted.rows, since=state.public)
        sums, relayed = await relay(self.topology.at(0), net, released, state.extra, round=round)
        rows = sums[:, :-1] / sums[:, -1:]  # [R, P]
        return State(rows, Released(rows).public, fitted.memory, relayed, fitted.report)


async def relay(
    tree: Topology, net: Neighbourhood, released: Released, before: Relayed, *, round: int
) -> tuple[Rows, Relayed]:
    """Run one gossip step of RelaySum.

    Parameters
    ----------
    tree
        Topology.
    net
        Neighbourhood that carries the messages.
    released
        Models to sum, ``[R, P]``.
    before
        Second result of the last round in which the peer was present; empty at first.
    round
        Number of the round; messages are used in the next round only.

    Returns
    -------
    sums, relayed
        The sum of the models that have arrived and their number, ``[R, P + 1]``; and what the next round needs.
    """
    values = released.values
    own = torch.cat([values, values.new_ones(len(values), 1)], dim=-1)  # [R, P + 1]
    received, sent, included = _memory(before, own, width(tree), round=round)
    total = own + received.sum(dim=1)  # [R, P + 1]
    arrived = await net.receive(Released(torch.cat([total, included], dim=-1)))  # [R, P + 1 + D]
    listener, sender, slot, back = slots(tree, net.peers, arrived)  # [E] each
    came, flags = arrived.rows[sender].tensor_split([own.shape[-1]], dim=-1)  # [E, P + 1], [E, D]
    had = flags.gather(1, back.unsqueeze(-1))  # [E, 1]: whether what the listener told is in it
    fresh, included_now = torch.zeros_like(received), torch.zeros_like(included)
    fresh[listener, slot] = came - had * sent[listener, slot]
    included_now.index_put_((listener, slot), included_now.new_ones(()))  # a number of the CPU would be waited for
    now = torch.full((len(values), 1), round, device=values.device)  # [R, 1]
    relayed = {"received": fresh, "sent": total.unsqueeze(1) - received, "included": included_now, "round": now}
    return own + fresh.sum(dim=1), relayed


def _memory(before: Relayed, own: Rows, slots: int, *, round: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what was received and sent in the round before, ``[R, D, P + 1]`` each, and from which, ``[R, D]``."""
    if not before:
        nothing = own.new_zeros(len(own), slots, own.shape[-1])  # [R, D, P + 1]
        return nothing, nothing, nothing[..., 0]
    recent = before["round"] == round - 1  # [R, 1]
    received = torch.where(recent.unsqueeze(-1), before["received"], 0.0)  # [R, D, P + 1]
    return received, before["sent"], torch.where(recent, before["included"], 0.0)
