"""The neighbourhood of one live peer: its row goes out, its neighbours' rows come in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from p2pfl.neighbourhood import Heard, Released, bare, moved
from p2pfl.peer.link import Link
from p2pfl.peer.mailbox import Delivery
from p2pfl.rows import Rows, scaled
from p2pfl.topology import Weights
from p2pfl.wire.rows import encode_row, narrowed


class LiveNeighbourhood:
    """One round of one peer.

    Parameters
    ----------
    link
        Its connection.
    weights
        One matrix for each exchange of the schedule's period.
    turns
        For each of them, the order in which neighbours send large rows.
    round
        Exchange ``k`` of round ``t`` uses the topology at ``t + k``.
    patience
        Seconds without a sign of progress after which a neighbour's weight falls to the own row.
    step
        The round's exchanges so far.
    """

    def __init__(
        self,
        link: Link,
        *,
        weights: Sequence[Weights],
        turns: Sequence[dict[str, int]],
        round: int,
        patience: float,
        step: int = 0,
    ) -> None:
        self.link = link
        self.name = link.me.peer
        self.weights = weights
        self.turns = turns
        self.round = round
        self.patience = patience
        self.step = step
        self.seconds_waiting = 0.0
        self.heard = torch.zeros(1, dtype=torch.int64)
        self.missed: list[str] = []
        self.distance = torch.zeros(1, dtype=torch.float64)

    @property
    def peers(self) -> tuple[str, ...]:
        """The one peer whose row this is."""
        return (self.name,)

    async def release(self, rows: Rows, *, since: Rows, masses: torch.Tensor | None = None) -> Released:
        """Let the others see the row as it is."""
        del since  # nothing is hidden here
        return bare(rows, masses)

    async def mix(self, released: Released) -> Released:
        """Add up the rows one by one as they come in turn, so that few are held at a time."""
        weights, order = await self._publish(released)
        values = released.values  # [1, P]
        share = weights.pop(self.name, 0.0)
        mixed = scaled(values, share)  # [1, P]
        masses = None if released.masses is None else released.masses * share
        for sender in order:
            delivery = await self._row(sender, length=values.shape[-1], weighted=masses is not None)
            if delivery is None:
                mixed.add_(values, alpha=weights[sender])
                if masses is not None and released.masses is not None:
                    masses = masses + weights[sender] * released.masses
            else:
                mixed.add_(_values(delivery, released).to(mixed), alpha=weights[sender])
                if masses is not None and delivery.head.mass is not None:
                    masses = masses + weights[sender] * delivery.head.mass
            del delivery
            self.link.grant()
        self._close()
        after = Released(mixed, masses)
        self.distance = moved(Released(values, released.masses), after)  # [1]
        return after

    async def hear(self, released: Released) -> Heard:
        """The rows of those heard; what did not come has no edge, its weight is one's own."""
        weights, order = await self._publish(released)
        rows = [released.values]
        used = [weights.pop(self.name, 0.0)]
        for sender in order:
            delivery = await self._row(sender, length=rows[0].shape[-1], weighted=False)
            if delivery is None:
                used[0] += weights[sender]
            else:
                rows.append(_values(delivery, released).to(rows[0]).unsqueeze(0))
                used.append(weights[sender])
            self.link.grant()
        self._close()
        count = len(rows)
        return Heard(
            torch.cat(rows),  # [S, P]
            torch.zeros(count, dtype=torch.int64),
            torch.arange(count),
            torch.tensor(used, dtype=torch.float64),
        )

    async def _publish(self, released: Released) -> tuple[dict[str, float], list[str]]:
        """Send the own row; return the weights of this exchange and whom to wait for, in turn."""
        phase = (self.round + self.step) % len(self.weights)
        weights = self.weights[phase].row(self.name)
        order = sorted((self.turns[phase][peer], peer) for peer in weights if peer != self.name)
        senders = [peer for _, peer in order]
        self.link.open((self.round, self.step), senders)
        row = narrowed(released.rows[0])
        mass = None if released.masses is None else float(released.masses[0, 0])
        parts = encode_row(row, round=self.round, step=self.step, grid=released.grid, mass=mass)
        await self.link.send(parts, phase=phase)
        return weights, senders

    def _close(self) -> None:
        self.link.mailbox.close()
        self.link.grant()
        self.step += 1

    async def _row(self, sender: str, *, length: int, weighted: bool) -> Delivery | None:
        """The sender's row of this exchange, or None once it is gone or patience has run out."""
        link, mailbox, loop = self.link, self.link.mailbox, asyncio.get_running_loop()
        start = loop.time()
        chain = start + self.patience * len(self.turns[0])
        link.waiting = True
        try:
            while True:
                delivery = mailbox.take(sender)
                if delivery is not None:
                    break
                # A neighbour that waits itself is not slow: whoever it waits for is.
                patient = min(chain, link.patient.get(sender, start))
                deadline = max(start, patient, link.progress.get(sender, start)) + self.patience
                gone = sender not in link.membership.present
                if gone or mailbox.overtaken(sender) or loop.time() >= deadline:
                    mailbox.give_up(sender)
                    self.missed.append(sender)
                    return None
                try:
                    async with asyncio.timeout_at(deadline):
                        await link.news.wait()
                except TimeoutError:
                    continue
        finally:
            link.waiting = False
            self.seconds_waiting += loop.time() - start
        fault = self._fault(delivery, length=length, weighted=weighted)
        if fault:
            link.refused[f"{sender}: {fault}"] += 1
            self.missed.append(sender)
            return None
        self.heard += 1
        return delivery

    def _fault(self, delivery: Delivery, *, length: int, weighted: bool) -> str:
        """What is wrong with a row that came, empty if nothing is."""
        mass = delivery.head.mass
        if delivery.row.shape[0] != length or (mass is not None) != weighted:
            return "shape"
        # All masses together are at most the number of peers, and mixing brings none far beyond that.
        return "mass" if mass is not None and abs(mass) > 2 * len(self.weights[0].peers) else ""


def _values(delivery: Delivery, like: Released) -> Rows:
    """A received row as floats, ``[P]``."""
    if delivery.head.grid is None:
        return delivery.row
    return Released(
        delivery.row, grid=delivery.head.grid, dtype=like.values.dtype if like.grid is None else like.dtype
    ).values
