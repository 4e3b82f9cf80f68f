"""An algorithm of one's own."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from p2pfl.algorithms import AsyncLearner, Averaging, State
from p2pfl.core.neighbourhood import Neighbourhood, derived
from p2pfl.core.traits import Traits


@dataclass(frozen=True)
class Halfway:
    """Federated averaging that goes only a part of the way from the last average to the next.

    Parameters
    ----------
    average
        How models are averaged.
    share
        The part; 1 is federated averaging.
    """

    average: Averaging
    share: Annotated[float, Meta(gt=0, le=1)] = 0.5

    traits: ClassVar[Traits] = Traits(linear=True)

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Train, average, and go a part of the way."""
        active = self.average.participants(net.peers, round=round)  # [R]
        fitted = await learner.fit(state.rows, peers=net.peers, round=round, active=active)
        masses = await self.average.masses(learner, net, active)  # [R, 1]
        mean = await self.average(net, fitted.rows, since=state.public, masses=masses)
        public = derived(lambda new, old: old + self.share * (new - old), mean, state.public)
        return State(public.rows, public, report=fitted.report)
