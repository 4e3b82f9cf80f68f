"""The neighbourhood of a live peer that is given sums: its terms go out, one for each receiver, and a sum comes in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import numpy as np

from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import ReceivedModels, Released
from p2pfl.core.tensors import torch
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.protocol.interface.effects import Publish
from p2pfl.network.protocol.interface.requests import Open
from p2pfl.network.protocol.session.shared import PULSE
from p2pfl.network.protocol.totals.convergecast import PIECE
from p2pfl.network.secagg.sum_wait import Deadlines, SumWait
from p2pfl.privacy.normal_stream import POINT_LIMIT, Floats, Ints
from p2pfl.privacy.secagg.in_process import grid_points, refuse_rows
from p2pfl.privacy.secagg.protocol import SumSlot
from p2pfl.privacy.secagg.weighted_sums import portion


class SummedLiveNeighbourhood(LiveNeighbourhood):
    """One round of one peer that is given sums of rows, the live twin of the simulation's."""

    @property
    def relay(self) -> SumRelay:
        """Part of the peer in sums."""
        assert self.connection.relay is not None, "a peer without sums has another neighbourhood"  # noqa: S101 (ours)
        return self.connection.relay

    async def mix(self, released: Released) -> Released:
        """Send each receiver this peer's term, and take the sum of the neighbours'.

        The weight of what does not arrive falls to the own row.

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
        self.relay.sum_receiver.open(gossip_step, weighted=mass is not None)
        self.connection.look()
        begun = self.idle_clock()
        self.session.summing = True
        try:
            async with asyncio.TaskGroup() as tasks:
                for receiver in edges.receivers_in(self._phase):
                    weight = edges.weights[self._phase].row(receiver).get(self.name, 0.0)
                    slot = SumSlot(receiver, *gossip_step)
                    if weight and self.relay.sum_sender.shares_secrets(slot):
                        tasks.create_task(self._give(slot, points, weight=weight, mass=mass))
                total = await self._get(senders)
        finally:
            self.session.summing = False
            self.seconds_waiting += self.idle_clock() - begun
        here = self.relay.sum_receiver.called if total is not None else ()
        self._note(here, senders, accepted=total is not None)
        mixed = self._mix(
            released, points, total, _received_weights(weights, here, own=self.name, accepted=total is not None)
        )
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
        points: Floats = grid_points(released, bits=self.relay.bits)[0].cpu().numpy()  # [P]
        largest = np.abs(points).max(initial=0.0)
        if not largest < POINT_LIMIT:
            raise PrivacyError(
                f"expected every number of the row of {self.name} below {POINT_LIMIT} grid points, where "
                f"sums are exact, got {largest:.3g}; clip, lower the learning rate or use fewer bits."
            )
        return points

    def _mix(self, released: Released, points: Floats, total: Ints | None, weights: dict[str, float]) -> Released:
        """Return the sum including the peer's own model, added in the order of the simulation."""
        sums = portion(points, weight=weights[self.name])  # [P]
        if total is not None:
            sums += total
        masses = None
        if released.masses is not None:
            mass, sample_weights = 0.0, self.relay.sum_receiver.masses | {self.name: float(released.masses[0, 0])}
            for peer, weight in weights.items():
                mass += weight * sample_weights[peer]
            masses = torch.tensor([[mass]], dtype=torch.float64)  # [1, 1]
        rows = torch.from_numpy(sums).unsqueeze(0).to(released.rows.device)  # [1, P]
        return Released(rows, masses, grid=self.relay.bits, dtype=released.values.dtype)

    def _note(self, here: Collection[str], senders: Sequence[str], *, accepted: bool) -> None:
        """Record whose rows are missing from the sum, and that what follows shows more than was looked at."""
        missed = [peer for peer in senders if peer not in here]
        self.received += len(here)
        self.missed += missed
        self.relay.missed.update(missed)
        if missed:
            self.relay.lacked(accepted)

    async def _give(self, slot: SumSlot, points: Floats, *, weight: float, mass: float | None) -> None:
        """Send a receiver this peer's term, once the participant set is known."""
        connection, sum_sender, gossip_step = self.connection, self.relay.sum_sender, (slot.round, slot.step)
        receiver = slot.receiver
        connection.post(f"in/{receiver}", sum_sender.prepare(slot, mass=mass))
        await self._repeat(slot, lambda: sum_sender.called(receiver, gossip_step))
        async with self.relay.turn:
            if sum_sender.called(receiver, gossip_step):
                share = await asyncio.to_thread(lambda: sum_sender.mask(slot, portion(points, weight=weight)))
                for piece in sum_sender.give(slot, share, piece=min(PIECE, self.session.streams.chunk)):
                    await connection.publish(Publish(f"in/{receiver}", piece))
        await self._repeat(slot, lambda: False)
        sum_sender.withhold(receiver)

    async def _repeat(self, slot: SumSlot, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, the sum is over, or its receiver is not worth waiting for; repeat messages."""
        connection, sum_sender, gossip_step = self.connection, self.relay.sum_sender, (slot.round, slot.step)
        receiver, since = slot.receiver, connection.clock()

        def done() -> bool:
            return condition() or sum_sender.over(receiver, gossip_step) or not self._is_awaited(slot, since)

        while not done():
            await connection.until(done, by=connection.clock() + PULSE)
            word = None if done() else sum_sender.unanswered(slot)
            if word is not None:
                connection.post(f"in/{receiver}", word)

    def _is_awaited(self, slot: SumSlot, since: float) -> bool:
        """Return whether a receiver may still need this peer: it may itself wait for the slowest of its senders.

        This peer allows a receiver ``patience`` more than the receiver allows a sender.
        """
        session, receiver = self.session, slot.receiver
        if receiver not in session.membership.present:
            return False
        if session.shared.progress.places.get(receiver, (0, 0)) > (slot.round, slot.step):
            return False
        until = session.waiting.deadline(receiver, since=since) + session.shared.patience
        return self.connection.clock() < until

    async def _get(self, senders: Sequence[str]) -> Ints | None:
        """Return the sum of what the peers in :attr:`SumReceiver.here` contribute; ``None`` if it is withheld."""
        if not senders:
            return None
        connection, relay = self.connection, self.relay
        collecting = SumWait(relay.sum_receiver, tuple(senders), self._deadlines, relay.lacking, connection.clock())
        while not collecting.over:
            for peers, message in collecting.decide(connection.clock()):
                for peer in sorted({*peers} & self.session.membership.present):
                    connection.post(f"in/{peer}", message)
            if not collecting.over:
                await connection.until(lambda: collecting.due(connection.clock()), by=collecting.until)
        return collecting.total

    @property
    def _deadlines(self) -> Deadlines:
        session = self.session
        return Deadlines(
            lambda: session.membership.present, lambda peer, since: session.waiting.deadline(peer, since=since)
        )


def _received_weights(
    weights: dict[str, float], here: Collection[str], *, own: str, accepted: bool
) -> dict[str, float]:
    """Return the weights of the peers in the sum, in peer order; the rest is the weight of the peer's own model."""
    if not accepted and len(weights) > 1:
        return {own: 1.0}
    missed = sum(weight for peer, weight in weights.items() if peer != own and peer not in here)
    full = {own: 0.0} | weights
    return {
        peer: full[peer] + missed if peer == own else full[peer] for peer in sorted(full) if peer == own or peer in here
    }
