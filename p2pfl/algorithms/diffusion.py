"""D2 and exact diffusion: averaging whose bias is taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.encodings import Ints
from p2pfl.errors import TopologyError
from p2pfl.neighbourhood import Contribution, Heard, Neighbourhood, Public, Released
from p2pfl.rows import Rows
from p2pfl.topology import Weights, lowest
from p2pfl.traits import Traits


@dataclass(frozen=True)
class _Diffusion:
    """What D2 and exact diffusion ask of the weights, where they are given."""

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
            kind = f"{len(self.weights)} graphs in turn" if len(self.weights) > 1 else "others"
            raise TopologyError(
                f"expected one graph whose edges weigh alike at both ends for {self.name}, which takes back what the "
                f"same weights did a round ago, got {kind}: take gradient_tracking, or another topology"
            )
        low = lowest(self.weights[0])
        least = _least(self.gossip, (1 + low) / 2 if self.lazy else low)
        if least <= -1 / 3 + 1e-9:
            raise TopologyError(
                f"expected a round's exchanges to have eigenvalues above -1/3 for {self.name}, got {least:.4g}: take "
                f"{'' if self.lazy else 'exact_diffusion, or '}gossip.steps = 2 without gossip.acceleration"
            )

    async def _round(
        self, state: State, learner: AsyncLearner, net: Neighbourhood, *, mixing: Neighbourhood, round: int
    ) -> State:
        """A step, what combining did the last time, and combining; ``mixing`` is the net or a lazy one."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        shift = state.extra.get("shift")  # [R, P]
        rows = fitted.rows if shift is None else fitted.rows + shift  # [R, P]
        released = await net.release(rows, since=state.public)
        mixed = (await self.gossip(mixing, released)).public
        return State(mixed.rows, mixed, fitted.memory, {"shift": mixed.rows - fitted.rows}, fitted.report)


def _least(gossip: Gossip, low: float) -> float:
    """The least that a round's exchanges make of an eigenvalue from ``low`` to 1."""
    values = np.linspace(low, 1.0, 4097)
    before = now = np.ones_like(values)
    for omega in gossip.omegas:
        before, now = now, omega * values * now + (1 - omega) * before
    return float(now.min())


@dataclass(frozen=True)
class D2(_Diffusion):
    r"""Adapt, then combine, then remember what combining did.

    .. math:: \psi_i^t = x_i^t - \gamma \nabla F_i(x_i^t; \xi_i), \qquad
              x_i^{t+1} = \sum_j W_{ij} (\psi_j^t + s_j^t), \qquad s_i^{t+1} = x_i^{t+1} - \psi_i^t

    which is :math:`x^{t+1} = W (2 x^t - x^{t-1} - \gamma g^t + \gamma g^{t-1})`. The s sum to zero over
    all peers, so that rows rest only where the mean of the gradients is zero. One row is released a round.
    Noise and losses are not forgotten but added up in s: take it for networks that deliver.

    Parameters
    ----------
    gossip
        One exchange a round in the paper.
    weights
        Checked, where they are given.

    Raises
    ------
    TopologyError
        Weights with an eigenvalue of -1/3 or less, such as Metropolis' on rings of even length, with
        which the rows would swing for ever; a schedule or a directed graph, on which they fly apart.

    References
    ----------
    Tang, Lian, Yan, Zhang and Liu, D2: Decentralized training over decentralized data, ICML 2018,
    Algorithm 1 and Assumption 1.
    """

    name: ClassVar[str] = "d2"
    lazy: ClassVar[bool] = False

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One step of every peer."""
        return await self._round(state, learner, net, mixing=net, round=round)


@dataclass(frozen=True)
class ExactDiffusion(_Diffusion):
    r"""D2 with the lazy weights :math:`\bar W = (I + W) / 2`, which suit every symmetric graph.

    .. math:: \psi_i^t = x_i^t - \gamma \nabla F_i(x_i^t; \xi_i), \qquad
              \phi_i^t = \psi_i^t + x_i^t - \psi_i^{t-1}, \qquad
              x_i^{t+1} = \sum_j \bar W_{ij} \phi_j^t

    What is said of :class:`D2` holds here, too.

    Parameters
    ----------
    gossip
        One exchange a round in the paper; each is lazy.
    weights
        Checked, where they are given.

    Raises
    ------
    TopologyError
        A schedule or a directed graph, or acceleration under which rows would swing.

    References
    ----------
    Yuan, Ying, Zhao and Sayed, Exact diffusion for distributed optimization and learning, part I, IEEE
    Transactions on Signal Processing 2019, Algorithm 1.
    """

    name: ClassVar[str] = "exact_diffusion"
    lazy: ClassVar[bool] = True

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """One step of every peer."""
        return await self._round(state, learner, net, mixing=_Lazy(net), round=round)


class _Lazy:
    """A neighbourhood in which every row keeps one half of itself, the public one."""

    def __init__(self, net: Neighbourhood) -> None:
        self._net = net

    @property
    def peers(self) -> tuple[str, ...]:
        return self._net.peers

    async def release(self, rows: Rows, *, since: Public, masses: Rows | None = None) -> Released:
        return await self._net.release(rows, since=since, masses=masses)

    async def mix(self, released: Released) -> Released:
        return released.combine(0.5, 0.5, await self._net.mix(released))

    async def hear(self, released: Released) -> Heard:
        return await self._net.hear(released)

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        return await self._net.total(contribution, size=size, bits=bits, change=change)
