"""The neighbourhood of a live peer that is given sums: its terms go out, one for each receiver, and a sum comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from p2pfl.errors import BudgetError, PrivacyError
from p2pfl.neighbourhood import ReceivedModels, Released
from p2pfl.peer.connection import Connection
from p2pfl.peer.neighbourhoods.adding import Adding
from p2pfl.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.privacy.stream import LIMIT, Floats, Ints
from p2pfl.protocol.session.effects import Publish
from p2pfl.protocol.session.events import Open
from p2pfl.protocol.session.shared import PULSE
from p2pfl.protocol.wire.messages import ForOne
from p2pfl.secagg.in_process import grid_points, refuse_rows
from p2pfl.secagg.protocol import Slot
from p2pfl.secagg.ring import portion


class SummedLiveNeighbourhood(LiveNeighbourhood):
    """One round of one peer that is given sums of rows, the live twin of the simulation's.

    Parameters
    ----------
    connection, given
        As in :class:`LiveNeighbourhood`.
    adding
        Its part in sums.
    bits
        Fraction bits of the grid.
    """

    def __init__(self, connection: Connection, *, adding: Adding, bits: int, **given: Any) -> None:
        super().__init__(connection, **given)
        self.adding = adding
        self.bits = bits

    async def mix(self, released: Released) -> Released:
        """Give each receiver its term, and take the sum of the neighbours'; what did not come has the own row's weight.

        Raises
        ------
        PrivacyError
            A number leaves the range in which sums are exact.
        """
        gossip_step, edges = (self.round, self.step), self.session.edges
        weights = self._row_weights()
        points = self._points(released)  # [P]
        mass = None if released.masses is None else float(released.masses[0, 0])
        senders = [peer for peer in weights if peer != self.name]
        await self.connection.durable()
        self.connection.submit(Open(gossip_step, tuple(senders), since=self.round))
        self.adding.getting.open(gossip_step, weighted=mass is not None)
        self.connection.look()
        async with asyncio.TaskGroup() as tasks:
            for receiver in edges.receivers_in(self._phase):
                weight = edges.weights[self._phase].row(receiver).get(self.name, 0.0)
                slot = Slot(receiver, *gossip_step)
                if weight and self.adding.giving.acquainted(slot):
                    tasks.create_task(self._give(slot, points, weight=weight, mass=mass))
            total = await self._get(senders)
        here = self.adding.getting.here if total is not None else set[str]()
        self._note(here, senders, given=total is not None)
        mixed = self._mixed(released, points, total, _received(weights, here, own=self.name, given=total is not None))
        self._close()
        self.record_step(released, mixed)
        return mixed

    async def receive(self, released: Released) -> ReceivedModels:
        """Public numbers, one a peer, as they are.

        Raises
        ------
        PrivacyError
            Rows are asked for.
        """
        refuse_rows(released)
        return await super().receive(released)

    def _points(self, released: Released) -> Floats:
        """Return the peer's own model in steps of the grid, ``[P]``."""
        points: Floats = grid_points(released, bits=self.bits)[0]  # [P]
        largest = np.abs(points).max(initial=0.0)
        if not largest < LIMIT:
            raise PrivacyError(
                f"expected every number of the row of {self.name} below {LIMIT} grid points, where sums are exact, got "
                f"{largest:.3g}; clip, lower the learning rate or use fewer bits."
            )
        return points

    def _mixed(self, released: Released, points: Floats, total: Ints | None, weights: dict[str, float]) -> Released:
        """Return the sum including the peer's own model, added in the order of the simulation."""
        sums = portion(points, weight=weights[self.name])  # [P]
        if total is not None:
            sums += total
        masses = None
        if released.masses is not None:
            mass, known = 0.0, self.adding.getting.masses | {self.name: float(released.masses[0, 0])}
            for peer, weight in weights.items():
                mass += weight * known[peer]
            masses = torch.tensor([[mass]], dtype=torch.float64)  # [1, 1]
        rows = torch.from_numpy(sums).unsqueeze(0).to(released.rows.device)  # [1, P]
        return Released(rows, masses, grid=self.bits, dtype=released.values.dtype)

    def _note(self, here: Collection[str], senders: Sequence[str], *, given: bool) -> None:
        """Record whose rows are missing from the sum, and that what follows shows more than was looked at."""
        missed = [peer for peer in senders if peer not in here]
        self.received += len(here)
        self.missed += missed
        self.adding.missed.update(missed)
        if missed:
            self.adding.lacked(given)

    async def _give(self, slot: Slot, points: Floats, *, weight: float, mass: float | None) -> None:
        """Send a receiver its term, once it is through with the one before."""
        connection, giving, gossip_step = self.connection, self.adding.giving, (slot.round, slot.step)
        if not await self._until([slot.receiver], lambda peer: giving.ready(peer) or giving.over(peer, gossip_step)):
            return
        async with self.adding.turn:
            if giving.over(slot.receiver, gossip_step):
                return  # it went on without us
            part, share = await asyncio.to_thread(lambda: giving.mask(slot, portion(points, weight=weight)))
            for term in giving.give(part, share, mass=mass, piece=self.session.streams.chunk):
                await connection.publish(Publish(f"in/{slot.receiver}", term))

    async def _get(self, senders: Sequence[str]) -> Ints | None:
        """Return the sum of the contributions of those that :attr:`Getting.here` names; ``None`` if it is withheld."""
        session, getting = self.session, self.adding.getting
        if not senders:
            return None
        begun = asyncio.get_running_loop().time()
        session.summing = True
        try:
            await self._until(senders, lambda peer: peer in getting.here or getting.passed(peer), each=True)
            call = getting.close()
            self._publish_to(senders, call)
            if len(call.here) < len(senders):
                self.adding.lacking()
            if not await self._until(call.here, lambda peer: peer in getting.consents, again=lambda: call):
                return None
            agreed = lambda: getting.agreements  # noqa: E731
            if not await self._until(call.here, lambda peer: peer in getting.unlocked, again=agreed):
                return None
            return getting.total()
        except BudgetError:
            return None  # the next release is refused
        finally:
            session.summing = False
            self.seconds_waiting += asyncio.get_running_loop().time() - begun

    def _publish_to(self, peers: Collection[str], word: ForOne) -> None:
        for peer in sorted({*peers} & self.session.membership.present):
            self.connection.post(f"in/{peer}", word)

    async def _until(
        self,
        peers: Sequence[str],
        done: Callable[[str], bool],
        *,
        each: bool = False,
        again: Callable[[], ForOne | None] | None = None,
    ) -> bool:
        """Wait for neighbours; return whether all are done.

        Parameters
        ----------
        peers, done
            For whom and for what.
        each
            Whether to wait for every one as long as it is worth it; else to end with the first of whom nothing comes.
        again
            What is said once more every now and then to those who are not done. It is to be answered at once, so that
            patience need not wait for anything before the answer.
        """
        connection = self.connection
        start = said = connection.clock()

        def hoped() -> list[float] | None:
            """Until when to wait; ``None`` once all are done, empty once it is not worth it any more."""
            waiting = [peer for peer in peers if not done(peer)]
            return self._hoped(waiting, since=start, each=each, patient=again is None) if waiting else None

        while until := hoped():
            now = connection.clock()
            if now >= said + PULSE:
                said = now
                if again is not None and (word := again()) is not None:
                    self._publish_to([peer for peer in peers if not done(peer)], word)
            await connection.until(lambda: not hoped(), by=min(*until, said + PULSE))
        return until is None and bool(peers)

    def _hoped(self, waiting: Sequence[str], *, since: float, each: bool, patient: bool) -> list[float]:
        """Return until when neighbours are worth waiting for; empty where it is over."""
        session, now = self.session, self.connection.clock()
        present = [peer for peer in waiting if peer in session.membership.present]
        times = [session.waiting.deadline(peer, since=since) for peer in present]
        if not patient:
            times = [min(when, since + session.shared.patience) for when in times]
        hoped = [when for when in times if when > now]
        return hoped if each or len(hoped) == len(waiting) else []


def _received(weights: dict[str, float], here: Collection[str], *, own: str, given: bool) -> dict[str, float]:
    """Return the weights of the peers in the sum, in peer order; the rest is the weight of the peer's own model."""
    if not given and len(weights) > 1:
        return {own: 1.0}
    missed = sum(weight for peer, weight in weights.items() if peer != own and peer not in here)
    full = {own: 0.0} | weights
    return {
        peer: full[peer] + missed if peer == own else full[peer] for peer in sorted(full) if peer == own or peer in here
    }
