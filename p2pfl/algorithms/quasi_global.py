"""Quasi-global momentum: an estimate of the momentum of all peers' updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State, always
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.algorithms.tracking import slope
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class QGDSGDm:
    r"""Steps along the own gradient and a momentum of the mixed models' changes.

    .. math:: x_i' = x_i - \eta (g_i + \beta m_i), \qquad
              \bar x_i = \sum_j W_{ij} x_j', \qquad
              m_i \leftarrow \mu m_i + (1 - \mu) \frac{x_i - \bar x_i}{\eta}, \qquad x_i \leftarrow \bar x_i

    Where data differ, the momentum of one peer's own gradients drives it apart from the others; the change of
    the mixed models is similar for all. With K local steps, :math:`\eta K` replaces :math:`\eta` in the third
    formula.

    Parameters
    ----------
    gossip
        Gossip steps per round; one in the paper.
    beta
        Factor of the momentum; 0 gives FedAvg with equal weights.
    mu
        Decay of the momentum over rounds; ``beta`` by default, as in the paper.

    Examples
    --------
    >>> QGDSGDm(beta=0.5).beta
    0.5

    References
    ----------
    Lin, Karimireddy, Stich and Jaggi, Quasi-global momentum: accelerating decentralized deep learning on
    heterogeneous data, ICML 2021, Algorithm 1 (QG-DSGDm).
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="corrects every gradient",
        linear=True,
        convex=True,
        full_participation=True,
        default_steps=1,
        plain_sgd_only=True,
    )
    gossip: Gossip = UNSET
    beta: Annotated[float, Meta(ge=0, lt=1)] = 0.9
    mu: Annotated[float, Meta(ge=0, lt=1)] | None = None

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: local steps with the momentum, and gossip steps."""
        momentum = state.extra.get("momentum", torch.zeros_like(state.rows))  # [R, P]
        fitted = await learner.fit(
            state.rows,
            peers=net.peers,
            round=round,
            memory=state.memory,
            correction=always(self.beta * momentum) if self.beta else None,
        )
        released = await net.release(fitted.rows, since=state.public)
        mixed = (await self.gossip(net, released)).public  # [R, P]
        seen = slope(state.rows, mixed.rows, rate=learner.learner.rate(round), report=fitted.report)  # [R, P]
        mu = self.beta if self.mu is None else self.mu
        momentum = mu * momentum + (1 - mu) * seen
        return State(mixed.rows, mixed, fitted.memory, {"momentum": momentum}, fitted.report)
