"""Agreement of one live peer with all others before the first round and after the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from p2pfl.algorithms import State, Statistics
from p2pfl.core.errors import InputError, PrivacyError, RunError
from p2pfl.experiment import Plan
from p2pfl.experiment.swarm_agreement import PeersAgreement, scale
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.round_totals import LostError, RepeatError
from p2pfl.results.notices.kinds import CommonScoresUnknown, ConsensusUnknown, Notice


class ModelAgreement:
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
        self.agreement = PeersAgreement(plan)

    @property
    def opening(self) -> int:
        """Number of totals before the first round; 0 if nothing is agreed on then."""
        return self.agreement.opening

    async def open(self, net: LiveNeighbourhood, *, first: int, earlier: Statistics | None) -> tuple[Plan, Statistics]:
        """Scale the features as all do: as agreed now, or as an earlier incarnation did.

        Parameters
        ----------
        first
            With which round this incarnation begins.
        earlier
            Agreement of an earlier incarnation.

        Raises
        ------
        RunError
            Not all are there, or they agreed without this peer.
        """
        if first == 0:
            try:
                return await self._agree(net)
            except LostError as error:
                raise RunError(f"data.scale: {error}") from None
        if earlier is None:
            raise RunError(
                "this run has begun, and its peers agreed on the statistics of the features before the first round; "
                "begin the next one for all (p2pfl deploy --apply, p2pfl next), or leave out data.scale"
            )
        return scale(self.plan, earlier), earlier

    async def _agree(self, net: LiveNeighbourhood) -> tuple[Plan, Statistics]:
        """Agree on the statistics, once more without the peers that are lost between the two totals."""
        while True:
            try:
                return await self.agreement.open(net)
            except RepeatError:
                continue

    async def close(
        self,
        net: Callable[[], LiveNeighbourhood],
        state: State,
        *,
        notify: Callable[[Notice], None],
    ) -> tuple[State, dict[str, float] | None]:
        """Return the one model and its scores: the peer's own model and no scores where peers are missing.

        Parameters
        ----------
        net
            Function that makes a neighbourhood for each of the two totals, which are taken apart: a peer that is lost
            in the second one is in the first one.
        state
            State of the peer after the last round.
        notify
            Function that takes notices.
        """
        try:
            state = await self.agreement.settle(net(), state)
        except (LostError, InputError) as error:
            notify(ConsensusUnknown(peer=self.name, message=str(error)))
            return state, None
        scored = await asyncio.to_thread(self.plan.learner.evaluate, state.rows, peers=(self.name,))
        if not scored or not self.agreement.scored:
            return state, None
        counts = await asyncio.to_thread(self.agreement.tallies, state.rows, peers=(self.name,))
        try:
            return state, await self.agreement.score(net(), scored, counts, row=state.rows[0])
        except (LostError, PrivacyError) as error:
            notify(CommonScoresUnknown(peer=self.name, message=str(error)))
            return state, None
