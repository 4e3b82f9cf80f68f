"""FedNova by gossip: an average in which peers do not gain weight by making more steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, Local, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood, release_bare
from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits

ROUNDING = 1e-9
"""Distance from a whole number below which a mean of whole numbers is rounded to it."""

MIXES_STEPS = "mixes numbers of steps beside rows"


@dataclass(frozen=True)
class FedNova(Local):
    r"""FedAvg with updates normalised by their numbers of steps.

    With :math:`\tau_k` steps of peer k, from x to :math:`y_k`, and weights :math:`p_k` that sum to one over S,

    .. math:: x \leftarrow x + \tau \sum_{k \in S} p_k \frac{y_k - x}{\tau_k}, \qquad \tau = \sum_{k \in S} p_k \tau_k

    so peers with more samples or more epochs do not pull the mean towards their own optimum. The numbers of
    steps are public and averaged first; then each peer releases one model, :math:`x + (\tau / \tau_k)(y_k - x)`.
    If all peers make the same number of steps, it is FedAvg, bit for bit. It supports plain gradient steps, for which
    the vector :math:`a_k` in the paper is all ones.

    Parameters
    ----------
    average
        Average over the participants: who they are, their weights and the gossip steps.
    epochs, steps
        Training of a peer per round; the learner's default if both are ``None``.

    Examples
    --------
    >>> FedNova(epochs=3).traits.plain_sgd_only
    True

    References
    ----------
    Wang, Liu, Liang, Joshi, Poor, Tackling the objective inconsistency problem in heterogeneous
    federated optimization, NeurIPS 2020, section 4.
    """

    traits: ClassVar[Traits] = Traits(
        nonlinear=MIXES_STEPS, plain_sgd_only=True, needs_plain_averages=MIXES_STEPS, idle_alike=True
    )
    average: Averaging = Averaging()

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training and normalised averaging."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)
        steps = fitted.report.steps.to(torch.float64).unsqueeze(-1)  # [R, 1]
        share = await self._mean(net, steps, masses) / steps.clamp_min(1)  # [R, 1]
        scale = to_device(share, fitted.rows.device).to(fitted.rows)  # [R, 1]
        normed = torch.where(scale == 1, fitted.rows, torch.lerp(state.rows, fitted.rows, scale))
        mean = await self.average(net, normed, since=state.public, masses=masses)
        return State(mean.rows, mean, report=fitted.report)

    async def _mean(self, net: Neighbourhood, steps: torch.Tensor, masses: torch.Tensor | None) -> torch.Tensor:
        """Return the mean number of steps of the participants, ``[R, 1]``."""
        mean = (await self.average.gossip(net, release_bare(steps, masses))).mean(own=steps)  # [R, 1]
        whole = mean.round()
        return torch.where((mean - whole).abs() < ROUNDING, whole, mean)
