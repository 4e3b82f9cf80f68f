"""Model propagation: models that peers learned alone, smoothed over a graph of similar peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.averaging import Averaging
from p2pfl.algorithms.gossip import maximum
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class Propagation:
    r"""Some rounds alone, which give :math:`\theta`; then each peer stays near its own model and near its neighbours.

    .. math:: x_k \leftarrow \frac{\alpha \sum_l P_{kl} x_l + (1 - \alpha) c_k \theta_k}{\alpha + (1 - \alpha) c_k},
              \qquad c_k = \frac{n_k}{\max_l n_l}

    with P the mixing weights, once per round. It converges to the minimum of
    :math:`\frac12 \sum_{k<l} W_{kl} \lVert x_k - x_l \rVert^2 + \frac{1 - \alpha}{2 \alpha} \sum_k D_k c_k \lVert x_k -
    \theta_k \rVert^2`, which is :math:`(1 - \alpha) (I - (1 - \alpha)(I - C) - \alpha P)^{-1} C \theta`:
    peers with few samples depend more on others. At the start, peers flood the largest number of samples.

    Parameters
    ----------
    average
        Average whose ``graph`` carries the largest number of samples to all peers.
    alone
        Rounds of training before the first gossip step.
    smoothing
        :math:`\alpha`: at 0 each peer keeps :math:`\theta`; close to 1, all agree.

    Examples
    --------
    >>> Propagation(alone=3).traits.personal
    True

    References
    ----------
    Vanhaesebrouck, Bellet and Tommasi, Decentralized collaborative learning of personalized models
    over networks, AISTATS 2017, section 3, equation 5.
    """

    traits: ClassVar[Traits] = Traits(
        full_participation=True,
        single_step=True,
        silent_rounds=True,
        personal=True,
        nonlinear="mixes models that differ on purpose",
        no_privacy="keeps models apart, so that masks stay",
        no_compression="keeps models apart, so that differences stay as large as rows",
        needs_plain_averages="mixes models that differ on purpose",
    )
    average: Averaging = Averaging()
    alone: Annotated[int, Meta(ge=0)] = 1
    smoothing: Annotated[float, Meta(ge=0, lt=1)] = 0.9

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of local training, or one gossip step."""
        confidence = state.extra.get("confidence")  # [R, 1]
        if confidence is None or round == 0:
            samples = learner.learner.samples(net.peers).to(torch.float64).unsqueeze(-1)  # [R, 1]
            confidence = samples / await maximum(net, samples, steps=self.average.flood_steps)
        if round < self.alone:
            fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
            extra = {"confidence": confidence, "alone": fitted.rows}
            return State(fitted.rows, state.public, fitted.memory, extra, fitted.report)
        solitary = state.extra.get("alone", state.rows)
        released = await net.release(state.rows, since=state.public)
        mixed = (await net.mix(released)).values
        anchor = (1 - self.smoothing) * confidence  # [R, 1]
        share = to_device(anchor / (self.smoothing + anchor), mixed.device).to(mixed.dtype)
        rows = mixed + share * (solitary - mixed)
        return State(rows, released.public, state.memory, {"confidence": confidence, "alone": solitary})
