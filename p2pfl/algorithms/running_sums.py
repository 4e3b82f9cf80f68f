"""Running sums: push-sum that conserves the mean when messages are lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.message_slots import slots, width
from p2pfl.algorithms.push import rescale_step
from p2pfl.core.errors import TopologyError
from p2pfl.core.neighbourhood import Neighbourhood, Released
from p2pfl.core.rows import Layout, to_device
from p2pfl.core.traits import Traits
from p2pfl.topology import UNBOUND, Schedule, Topology


@dataclass(frozen=True)
class RobustSGP:
    r"""Stochastic gradient push in which each peer sends the total of all that it ever gave.

    A peer splits what it holds, :math:`[x_i, w_i]` after its step, evenly among itself and the
    :math:`d_i` peers that receive from it, and sends the running total instead of the share:

    .. math:: \sigma_i \leftarrow \sigma_i + \frac{[x_i', w_i]}{1 + d_i}, \qquad
              [x_i, w_i] \leftarrow \frac{[x_i', w_i]}{1 + d_i} + \sum_{j \in R_i} (\sigma_j - \rho_{ij}), \qquad
              \rho_{ij} \leftarrow \sigma_j, \qquad z_i = x_i / w_i

    The next total that arrives includes a lost share, so weight is delayed but never lost: without steps
    all z converge to the exact mean of the starts, on any directed graph in which each peer reaches all
    others, over links that lose any messages and confirm none. Totals are kept and sent in double precision,
    because they grow with the rounds while their differences do not.

    What a peer holds is what it contributed, :math:`p_i` of start and steps with a weight of 1, minus what it gave
    (:meth:`given`): :math:`g_{ij} = \sigma_i - \rho_{ij}`. For any set S of peers it follows that

    .. math:: \sum_{i \in S} [x_i, w_i] + \sum_{i \in S} \sum_{j \in S} g_{ij}
              = \sum_{i \in S} [p_i, 1] - \sum_{i \in S} \sum_{j \notin S} g_{ij}

    where the second sum is in flight within S. So peers that disappear take, all together, what they contributed and
    what the survivors S gave them; what they gave each other cancels. No peer knows whether another will return, so
    neighbours continue to give to it.

    Parameters
    ----------
    topology
        Constant topology; a run fills it in.
    layout
        Layout of the models; a run fills it in.

    Raises
    ------
    TopologyError
        The topology is a schedule.

    Examples
    --------
    >>> RobustSGP(layout=Layout(("weight",), ((3,),))).beside
    5

    References
    ----------
    Hadjicostis, Vaidya and Domínguez-García, Robust distributed average consensus via exchange of
    running sums, IEEE Transactions on Automatic Control 2016, Algorithm 1; with gradients: Spiridonoff,
    Olshevsky and Paschalidis, Robust asynchronous stochastic gradient-push, JMLR 2020.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        weighs_neighbours=True,
        single_step=True,
        default_steps=1,
        nonlinear="sends running totals",
        no_privacy="sends running totals, in which masks do not cancel",
        no_compression="sends running totals, of which only the difference from the last is of use",
        needs_plain_averages="sends running totals that are divided by masses",
        needs_one_graph="remembers what each neighbour sent",
        state_per_edge="keeps running totals of each neighbour",
    )
    topology: Topology | Schedule = UNBOUND
    layout: Layout = Layout((), ())

    def __post_init__(self) -> None:
        constant(self.topology, name="robust_sgp")

    @property
    def beside(self) -> int:
        """Numbers sent beside a model: a weight, and both may take twice the bytes."""
        return self.layout.size + 2

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and a push of the totals."""
        graph, extra, count = self.topology.at(0), state.extra, len(net.peers)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        zeros = state.rows.new_zeros(
            count, width(graph), state.rows.shape[-1] + 1, dtype=torch.float64
        )  # [R, D, P + 1]
        masses = extra.get("mass", zeros[:, 0, :1] + 1.0)  # [R, 1]
        rows = rescale_step(state.rows, fitted.rows, masses=masses)  # [R, P]
        released = await net.release(rows, since=state.public, masses=masses)
        pieces = [[1.0 + len(graph.receivers(peer))] for peer in net.peers]
        parts = to_device(torch.tensor(pieces, dtype=masses.dtype), masses.device)  # [R, 1]
        share = torch.cat([released.values.to(torch.float64), masses], dim=-1) / parts  # [R, P + 1]
        total = extra.get("total", zeros[:, 0]) + share  # [R, P + 1]
        seen = extra.get("seen", zeros).clone()  # [R, D, P + 1]
        received = await net.receive(Released(total))
        listener, sender, slot, _ = slots(graph, net.peers, received)  # [E] each
        came = received.rows[sender]  # [E, P + 1]
        share.index_add_(0, listener, came - seen[listener, slot])
        seen[listener, slot] = came
        masses = share[:, -1:]  # [R, 1], at least the own share
        rows = (share[:, :-1] / masses).to(state.rows)  # [R, P]
        return State(
            rows, Released(rows).public, fitted.memory, {"mass": masses, "total": total, "seen": seen}, fitted.report
        )

    def given(self, state: State, *, peers: tuple[str, ...], to: str) -> torch.Tensor:
        r"""Return what peers gave to one peer minus what they received from it: :math:`g_{ij} = \sigma_i - \rho_{ij}`.

        Parameters
        ----------
        state, peers
            State and names of R peers.
        to
            Name of the peer j. Peers give nothing to a peer that does not receive from them, and vice versa.

        Returns
        -------
        torch.Tensor
            Weighted values and a weight, ``[R, P + 1]``; the weight is negative if a peer received more than it gave.

        Examples
        --------
        >>> from p2pfl.core.neighbourhood import Public
        >>> from p2pfl.topology import path
        >>> rows = torch.zeros(1, 2)
        >>> sums = {"total": torch.tensor([[6.0, 4.0, 2.0]]), "seen": torch.tensor([[[1.0, 1.0, 0.5]]])}
        >>> pair = RobustSGP(path(2), Layout(("row",), ((2,),)))
        >>> pair.given(State(rows, Public(rows), extra=sums), peers=("peer0",), to="peer1").tolist()
        [[5.0, 3.0, 1.5]]
        """
        graph, extra = self.topology.at(0), state.extra
        given = state.rows.new_zeros(len(peers), state.rows.shape[-1] + 1, dtype=torch.float64)  # [R, P + 1]
        for index, peer in enumerate(peers if extra else ()):
            if to in graph.receivers(peer):
                given[index] += extra["total"][index]
            if to in graph.senders(peer):
                given[index] -= extra["seen"][index, graph.senders(peer).index(to)]
        return given


def constant(topology: Topology | Schedule, *, name: str) -> Topology:
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
