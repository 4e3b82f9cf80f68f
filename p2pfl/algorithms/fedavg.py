"""FedAvg by gossip: federated averaging without a server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, Local, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.traits import AVERAGING, Traits


@dataclass(frozen=True)
class FedAvg(Local):
    r"""Local epochs, then the weighted mean of the models.

    .. math:: x_k \leftarrow \text{fit}(x_k), \qquad
              x \leftarrow \frac{\sum_{k \in S} n_k x_k}{\sum_{k \in S} n_k}

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights and the gossip steps.
    epochs, steps
        Training of a peer per round; the learner's default if both are ``None``.

    Examples
    --------
    >>> FedAvg(epochs=5).traits.linear
    True

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data,
    AISTATS 2017, Algorithm 1.
    """

    traits: ClassVar[Traits] = AVERAGING
    average: Averaging = Averaging()

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training and averaging."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        return State(mean.rows, mean, report=fitted.report)


@dataclass(frozen=True)
class FedSGD(FedAvg):
    """FedAvg with one step on all samples of a peer per round.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.

    Examples
    --------
    >>> FedSGD().traits.full_batch
    True

    References
    ----------
    The paper of :class:`FedAvg`.
    """

    traits: ClassVar[Traits] = replace(AVERAGING, full_batch=True, private_examples=False)
