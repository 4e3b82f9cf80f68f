"""What one live peer agrees on with all others before the first round and after the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from p2pfl.algorithms import State, Statistics
from p2pfl.errors import PrivacyError, RunError
from p2pfl.experiment import Plan
from p2pfl.experiment.agreement import Agreement, scaled
from p2pfl.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.peer.totals import LostError
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
    """

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan, self.name = plan, name
        self.agreement = Agreement(plan)

    @property
    def opening(self) -> int:
        """How many totals come before the first round; 0 where nothing is agreed on then."""
        return self.agreement.opening

    async def open(self, net: LiveNeighbourhood, *, first: int, earlier: Statistics | None) -> tuple[Plan, Statistics]:
        """Scale the features as all do: as agreed now, or as an earlier life did.

        Parameters
        ----------
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
            try:
                return await self.agreement.open(net)
            except LostError as error:
                raise RunError(
                    "all peers must stay while everybody agrees on the statistics of the features, but nothing came "
                    f"from {', '.join(error.gone) or 'a peer'}; start the run again"
                ) from None
        if earlier is None:
            raise RunError(
                "this run has begun, and its peers agreed on the statistics of the features before the first round; "
                "join before it, or leave out data.scale"
            )
        return scaled(self.plan, earlier), earlier

    async def close(
        self,
        net: LiveNeighbourhood,
        state: State,
        *,
        tell: Callable[[Notice], None],
    ) -> tuple[State, dict[str, float] | None]:
        """Return the one model, and its scores; none where somebody is missing, or there is no test data."""
        state = await self.agreement.settle(net, state)
        scored = await asyncio.to_thread(self.plan.learner.evaluate, state.rows, peers=(self.name,))
        common = None
        if scored and self.agreement.scored:
            try:
                common = await self.agreement.score(net, scored)
            except (LostError, PrivacyError) as error:
                tell(CommonScoresUnknown(peer=self.name, message=str(error)))
        return state, None if net.missed else common
