"""What one live peer agrees on with all others before the first round and after the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from p2pfl.algorithms import State, Statistics
from p2pfl.errors import CoverError, RunError
from p2pfl.experiment import Plan
from p2pfl.experiment.agreement import CLOSING, OPENING, Agreement, scaled
from p2pfl.identity import Source
from p2pfl.peer.live import LiveNeighbourhood
from p2pfl.privacy import Masks
from p2pfl.report.notices.damage import CommonScoresUnknown
from p2pfl.report.notices.kinds import Notice


class Agreeing:
    """Statistics of the features, one model, and what it scores on everybody's test data.

    Parameters
    ----------
    plan
        The experiment, resolved for this peer.
    name
        Its own.
    source
        Of what hides its counts.
    """

    def __init__(self, plan: Plan, name: str, source: Source) -> None:
        self.plan, self.name = plan, name
        self.agreement = Agreement(plan, source)

    @property
    def opening(self) -> int:
        """How many exchanges come before the first round; 0 where nothing is agreed on then."""
        return self.agreement.opening

    @property
    def longest(self) -> int:
        """Of the rows exchanged, float64."""
        return self.agreement.longest

    async def open(
        self, net: LiveNeighbourhood, *, among: Callable[[], Masks | None], first: int, earlier: Statistics | None
    ) -> tuple[Plan, Statistics]:
        """Scale the features as all do: as agreed now, or as an earlier life did.

        Parameters
        ----------
        among
            The masks shared with those that are there.
        first
            With which round this life begins.
        earlier
            What an earlier life had agreed on.

        Raises
        ------
        RunError
            Not all are there, or they agreed without this peer.
        """
        if first == 0:
            agreed = await self.agreement.open(self.agreement.blind(net, among(), phase=OPENING))
            if net.missed:
                raise RunError(
                    "expected all neighbours to stay while everybody agrees on the statistics of the features, got "
                    f"nothing from {', '.join(sorted({*net.missed}))}: start the run again"
                )
            return agreed
        if earlier is None:
            raise RunError(
                "expected to be there when all agreed on the statistics of the features, got a run that has begun: "
                "come before its first round, or leave out data.scale"
            )
        return scaled(self.plan, earlier), earlier

    async def close(
        self,
        net: LiveNeighbourhood,
        state: State,
        *,
        among: Callable[[], Masks | None],
        tell: Callable[[Notice], None],
    ) -> tuple[State, dict[str, float] | None]:
        """Return the one model, and its scores; none where somebody is missing, or there is no test data."""
        state = await self.agreement.settle(net, state)
        scored = await asyncio.to_thread(self.plan.learner.evaluate, state.rows, peers=(self.name,))
        common = None
        if scored and self.agreement.scored:
            try:
                blind = self.agreement.blind(net, among(), phase=CLOSING)
            except CoverError as error:
                tell(CommonScoresUnknown(peer=self.name, message=str(error)))
                return state, None
            common = await self.agreement.score(blind, scored)
        return state, None if net.missed else common
