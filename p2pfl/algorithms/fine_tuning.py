"""Fine-tuning: FedAvg first, then everybody for themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.neighbourhood import Neighbourhood
from p2pfl.traits import Traits


@dataclass(frozen=True)
class FineTuning:
    r"""FedAvg, whose last rounds are local: everybody trains the common row on, and nobody releases any.

    .. math:: v_k = \text{fit}(\dots \text{fit}(x_{T - \text{last}}))

    It costs no exchange more than FedAvg, and often as much is gained by it as by an algorithm made
    for personal models. A run that ends early, by ``learning.stop`` or by its privacy budget, ends
    before it is tuned.

    Parameters
    ----------
    average
        As for FedAvg.
    rounds
        T, all rounds of the run.
    last
        How many of them are local; 0 is FedAvg.

    Examples
    --------
    >>> from p2pfl import simulate
    >>> options = {"algorithm": "fine_tuning", "algorithm_options": {"last": 2}}
    >>> run = simulate({"rounds": 4, "data": {"name": "wine"}, "learning": options}, baselines=False)
    >>> sum(record.heard == 0 for record in run.metrics if record.peer == "peer0")
    2

    References
    ----------
    Yu, Bagdasaryan and Shmatikov, Salvaging federated learning by local adaptation,
    arXiv:2002.04758, 2020, section 3 (fine-tuning).
    """

    traits: ClassVar[Traits] = Traits(linear=True, convex=True, silent_rounds=True, personal=True)
    average: Averaging = Averaging()
    rounds: int = 1
    last: Annotated[int, Meta(ge=0)] = 1

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One round of FedAvg, or of local training."""
        if round < self.rounds - self.last:
            return await FedAvg(self.average).round(state, learner, net, round)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        return State(fitted.rows, state.public, report=fitted.report)
