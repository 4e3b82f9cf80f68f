"""Per-FedAvg: a common start from which one step leads to a good personal model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class PerFedAvg:
    r"""FedAvg on the losses after one step: :math:`\min_w \sum_k F_k(w - \alpha \nabla F_k(w))`.

    .. math:: w_k \leftarrow w_k - \beta\, (I - \alpha \nabla^2 F_k(w_k; \xi''))\,
              \nabla F_k\bigl(w_k - \alpha \nabla F_k(w_k; \xi); \xi'\bigr)

    with one batch each, ``steps`` times per round. The variant ``fo`` leaves the Hessian out; ``hf`` replaces its
    product with the gradient g by the difference
    :math:`\bigl(\nabla F_k(w + \delta g) - \nabla F_k(w - \delta g)\bigr) / 2 \delta`, which is exact on quadratics. A
    peer is evaluated with :math:`w - \alpha \nabla F_k(w)` on all its samples, which does not leave it.

    Parameters
    ----------
    average
        Average over the participants, as for :class:`FedAvg`. :math:`\beta` is the learning rate; the optimiser is
        not used.
    inner
        :math:`\alpha`; at 0 it is FedAvg.
    steps
        :math:`\tau`, of two (``fo``) or four (``hf``) gradients each.
    variant
        ``fo`` or ``hf``.
    delta
        :math:`\delta`.

    Examples
    --------
    >>> PerFedAvg(variant="hf").variant
    'hf'

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, Personalized federated learning with theoretical guarantees: a
    model-agnostic meta-learning approach, NeurIPS 2020, Algorithm 1 and section 5.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="takes gradient steps itself", linear=True, convex=True, own_optimizer=True, personal=True
    )
    average: Averaging = Averaging()
    inner: Annotated[float, Meta(ge=0)] = 0.01
    steps: Annotated[int, Meta(ge=1)] = 10
    variant: Literal["fo", "hf"] = "fo"
    delta: Annotated[float, Meta(gt=0)] = 1e-3

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: steps of the participants, an average, and one local step from it."""
        peers, rate = net.peers, learner.learner.rate(round)
        active = self.average.participants(peers, round=round)  # [R]
        local = state.public.rows  # [R, P]
        for step in range(0, 3 * self.steps, 3):
            slope = await learner.gradient(local, peers=peers, round=round, step=step, active=active)  # [R, P]
            ahead = local.add(slope, alpha=-self.inner)
            slope = await learner.gradient(ahead, peers=peers, round=round, step=step + 1, active=active)
            if self.variant == "hf":
                ends = [
                    await learner.gradient(local + way * slope, peers=peers, round=round, step=step + 2, active=active)
                    for way in (self.delta, -self.delta)
                ]
                slope = slope - self.inner * (ends[0] - ends[1]) / (2 * self.delta)
            local = local.add(slope, alpha=-rate)
        masses = await self.average.masses(learner, net, active)
        mean = await self.average(net, local, since=state.public, masses=masses)
        slope = await learner.gradient(mean.rows, peers=peers, round=round, whole=True)
        return State(mean.rows.add(slope, alpha=-self.inner), mean)
