"""FedRep: personal heads on a common representation, trained in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.fedper import FedPer
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import to_device
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class FedRep(FedPer):
    r"""FedPer in which first the personal part v takes its steps, then the shared part u.

    .. math:: v_k \leftarrow v_k - \eta \nabla_v F_k(u, v_k), \qquad u_k \leftarrow u_k - \eta \nabla_u F_k(u_k, v_k)

    Each round makes ``head_steps`` of the first and ``body_steps`` of the second, with one batch each and the
    learning rate as step size (the optimiser is not used); then peers average u.

    Parameters
    ----------
    average, layout, personal
        Parameters of :class:`FedPer`.
    head_steps
        :math:`\tau`, steps of the personal part.
    body_steps
        Steps of the shared part; one in the paper.

    Examples
    --------
    >>> FedRep(head_steps=5).traits.own_optimizer
    True

    References
    ----------
    Collins, Hassani, Mokhtari and Shakkottai, Exploiting shared representations for personalized
    federated learning, ICML 2021, Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="takes gradient steps itself",
        linear=True,
        convex=True,
        own_optimizer=True,
        personal=True,
        idle_alike=True,
    )
    head_steps: Annotated[int, Meta(ge=0)] = 10
    body_steps: Annotated[int, Meta(ge=0)] = 1

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: steps of the head, steps of the body, and an average of the body."""
        peers, rate = net.peers, learner.learner.rate(round)
        active = self.average.participants(peers, round=round)  # [R]
        rows = state.rows
        for step in range(self.head_steps + self.body_steps):
            slope = await learner.gradient(rows, peers=peers, round=round, step=step, active=active)  # [R, P]
            moves = to_device(self.common, rows.device) ^ (step < self.head_steps)  # [P]
            rows = rows.add(slope * moves, alpha=-rate)
        masses = await self.average.masses(learner, net, active)
        return await self.exchange(net, rows, public=state.public, masses=masses)
