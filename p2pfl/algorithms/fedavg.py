"""FedAvg by gossip: federated averaging with nobody in the middle."""

from __future__ import annotations

from dataclasses import dataclass

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.neighbourhood import Neighbourhood


@dataclass(frozen=True)
class FedAvg:
    r"""Local epochs, then the weighted mean of the rows.

    .. math:: x_k \leftarrow \text{fit}(x_k), \qquad
              x \leftarrow \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    FedSGD is the case of one epoch with one batch.

    Parameters
    ----------
    average
        Over whom, by what weights and how exactly.

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017, Algorithm 1.
    """

    average: Averaging

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One round of local training and averaging."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        return State(mean.rows, mean, report=fitted.report)
