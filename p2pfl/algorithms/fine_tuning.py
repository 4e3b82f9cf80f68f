"""Fine-tuning: FedAvg first, then local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.fedavg import FedAvg
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class FineTuning:
    r"""FedAvg whose last rounds are local: each peer continues to train the common model and releases nothing.

    .. math:: v_k = \text{fit}(\dots \text{fit}(x_{T - \text{last}}))

    It needs no more gossip steps than FedAvg and often gains as much as an algorithm for personal models. A run
    that stops early because of its privacy budget stops before fine-tuning.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`.
    rounds
        T, all rounds of the run; a run fills it in.
    last
        Number of local rounds at the end; 0 is FedAvg.

    Examples
    --------
    >>> from p2pfl import simulate
    >>> options = {"algorithm": "fine_tuning", "algorithm_options": {"last": 2}}
    >>> run = simulate({"rounds": 4, "data": {"name": "wine"}, "learning": options}, baselines=False)
    >>> sum(record.received == 0 for record in run.metrics if record.peer == "peer0")
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
        """Run one round of FedAvg, or of local training."""
        if round < self.rounds - self.last:
            return await FedAvg(self.average).round(state, learner, net, round)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        return State(fitted.rows, state.public, report=fitted.report)
