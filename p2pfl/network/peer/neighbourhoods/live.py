"""The neighbourhood of one live peer: its row goes out, its neighbours' rows come in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

from p2pfl.core.codecs import Zstd
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DecodeError
from p2pfl.core.neighbourhood import (
    Contribution,
    Public,
    ReceivedModels,
    Recipient,
    Released,
    check_public,
    measure_step,
    release_bare,
)
from p2pfl.core.rows import Rows, scale_rows
from p2pfl.core.tensors import torch
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.round_totals import RoundTotals
from p2pfl.network.protocol.interface.effects import Deliver, Missing
from p2pfl.network.protocol.interface.requests import Close, Expect, Offer, Open, Reject
from p2pfl.network.protocol.ledgers.flows import Row
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers, heaviest, vector
from p2pfl.network.protocol.wire.wire_rows import Delivery, Encoded, encode_row
from p2pfl.results.evidence import Witness


class LiveNeighbourhood:
    """One round of one peer.

    Parameters
    ----------
    connection
        To the neighbours.
    round
        Gossip step ``k`` of round ``t`` uses the topology at ``t + k``.
    zstd
        What squeezes the bytes of a row.
    conserving
        Whether what one end of an edge lacks is settled later; not where a missing row ends everything.
    totalling
        Carries the totals of the round.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        round: int,
        zstd: Zstd | None,
        conserving: bool,
        totalling: RoundTotals,
    ) -> None:
        self.connection, self.session = connection, connection.session
        self._releases = 0
        self.name = self.session.shared.me.peer
        self.round = round
        self.totalling = totalling
        self.zstd = zstd
        self.conserving = conserving and self.session.ledgers.conserving
        self.step = 0  # gossip steps of the round so far
        self.seconds_waiting = 0.0
        self.idle_clock: Callable[[], float] = asyncio.get_running_loop().time
        """Returns a time that stands still while this peer trains."""
        self.waits: dict[str, float] = {}
        """Seconds from the begin of each gossip step to the arrival of a neighbour's model, added up by neighbour."""
        self._opened = 0.0
        self.received = 0
        self.missed: list[str] = []
        self.refused: list[str] = []
        """Neighbours whose models arrived and are no models of this run."""
        self.witness: Witness | None = None
        """Notes what is sent and received, as evidence of the round; ``None`` where nothing is kept."""
        self.distance = 0.0

    @property
    def peers(self) -> tuple[str, ...]:
        """The one peer whose row this is."""
        return (self.name,)

    @property
    def begins(self) -> bool:
        """True before the first gossip step of the round."""
        return self.step == 0

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Let the others see the row as it is."""
        check_public(since, "since")  # as where rows are hidden
        return release_bare(rows, masses)

    async def mix(self, released: Released) -> Released:
        """Add up the rows one by one as they come in turn, so that few are held at a time."""
        weights = self._row_weights()
        total = self._sum(released, dict(weights))
        order = await self._publish(released, weights)
        for sender in order:
            delivery = await self._model(sender, like=released, weighted=released.masses is not None)
            received = delivery is not None
            if not total.add(sender, weights[sender], delivery) and received:
                self.missed.append(sender)  # it came, but is not in the sum
            del delivery
        self._close()
        mixed = total.close()
        self.record_step(released, mixed)
        return mixed

    def record_step(self, before: Released, after: Released) -> None:
        """Compute at once how far a gossip step moved the model: to keep the rows would take memory on a device."""
        self.distance = float(measure_step(Released(before.level, before.masses), after))

    def _row_weights(self) -> dict[str, float]:
        """Return the weights of this gossip step, including the peer's own; they stay if edges change meanwhile."""
        return self.session.edges.row(self._phase)

    @property
    def _phase(self) -> int:
        return (self.round + self.step) % self.session.edges.period

    def _sum(self, released: Released, weights: dict[str, float]) -> Weighted | Conserved:
        """Return the accumulator that adds the models of this gossip step."""
        share = weights.pop(self.name, 0.0)
        ledgers = self.session.ledgers
        if not self.conserving:
            return Weighted(released, share)
        chain = released.chain
        if chain is None:  # the first gossip step after a release
            chain = self._releases
            self._releases += 1
        total = Conserved(released, ledgers, gossip_step=(self.round, self.step), chain=chain)
        ledgers.open((self.round, self.step), total.own, weights=weights, chain=chain)
        return total

    async def receive(self, released: Released) -> ReceivedModels:
        """Return the models that arrived; the weight of a missing one falls to the peer's own."""
        weights = self._row_weights()
        order = await self._publish(released, weights)
        rows, peers = [released.values], [self.name]
        used = [weights.pop(self.name, 0.0)]
        for sender in order:
            delivery = await self._model(sender, like=released, weighted=False)
            if delivery is None:
                used[0] += weights[sender]
            else:
                rows.append(values(delivery, released).to(rows[0]).unsqueeze(0))
                peers.append(sender)
                used.append(weights[sender])
        self._close()
        return self._to_models(rows, peers, used)

    async def total(
        self,
        contribution: Contribution,
        *,
        size: int,
        bits: int = 64,
        change: float | None = None,
        to: Recipient | None = None,
    ) -> Ints:
        """Add up what all peers contribute, along a spanning tree and under masks; or send it to one peer alone.

        Raises
        ------
        PrivacyError
            The contribution could make the total wrap around, or masks cannot hide it; then nothing is sent.
        PeerError
            Peers were lost.
        """
        del change
        begun = self.idle_clock()
        try:
            total = await self.totalling.total(contribution, peer=self.name, size=size, bits=bits, to=to)
            if to is None and self.witness is not None:
                attempt, number = self.totalling.last
                self.witness.take(total, attempt=attempt, number=number, participants=self.totalling.participants)
            return total
        finally:
            self.seconds_waiting += self.idle_clock() - begun

    def _to_models(self, rows: list[Rows], peers: list[str], used: list[float]) -> ReceivedModels:
        """Return what one receiver has, its own model first: models ``[1, P]``, their owners, and their weights."""
        count = len(rows)
        return ReceivedModels(
            torch.cat(rows),  # [S, P]
            torch.zeros(count, dtype=torch.int64),
            torch.arange(count),
            torch.tensor(used, dtype=torch.float64),
            tuple(peers),
        )

    async def receive_first(self, like: Rows) -> Rows | None:
        """Return the average of the neighbours' next models before sending one's own; ``None`` if it is not of models.

        Only of those that were here before, so that two that come late do not wait for each other; at first, of all.
        """
        weights = self._row_weights()
        others = tuple(sorted(peer for peer in weights if peer != self.name))
        self.connection.submit(Open((self.round, self.step), others, since=max(self.round - 1, 0)))
        total, share = torch.zeros_like(like, dtype=torch.float64), 0.0  # [1, P]
        for sender in others:
            delivery = await self._expect(sender, keep=True)
            if delivery is None or delivery.head.codec or delivery.row.shape != like.shape[1:]:
                continue
            row = values(delivery, Released(like)).to(torch.float64)  # [P]
            if bool(torch.isfinite(row).all()):
                total, share = total + weights[sender] * row, share + weights[sender]
        return (total / share).to(like) if share > 0 else None

    async def _publish(self, released: Released, weights: Collection[str]) -> list[str]:
        """Send the own row; return the peers to wait for, in turn."""
        phase = self._phase
        turns = self.session.edges.turns[phase]
        senders = [peer for _, peer in sorted((turns[peer], peer) for peer in weights if peer != self.name)]
        self.connection.submit(Open((self.round, self.step), tuple(senders), since=self.round))
        self._opened = self.session.shared.now
        mass = None if released.masses is None else float(released.masses[0, 0])
        parts = encode_row(
            released.row(0),
            round=self.round,
            step=self.step,
            grid=released.grid,
            mass=mass,
            codec=0 if released.coded is None else released.coded.codec.number,
            zstd=self.zstd,
        )
        if self.witness is not None:
            self.witness.send(released.row(0), round=self.round, step=self.step, mass=mass)
        await self._send(Offer(Encoded(parts), phase))
        return senders

    async def _send(self, offer: Offer) -> None:
        """Send a model, once the one before is on its way."""
        await self.connection.ask(offer)

    def _close(self) -> None:
        mailbox = self.session.shared.mailbox
        for sender in mailbox.order:
            waited = mailbox.arrived.get(sender, self._opened) - self._opened
            self.waits[sender] = self.waits.get(sender, 0.0) + waited
        self.connection.submit(Close())
        self.step += 1

    async def _model(self, sender: str, *, like: Released, weighted: bool) -> Delivery | None:
        """Return the sender's model of this gossip step, unpacked; ``None`` where it is missing."""
        delivery = await self._expect(sender)
        if delivery is None:
            self.missed.append(sender)
            return None
        return self._check(sender, delivery, like=like, weighted=weighted)

    async def _expect(self, sender: str, *, keep: bool = False) -> Delivery | None:
        """Wait for the sender's model of this gossip step; ``keep`` leaves it to be expected again."""
        began = self.idle_clock()
        answer = await self.connection.ask(Expect(sender, keep=keep))
        self.seconds_waiting += self.idle_clock() - began
        if isinstance(answer, Missing) and answer.reason == "refused":
            self.refused.append(sender)
        return answer.model if isinstance(answer, Deliver) else None

    def _check(self, sender: str, delivery: Delivery, *, like: Released, weighted: bool) -> Delivery | None:
        """Return a model that arrived, decoded; ``None`` if it is malformed."""
        if self.witness is not None:
            round, step = delivery.gossip_step
            self.witness.receive(delivery.row, sender=sender, round=round, step=step, mass=delivery.head.mass)
        fault = row_fault(delivery, like=like, weighted=weighted, peers=self.session.edges.peers)
        if not fault and like.coded is not None:
            try:
                delivery = replace(delivery, row=like.coded.read(delivery.row, sender=sender))
            except DecodeError:
                fault = "codes"
        if fault:
            self.connection.submit(Reject(sender, fault))
            self.missed.append(sender)
            self.refused.append(sender)
            return None
        self.received += 1
        return delivery


def row_fault(delivery: Delivery, *, like: Released, weighted: bool, peers: int) -> str:
    """Return what is wrong with a model that arrived; empty if nothing is.

    Parameters
    ----------
    delivery
        The model.
    like
        Rows that the receiver has released.
    weighted
        True if models have weights.
    peers
        How many peers the run has.
    """
    mass, coded = delivery.head.mass, like.coded
    length, codec = (like.rows.shape[-1], 0) if coded is None else (coded.size, coded.codec.number)
    if delivery.row.shape[0] != length or (mass is not None) != weighted:
        return "shape"
    if delivery.head.codec != codec or (delivery.row.dtype == torch.uint8) != (coded is not None):
        return "codec"
    return "mass" if mass is not None and not abs(mass) <= heaviest(peers) else ""


class Weighted:
    """The sum W y of one peer: what does not come falls to the own row.

    The first row that comes becomes the sum, in its own memory: to fill as much new memory takes longer than the rest.

    Parameters
    ----------
    released
        Our own.
    share
        Its weight.
    """

    def __init__(self, released: Released, share: float) -> None:
        self.released, self.share = released, share
        self.values = released.values  # [1, P]
        self.mixed: Rows | None = None  # [1, P], of the rows that came
        self.mass = 0.0  # of the rows that came

    def add(self, sender: str, weight: float, delivery: Delivery | None) -> bool:
        """Add a row, whose memory may be used; one's own where none came. Return whether the sum has the row."""
        del sender
        if delivery is None:
            self.share += weight
            return False
        row = values(delivery, self.released).to(self.values).unsqueeze(0)  # [1, P]
        self.mass += weight * (delivery.head.mass or 0.0)
        if self.mixed is not None:
            self.mixed.add_(row, alpha=weight)
        elif self.released.coded is None:
            self.mixed = row.mul_(weight)
        else:  # the codec keeps the row as a reference
            self.mixed = scale_rows(row, weight)
        return True

    def close(self) -> Released:
        """Return the sum."""
        own, share = self.released.masses, self.share
        mixed = scale_rows(self.values, share) if self.mixed is None else self.mixed.add_(self.values, alpha=share)
        return Released(mixed, None if own is None else own * share + self.mass)


class Conserved:
    r"""The same sum as :math:`y + \sum_j F_j` of flows that the ledgers note, so that what one end lacks is settled.

    Parameters
    ----------
    released
        Our own.
    ledgers
        Say which flows count.
    gossip_step, chain
        Which gossip step, and of which release.
    """

    def __init__(self, released: Released, ledgers: PeerLedgers, *, gossip_step: tuple[int, int], chain: int) -> None:
        self.released, self.ledgers = released, ledgers
        self.gossip_step, self.chain = gossip_step, chain
        self.own = self.total = vector(released)  # [P] or [P + 1]

    def add(self, sender: str, weight: float, delivery: Delivery | None) -> bool:
        """Add the flow of a row that came; return whether the sum has it, for which the ledgers need room."""
        del weight  # the ledgers know it
        if delivery is None:
            return False
        moved = self.ledgers.apply(sender, self.gossip_step, vector(delivery).astype(self.own.dtype, copy=False))
        if moved is not None:
            self._move(moved)
        return moved is not None or sender in self.applied  # late rows are in it already

    def _move(self, change: Row) -> None:
        """Add to the sum, in memory of its own from the first time on."""
        if self.total is self.own:
            self.total = self.own + change
        else:
            self.total += change

    @property
    def applied(self) -> dict[str, float]:
        """Weights of the neighbours whose models are in the sum."""
        return self.ledgers.flows.applied_weights(self.gossip_step)

    def close(self) -> Released:
        """Return the sum, including late models of earlier gossip steps."""
        due = self.ledgers.close(weight=None if self.released.masses is None else float(self.total[-1]))
        if due is not None:
            self._move(due)
        elif self.total is self.own:
            self.total = self.own.copy()  # the ledger keeps what was released
        rows = torch.from_numpy(self.total).unsqueeze(0)  # [1, P] or [1, P + 1]
        if self.released.masses is None:
            return Released(rows, chain=self.chain)
        if self.chain == 0:
            self.ledgers.mass = float(rows[0, -1])
        return Released(rows[:, :-1], rows[:, -1:].to(torch.float64), chain=self.chain)


def values(delivery: Delivery, like: Released) -> Rows:
    """Return a received model as floats, ``[P]``."""
    if delivery.head.grid is None:
        return delivery.row
    return Released(
        delivery.row, grid=delivery.head.grid, dtype=like.values.dtype if like.grid is None else like.dtype
    ).values
