"""Stochastic gradient push: learning on directed graphs, where no peer knows who hears it equally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.rows import Rows
from p2pfl.traits import Traits


@dataclass(frozen=True)
class SGP:
    r"""Push sums of rows and of masses, step where their quotient stands.

    .. math:: x_i' = x_i - \gamma \nabla F_i(z_i; \xi_i), \qquad
              x_i \leftarrow \sum_j P_{ij} x_j', \qquad w_i \leftarrow \sum_j P_{ij} w_j, \qquad
              z_i = x_i / w_i

    for weights P of which only the columns must sum to one. A peer is its z; the masses w begin at one
    and stay there where the rows of P sum to one as well, so that nothing is left but adapt-then-combine.
    What is missed takes no mass with it that its receiver would know of: :class:`RobustSGP` is exact
    under loss.

    Parameters
    ----------
    gossip
        One exchange a round in the paper.

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
        """One step of every peer, and a push."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        masses = state.extra.get("mass", torch.ones(len(net.peers), 1, dtype=torch.float64))  # [R, 1]
        rows = lengthened(state.rows, fitted.rows, masses=masses)  # [R, P]
        released = await net.release(rows, since=state.public, masses=masses)
        pushed = await self.gossip(net, released)
        mixed = pushed.average(own=state.public)
        extra = {} if pushed.masses is None else {"mass": pushed.masses}
        return State(mixed.rows, mixed, fitted.memory, extra, fitted.report)


def lengthened(before: Rows, after: Rows, *, masses: torch.Tensor) -> Rows:
    r"""A step of the sums as one of their quotients, ``[R, P]``: :math:`z - \gamma g / w`.

    Where all masses are one it is the step itself, bit for bit. The smaller the mass, the longer it is.
    """
    return after + (after - before) * (1.0 / masses - 1.0).to(after)
