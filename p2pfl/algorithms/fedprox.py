"""FedProx by gossip: federated averaging on a leash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.corrections import proximal
from p2pfl.algorithms.local import Local
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.traits import Traits


@dataclass(frozen=True)
class FedProx(Local):
    r"""FedAvg whose local losses have a term that holds a peer near where the round began.

    .. math:: x_k \leftarrow \text{fit}(x_k) \text{ on } F_k(y) + \frac{\mu}{2} \lVert y - x_k \rVert^2, \qquad
              x \leftarrow \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    What stragglers have done counts (``learning.stragglers``); FedAvg in the paper drops it
    (``learning.drop_stragglers``). With :math:`\mu = 0` it is FedAvg, bit for bit.

    Parameters
    ----------
    average
        Over whom, by what weights and how exactly.
    epochs, steps
        How much a peer trains in a round; what the learner does by itself where both are ``None``.
    mu
        :math:`\mu \ge 0`. The paper found 1 best on its synthetic data and on pictures, 0.001 to 0.01 on text.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated optimization in heterogeneous networks,
    MLSys 2020, Algorithm 2.
    """

    traits: ClassVar[Traits] = Traits(needs_gradients="corrects every gradient", linear=True, convex=True)
    average: Averaging = Averaging()
    mu: Annotated[float, Meta(ge=0)] = 1.0

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One round of local training on the leash, and averaging."""
        active = self.average.participants(net.peers, round=round)  # [R]
        leash = proximal(state.rows, strength=self.mu)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active, correction=leash)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        return State(mean.rows, mean, report=fitted.report)
