"""D-PSGD: decentralised parallel stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from p2pfl.algorithms.algorithm import AsyncLearner, State
from p2pfl.algorithms.gossip import UNSET, Gossip
from p2pfl.core.neighbourhood import Neighbourhood
from p2pfl.core.rows import Rows, blockwise
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class DPSGD:
    r"""Average with the neighbours, then step along the gradient taken before.

    .. math:: x_i \leftarrow \sum_j W_{ij} x_j - \gamma \nabla F_i(x_i; \xi_i)

    The learner's optimiser makes the step, also with momentum or Adam, and its state persists between
    rounds. The mean of the models moves exactly as under centralised mini-batch SGD with the mean of the
    gradients.

    Parameters
    ----------
    gossip
        Gossip steps per round; one in the paper.
    order
        ``"parallel"`` takes the step along the gradient at the model before mixing, as in the paper;
        ``"adapt_then_combine"`` takes the step first and mixes its result.

    Examples
    --------
    >>> DPSGD(order="adapt_then_combine").order
    'adapt_then_combine'

    References
    ----------
    Lian et al., Can decentralized algorithms outperform centralized algorithms?, NeurIPS 2017,
    Algorithm 1.
    """

    traits: ClassVar[Traits] = Traits(linear=True, convex=True, full_participation=True, default_steps=1)
    gossip: Gossip = UNSET
    order: Literal["parallel", "adapt_then_combine"] = "parallel"

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Run one round: a local step and its gossip steps."""
        before, since, memory = state.rows, state.public, state.memory
        del state
        fitted = await learner.fit(before, peers=net.peers, round=round, memory=memory)
        first = self.order == "adapt_then_combine"
        released = await net.release(fitted.rows if first else before, since=since)
        del since  # frees these models before mixing allocates their successors
        mixed = (await self.gossip(net, released)).public
        if first:
            return State(mixed.rows, mixed, fitted.memory, report=fitted.report)
        rows = blockwise(_step, mixed.rows, fitted.rows, before, out=fitted.rows if fitted.owned else None)
        return State(rows, mixed, fitted.memory, report=fitted.report)


def _step(mixed: Rows, after: Rows, before: Rows) -> Rows:
    """Return mixed models after the step that moved ``before`` to ``after``."""
    return mixed + (after - before)
