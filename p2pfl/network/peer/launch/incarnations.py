"""Incarnations of one peer: it begins again, together with the others, where a round did not complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from p2pfl.algorithms import State
from p2pfl.core.errors import PeerError, ResumeError
from p2pfl.network.peer.joining.resumption import restarts_together
from p2pfl.network.peer.masking.round_attempts import MAX_ATTEMPTS
from p2pfl.network.peer.pauses import CLOCK_PERIOD, AsleepError
from p2pfl.network.peer.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.results.notices.kinds import AwaitsReturn, LearningStopped, Notice


@dataclass
class Incarnations:
    """Incarnations of one peer, one after another.

    Parameters
    ----------
    begin
        Function that returns the peer, from what an earlier incarnation left, with the number of this one.
    play
        Function that runs a peer to its end and returns its state.
    store
        Files of the peer.
    notify
        Function that is called with each notice.
    peer
        Peer of the present incarnation.
    """

    begin: Callable[[Former, int], Peer]
    play: Callable[[Peer], Awaitable[State]]
    store: CheckpointStore
    notify: Callable[[Notice], None]
    peer: Peer

    async def run(self) -> State:
        """Run the peer, and write its last checkpoint.

        If a round could not be completed, and ``privacy.departures`` is ``"wait"``, the peer waits for all others for
        ``transport.outage``, and all play the round again as new incarnations: at most eight times the same round,
        because the same update under m independent masks is hidden as under one of deviation 1 / sqrt(m).

        Returns
        -------
        State
            Of the last incarnation that learned.
        """
        state = await self._play_awake()
        experiment, tries = self.peer.plan.experiment, 1
        while self._begins_again and tries < MAX_ATTEMPTS:
            before, name = self.peer, self.peer.name
            self.notify(AwaitsReturn(peer=name, round=before.done, seconds=experiment.transport.outage))
            former = await asyncio.to_thread(self.store.former)
            self.peer = self.begin(former, before.me.incarnation + 1)
            try:
                state = await self.play(self.peer)
            except PeerError as error:
                if self.peer.phase == "learning" and not isinstance(error, ResumeError):
                    raise  # it had begun again, and what it has learned since is not that of before
                self.peer = before
                self.notify(LearningStopped(peer=name, reason="undecided", message=str(error)))
                break
            await self._keep(state)
            tries = tries + 1 if self.peer.done <= before.done else 1
        return state

    @property
    def _begins_again(self) -> bool:
        peer = self.peer
        return peer.undecided and not peer.outdated and restarts_together(peer.plan)

    async def _play_awake(self) -> State:
        """Play the peer, and after each sleep its next incarnation; return the state of the last one."""
        while True:
            try:
                state = await self.play(self.peer)
            except AsleepError as asleep:  # it met nobody
                wakes = asleep.wakes
            else:
                await self._keep(state)
                if self.peer.wakes is None:
                    return state
                wakes = self.peer.wakes
            await self._sleep(wakes)
            former = await asyncio.to_thread(self.store.former)
            self.peer = self.begin(former, self.peer.me.incarnation + 1)

    async def _sleep(self, wakes: float) -> None:
        """Wait until a time in seconds since 1970; people and networks set the clock meanwhile.

        A clock that was ahead and is set right lengthens no sleep: whoever wakes too early sleeps again.
        """
        self.peer.phase = "asleep"
        time, left = asyncio.get_running_loop().time, wakes - self.peer.clock()
        by = time() + left + 2 * CLOCK_PERIOD
        while left > 0 and time() < by:
            await asyncio.sleep(min(left, CLOCK_PERIOD))
            left = wakes - self.peer.clock()

    async def _keep(self, state: State) -> None:
        """Write the checkpoint; one that the peer returned to is there, and then the one before it is needed too."""
        peer = self.peer
        if not (peer.undecided and await asyncio.to_thread(self.store.holds, peer.done)):
            checkpoint, model = peer.checkpoint(state, round=peer.done), peer.plan.saved(state.rows[0], peer=peer.name)
            own = peer.plan.owned(state.rows[0], peer=peer.name)
            await asyncio.to_thread(self.store.save, checkpoint, model, own=own)
