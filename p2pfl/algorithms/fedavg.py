"""FedAvg by gossip: federated averaging with nobody in the middle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.local import Local
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.traits import AVERAGING, Traits


@dataclass(frozen=True)
class FedAvg(Local):
    r"""Local epochs, then the weighted mean of the rows.

    .. math:: x_k \leftarrow \text{fit}(x_k), \qquad
              x \leftarrow \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    Parameters
    ----------
    average
        Over whom, by what weights and how exactly.
    epochs, steps
        How much a peer trains in a round; what the learner does by itself where both are ``None``.

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017, Algorithm 1.
    """

    traits: ClassVar[Traits] = AVERAGING
    average: Averaging = Averaging()

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One round of local training and averaging."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        return State(mean.rows, mean, report=fitted.report)


@dataclass(frozen=True)
class FedSGD(FedAvg):
    """FedAvg in which a round is one step on all samples of a peer.

    Parameters
    ----------
    average
        As for :class:`FedAvg`.

    References
    ----------
    As for :class:`FedAvg`.
    """

    traits: ClassVar[Traits] = replace(AVERAGING, full_batch=True, private_examples=False)
