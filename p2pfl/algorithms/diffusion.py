"""D2 and exact diffusion: averaging with a correction of its bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.errors import TopologyError
from p2pfl.core.neighbourhood import Neighbourhood, Released, Wrapped
from p2pfl.core.traits import Traits
from p2pfl.topology import Weights, lowest


@dataclass(frozen=True)
class _Diffusion:
    """Common part of D2 and exact diffusion, with their requirements on the weights."""

    traits: ClassVar[Traits] = Traits(
        linear=True,
        convex=True,
        full_participation=True,
        default_steps=1,
        needs_plain_averages="corrects for what the last average has left, which must be one",
        needs_one_graph="takes back what the same weights did a round ago",
        needs_symmetric_weights="takes back what the same weights did a round ago",
    )
    gossip: Gossip = UNSET
    weights: tuple[Weights, ...] = ()
    name: ClassVar[str]
    lazy: ClassVar[bool]

    def __post_init__(self) -> None:
        if not self.weights:
            return
        if len(self.weights) > 1 or not self.weights[0].symmetric:
            kind = f"a schedule of {len(self.weights)} graphs" if len(self.weights) > 1 else "asymmetric weights"
            raise TopologyError(
                f"{self.name} does not work with {kind}, because it takes back what the same weights did a round ago; "
                "take gradient_tracking, or another topology"
            )
        low = lowest(self.weights[0])
        least = _least(self.gossip, (1 + low) / 2 if self.lazy else low)
        if least <= -1 / 3 + 1e-9:
            raise TopologyError(
                f"{self.name} diverges if the gossip steps of a round have an eigenvalue of {least:.4g}, which is not "
                f"above -1/3; take {'' if self.lazy else 'exact_diffusion, or '}gossip.steps = 2 without "
                "gossip.acceleration"
            )

    async def _round(
        self, state: State, learner: AsyncLearner, net: Neighbourhood, *, mixing: Neighbourhood, round: int
    ) -> State:
        """Run a step, add what the last mixing changed, and mix; ``mixing`` is the net or a lazy one."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        shift = state.extra.get("shift")  # [R, P]
        rows = fitted.rows if shift is None else fitted.rows + shift  # [R, P]
        released = await net.release(rows, since=state.public)
        mixed = (await self.gossip(mixing, released)).public
        return State(mixed.rows, mixed, fitted.memory, {"shift": mixed.rows - fitted.rows}, fitted.report)


def _least(gossip: Gossip, low: float) -> float:
    """Return the smallest value to which the gossip steps of a round map an eigenvalue from ``low`` to 1."""
    values = np.linspace(low, 1.0, 4097)
    before = now = np.ones_like(values)
    for omega in gossip.omegas:
        before, now = now, omega * values * now + (1 - omega) * before
    return float(now.min())


@dataclass(frozen=True)
class D2(_Diffusion):
    r"""Adapt, then combine, then add what combining changed to the next step.

    .. math:: \psi_i^t = x_i^t - \gamma \nabla F_i(x_i^t; \xi_i), \qquad
              x_i^{t+1} = \sum_j W_{ij} (\psi_j^t + s_j^t), \qquad s_i^{t+1} = x_i^{t+1} - \psi_i^t

    which is :math:`x^{t+1} = W (2 x^t - x^{t-1} - \gamma g^t + \gamma g^{t-1})`. The s sum to zero over
    all peers, so the models are stationary only where the mean of the gradients is zero. Each round releases
    one model. Noise and lost messages accumulate in s, so use it on reliable networks.

    Parameters
    ----------
    gossip
        Gossip steps per round; one in the paper.
    weights
        Weights to check; not checked if empty.

    Raises
    ------
    TopologyError
        The weights have an eigenvalue of -1/3 or less, such as Metropolis weights on rings of even length,
        and the models would oscillate; or a schedule or a directed graph would make them diverge.

    Examples
    --------
    >>> D2().traits.needs_one_graph
    'takes back what the same weights did a round ago'

    References
    ----------
    Tang, Lian, Yan, Zhang and Liu, D2: Decentralized training over decentralized data, ICML 2018,
    Algorithm 1 and Assumption 1.
    """

    name: ClassVar[str] = "d2"
    lazy: ClassVar[bool] = False

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a corrected step and its gossip steps."""
        return await self._round(state, learner, net, mixing=net, round=round)


@dataclass(frozen=True)
class ExactDiffusion(_Diffusion):
    r"""D2 with the lazy weights :math:`\bar W = (I + W) / 2`, which suit every symmetric graph.

    .. math:: \psi_i^t = x_i^t - \gamma \nabla F_i(x_i^t; \xi_i), \qquad
              \phi_i^t = \psi_i^t + x_i^t - \psi_i^{t-1}, \qquad
              x_i^{t+1} = \sum_j \bar W_{ij} \phi_j^t

    The remarks on :class:`D2` apply.

    Parameters
    ----------
    gossip
        Gossip steps per round, which are lazy; one in the paper.
    weights
        Weights to check; not checked if empty.

    Raises
    ------
    TopologyError
        The topology is a schedule or directed, or acceleration would make the models oscillate.

    Examples
    --------
    >>> ExactDiffusion.lazy
    True

    References
    ----------
    Yuan, Ying, Zhao and Sayed, Exact diffusion for distributed optimization and learning, part I, IEEE
    Transactions on Signal Processing 2019, Algorithm 1.
    """

    name: ClassVar[str] = "exact_diffusion"
    lazy: ClassVar[bool] = True

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a corrected step and its lazy gossip steps."""
        return await self._round(state, learner, net, mixing=_Lazy(net), round=round)


class _Lazy(Wrapped):
    """Neighbourhood in which the average of each peer is half its own released model."""

    async def mix(self, released: Released) -> Released:
        return released.combine(0.5, 0.5, await self._net.mix(released))
