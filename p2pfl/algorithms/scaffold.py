"""SCAFFOLD by gossip: local steps without client drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, Local, State, constant
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood, derived
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.learning import Fitted

VARIATE = "releases a second row a round, its control variate"


@dataclass(frozen=True)
class SCAFFOLD(Local):
    r"""FedAvg whose gradients are corrected by an estimate of all peers' gradients.

    K steps :math:`y_k \leftarrow y_k - \eta (\nabla F_k(y_k) - c_k + c)` from :math:`y_k = x`, then

    .. math:: c_k \leftarrow \nabla F_k(x) \text{ (I)} \quad\text{or}\quad
              c_k - c + \frac{x - y_k}{K \eta} \text{ (II)}, \\
              x \leftarrow x + \eta_g \sum_{k \in S} w_k (y_k - x), \quad c \leftarrow \sum_{k} w_k c_k

    with weights that sum to one over the participants S, and over all peers. A peer that sits out keeps its control
    variate :math:`c_k` and releases it again, so c is always the mean of all, whatever was lost before. In the paper
    the server computes :math:`c \leftarrow c + \frac{|S|}{N} \operatorname{mean}_S \Delta c_k`, which is the same.

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights (equal in the paper) and the gossip steps.
    epochs, steps
        Training of a peer per round; the learner's default if both are ``None``.
    option
        Update of the control variate: I costs a gradient on all data per round, II costs nothing.
    global_rate
        :math:`\eta_g`, 1 in the paper's experiments.

    Examples
    --------
    >>> SCAFFOLD(option="I", steps=10).option
    'I'

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, SCAFFOLD: Stochastic controlled averaging for
    federated learning, ICML 2020, Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="corrects every gradient",
        plain_sgd_only=True,
        no_privacy=VARIATE,
        no_compression=VARIATE,
        needs_plain_averages="needs control variates that add up to zero",
        nonlinear=VARIATE,
        idle_alike=True,
        idle_weighs=True,
    )
    average: Averaging = Averaging()
    option: Literal["I", "II"] = "II"
    global_rate: Annotated[float, Meta(gt=0)] = 1.0

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: corrected steps, then the means of the models and of the control variates."""
        active = self.average.participants(net.peers, round=round)  # [R]
        nothing = torch.zeros_like(state.rows)  # [R, P]
        common, own = state.extra.get("common", nothing), state.extra.get("own", nothing)
        drift = constant(common - own)
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active, correction=drift)
        if self.option == "I":
            variates = await learner.gradient(state.rows, peers=net.peers, round=round, whole=True, active=active)
        else:
            variates = own - common + self._slope(state.rows, fitted, rate=learner.learner.rate(round))
        moved = to_device(fitted.report.steps > 0, own.device).unsqueeze(-1)  # [R, 1]
        own = torch.where(moved, variates, own)
        weights = await self.average.masses(learner, net, torch.ones_like(active))  # [R, 1]
        masses = None if weights is None else weights * active.unsqueeze(-1)
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        released = await net.release(own, since=derived(torch.zeros_like, state.public), masses=weights)
        common = (await self.average.gossip(net, released)).mean(own=own)  # private; no release starts from it
        if self.global_rate != 1:
            mean = derived(lambda before, now: before + self.global_rate * (now - before), state.public, mean)
        return State(mean.rows, mean, extra={"common": common, "own": own}, report=fitted.report)

    @staticmethod
    def _slope(rows: Rows, fitted: Fitted, *, rate: float) -> Rows:
        """Return the mean corrected gradient of the steps taken, ``[R, P]``."""
        steps = to_device(fitted.report.steps.clamp_min(1).unsqueeze(-1), rows.device).to(rows)  # [R, 1]
        return (rows - fitted.rows) / (steps * rate)
