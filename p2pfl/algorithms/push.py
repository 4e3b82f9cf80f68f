"""Stochastic gradient push: learning on directed graphs, with weights of which only the columns sum to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class SGP:
    r"""Push sums of models and of weights, and take steps at their quotient.

    .. math:: x_i' = x_i - \gamma \nabla F_i(z_i; \xi_i), \qquad
              x_i \leftarrow \sum_j P_{ij} x_j', \qquad w_i \leftarrow \sum_j P_{ij} w_j, \qquad
              z_i = x_i / w_i

    for mixing weights P of which only the columns must sum to one. The model of a peer is z. The weights w start at
    one and stay there if the rows of P sum to one as well; then this is adapt-then-combine. A lost message also loses
    its weight.

    Parameters
    ----------
    gossip
        Gossip steps per round; one in the paper.

    Examples
    --------
    >>> SGP().traits.weighs_neighbours
    True

    References
    ----------
    Assran, Loizou, Ballas and Rabbat, Stochastic gradient push for distributed deep learning, ICML 2019,
    Algorithm 1; Kempe, Dobra and Gehrke, Gossip-based computation of aggregate information, FOCS 2003.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        weighs_neighbours=True,
        default_steps=1,
        nonlinear="divides by masses that the graph alone makes unequal",
        no_privacy="divides by masses that the graph alone makes unequal",
        needs_plain_averages="divides sums by masses",
    )
    gossip: Gossip = UNSET

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and its gossip steps."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        masses = state.extra.get("mass", torch.ones(len(net.peers), 1, dtype=torch.float64))  # [R, 1]
        rows = rescale_step(state.rows, fitted.rows, masses=masses)  # [R, P]
        released = await net.release(rows, since=state.public, masses=masses)
        pushed = await self.gossip(net, released)
        mixed = pushed.average(own=state.public)
        extra = {} if pushed.masses is None else {"mass": pushed.masses}
        return State(mixed.rows, mixed, fitted.memory, extra, fitted.report)


def rescale_step(before: Rows, after: Rows, *, masses: torch.Tensor) -> Rows:
    r"""Return the step of the sums as a step of their quotients, ``[R, P]``: :math:`z - \gamma g / w`.

    If all weights are one, it is the step itself, bit for bit. Smaller weights make it longer.
    """
    return after + (after - before) * to_device(1.0 / masses - 1.0, after.device).to(after)
