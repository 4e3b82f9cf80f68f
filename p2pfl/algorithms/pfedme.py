"""pFedMe: personal models as the proximal points of a common one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood, Public, derived
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class PFedMe:
    r"""Gradient descent on the Moreau envelopes of all losses.

    .. math::

        \theta_k \approx \arg\min_\theta F_k(\theta; \xi) + \tfrac{\lambda}{2} \lVert \theta - w_k \rVert^2, \qquad
        w_k \leftarrow w_k - \eta \lambda (w_k - \theta_k)

    ``steps`` times with one batch each, then :math:`w \leftarrow (1 - \beta) w + \beta \bar w`. ``inner`` gradient
    steps from the last :math:`\theta_k` approximate the minimum, with the learning rate as step size (the
    optimiser is not used). A peer is evaluated with :math:`\theta_k` and releases only :math:`w_k`. With one
    inner step and :math:`\eta \lambda = \beta = 1` it is FedAvg.

    Parameters
    ----------
    average
        Average over the participants' w; all peers make their steps.
    pull
        :math:`\lambda`.
    steps
        R, batches per round.
    inner
        K, gradient steps per batch.
    rate
        :math:`\eta`; at :math:`1 / \lambda` a step leads to :math:`\theta_k`.
    relax
        :math:`\beta`.

    Examples
    --------
    >>> PFedMe(pull=5.0).pull
    5.0

    References
    ----------
    Dinh, Tran and Nguyen, Personalized federated learning with Moreau envelopes, NeurIPS 2020,
    Algorithm 1; as in its published code, :math:`\theta_k` starts each round at w and each batch where it is.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="takes gradient steps itself", linear=True, own_optimizer=True, personal=True
    )
    average: Averaging = Averaging()
    pull: Annotated[float, Meta(ge=0)] = 15.0
    steps: Annotated[int, Meta(ge=1)] = 20
    inner: Annotated[int, Meta(ge=1)] = 5
    rate: Annotated[float, Meta(ge=0)] = 0.005
    relax: Annotated[float, Meta(gt=0)] = 1.0

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: ``steps * inner`` gradient steps of each peer, and one average."""
        peers, step_size = net.peers, learner.learner.rate(round)
        local = personal = state.public.rows  # [R, P]
        for step in range(self.steps):
            for _ in range(self.inner):
                slope = await learner.gradient(personal, peers=peers, round=round, step=step)  # [R, P]
                personal = personal.add(slope + self.pull * (personal - local), alpha=-step_size)
            local = torch.lerp(local, personal, self.rate * self.pull)
        active = self.average.participants(peers, round=round)  # [R]
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, local, since=state.public, masses=masses)
        return State(personal, self._relax(state, mean))

    def _relax(self, state: State, mean: Public) -> Public:
        """Return w moved towards a mean."""
        return derived(partial(torch.lerp, weight=self.relax), state.public, mean)
