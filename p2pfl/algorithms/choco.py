"""CHOCO-SGD: a local step, then gossip over compressed differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class Choco:
    r"""A local step, then a gossip step over compressed differences.

    .. math:: x_i \leftarrow x_i - \eta \nabla F_i(x_i; \xi_i), \qquad
              x_i \leftarrow x_i + \gamma \sum_j W_{ij} (\hat x_j - \hat x_i)

    where :math:`\hat x` are the copies that :class:`~p2pfl.algorithms.compressed_gossip.Compressed` keeps under a codec
    of differences. Without compression this is adapt-then-combine: FedAvg with one step, one gossip step and equal
    weights.

    Parameters
    ----------
    gossip
        Gossip steps per round; one in the paper.

    Examples
    --------
    >>> Choco().traits.needs_difference_codec
    True

    References
    ----------
    Koloskova, Stich, Jaggi, Decentralized stochastic optimization and gossip algorithms with compressed communication,
    ICML 2019, Algorithm 2.
    """

    traits: ClassVar[Traits] = Traits(
        linear=True,
        convex=True,
        full_participation=True,
        default_steps=1,
        needs_difference_codec=True,
        state_per_edge="keeps sums of its neighbours' copies",
    )
    gossip: Gossip = UNSET

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and its gossip steps."""
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, memory=state.memory)
        released = await net.release(fitted.rows, since=state.public)
        mixed = (await self.gossip(net, released)).public
        return State(mixed.rows, mixed, fitted.memory, report=fitted.report)
