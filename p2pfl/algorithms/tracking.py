"""Gradient tracking: each peer follows the mean of all gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State, always
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.neighbourhood import Neighbourhood, Released
from p2pfl.core.rows import Rows, to_device
from p2pfl.core.tensors import torch
from p2pfl.core.traits import Traits
from p2pfl.learning import Report


@dataclass(frozen=True)
class GradientTracking:
    r"""Correct the own gradient by its difference from the mean of all gradients.

    .. math:: x_i' = x_i - \gamma \sum_{k \le K} (g_{i,k} + c_i), \qquad
              z_i = \frac{x_i - x_i'}{\gamma K}, \qquad
              x_i \leftarrow \sum_j W_{ij} x_j', \qquad
              c_i \leftarrow c_i - z_i + \sum_j W_{ij} z_j

    The corrections sum to zero over all peers, so at a stationary point the mean of the gradients is
    zero: the optimum of the sum, however different the peers' data. With one step (K = 1) z is the
    tracked gradient of DIGing, :math:`y_{t+1} = W y_t + \nabla f(x_{t+1}) - \nabla f(x_t)`, in its
    adapt-then-combine form, which tolerates larger steps; W may change from round to round.

    Every z follows from two public models, so a peer releases one model per round. If messages are lost, the
    corrections no longer sum to zero, and the stationary point shifts.

    Parameters
    ----------
    gossip
        Gossip steps per round, and as many again for z; one in the papers.

    Examples
    --------
    >>> GradientTracking().traits.plain_sgd_only
    True

    References
    ----------
    Nedić, Olshevsky and Shi, Achieving geometric convergence for distributed optimization over
    time-varying graphs, SIAM Journal on Optimization 2017, Algorithm 1 (DIGing); Liu, Lin, Koloskova and
    Stich, Decentralized gradient tracking with local steps, Optimization Methods and Software 2024,
    Algorithm 1 (K-GT), with a communication step size of one.
    """

    traits: ClassVar[Traits] = Traits(
        needs_gradients="corrects every gradient",
        nonlinear="sends what it tracks beside rows",
        full_participation=True,
        default_steps=1,
        plain_sgd_only=True,
        needs_equal_steps="divides masks by the steps that a peer made",
        no_compression="sends trackers and rows in turn, which have no past in common",
        needs_plain_averages="needs trackers whose sum stays that of the gradients",
    )
    gossip: Gossip = UNSET

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round of corrected steps."""
        before = state.extra.get("correction")  # [R, P]
        fitted = await learner.fit(
            state.rows,
            peers=net.peers,
            round=round,
            memory=state.memory,
            correction=None if before is None else always(before),
        )
        released = await net.release(fitted.rows, since=state.public)
        mixed = (await self.gossip(net, released)).public  # [R, P]
        own = slope(state.rows, released.values, rate=learner.learner.rate(round), report=fitted.report)  # [R, P]
        tracked = (await self.gossip(net, Released(own))).values  # [R, P]
        correction = tracked - own if before is None else before - own + tracked  # [R, P]
        return State(mixed.rows, mixed, fitted.memory, {"correction": correction}, fitted.report)


def slope(before: Rows, after: Rows, *, rate: float, report: Report) -> Rows:
    """Return the mean gradient along which models moved, ``[R, P]``; zero for those that made no step."""
    length = to_device(report.steps, before.device).to(before).unsqueeze(-1) * rate  # [R, 1]
    return torch.where(length > 0, (before - after) / torch.where(length > 0, length, 1.0), 0.0)
