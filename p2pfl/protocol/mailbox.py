"""What to do with a row that arrives: all of it decided here, without a clock or a loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.protocol.equivocation import Proof
from p2pfl.protocol.wire.rows import Head
from p2pfl.protocol.wire.trailer import Said
from p2pfl.rows import Rows

Verdict = Literal["kept", "late", "duplicate", "stranger", "equivocation"]

AHEAD = 4
"""Rows of one neighbour that wait for exchanges to come before it gets no more credit."""


WINDOW = 8
"""Exchanges of one neighbour, those next to the present one, for which it is remembered what it signed."""


@dataclass(frozen=True)
class Delivery:
    """A row that waits to be used."""

    head: Head
    row: Rows  # [P]

    @property
    def exchange(self) -> tuple[int, int]:
        """The round and the step it belongs to."""
        return self.head.round, self.head.step


@dataclass
class Mailbox:
    """Rows by sender, in the order of exchanges.

    Parameters
    ----------
    large
        Whether rows are so large that they should come one at a time.
    period
        Of the schedule: each of its phases is a stream of its own, in order by itself.
    most
        Rows of one neighbour that wait at all: credit allows for fewer, but when this peer stood still and was given
        up, what others said to each other since comes at once. The newest are kept, for that is where they are.
    proofs
        Against neighbours that said two things in one exchange.
    """

    large: bool = False
    period: int = 1
    most: int = 64
    exchange: tuple[int, int] = (0, 0)
    order: tuple[str, ...] = ()
    proofs: dict[str, Proof] = field(default_factory=dict)
    _said: dict[str, dict[tuple[int, int], Said]] = field(default_factory=dict)
    _waiting: dict[str, deque[Delivery]] = field(default_factory=dict)
    _settled: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)

    def open(self, exchange: tuple[int, int], order: Sequence[str]) -> None:
        """Begin an exchange with the senders in ``order``, which is also whose turn comes first.

        What belongs to earlier exchanges is late from now on.
        """
        self.exchange = exchange
        self.order = tuple(order)
        self._settled.clear()
        self._given_up.clear()
        for queue in self._waiting.values():
            while queue and queue[0].exchange < exchange:
                queue.popleft()

    def close(self) -> None:
        """End the exchange: what belongs to it is late from now on."""
        round, step = self.exchange
        self.open((round, step + 1), self.order)

    def know(self, sender: str) -> None:
        """Accept rows of a neighbour."""
        self._waiting.setdefault(sender, deque())

    def forget(self, sender: str) -> None:
        """Drop what an earlier life of a neighbour said; of what was used and is taken back the next one's is late."""
        self._waiting.pop(sender, None)
        self._said.pop(sender, None)
        self._given_up |= self._settled & {sender}

    def deliver(self, sender: str, head: Head, row: Rows, *, said: Said | None = None) -> Verdict:
        """Keep a row, or say why not; after a second row of one exchange, ``said`` otherwise, none is kept any more."""
        queue = self._waiting.get(sender)
        delivery = Delivery(head, row)
        if queue is None:
            return "stranger"
        if said is not None and (proof := self._contradiction(sender, delivery.exchange, said)) is not None:
            self.proofs[sender] = proof
            del self._waiting[sender], self._said[sender]
            return "equivocation"
        return self._keep(sender, delivery, queue)

    def _keep(self, sender: str, delivery: Delivery, queue: deque[Delivery]) -> Verdict:
        """Keep a row of a neighbour until its exchange comes."""
        if delivery.exchange < self.exchange or (delivery.exchange == self.exchange and sender in self._given_up):
            return "late"
        settled = delivery.exchange == self.exchange and sender in self._settled
        if settled or any(other.exchange == delivery.exchange for other in queue):
            return "duplicate"
        queue.append(delivery)
        if len(queue) > 1 and queue[-2].exchange > delivery.exchange:  # streams of two phases
            queue = self._waiting[sender] = deque(sorted(queue, key=lambda each: each.exchange))
        if len(queue) > self.most:
            queue.popleft()
        return "kept"

    def _contradiction(self, sender: str, exchange: tuple[int, int], said: Said) -> Proof | None:
        """Return the evidence that the sender sent two different models for this gossip step."""
        heard = self._said.setdefault(sender, {})
        first = heard.setdefault(exchange, said)
        if len(heard) > WINDOW:  # what is past goes first, then what is farthest, lest far rows hide the present one
            oldest = min(heard)
            del heard[oldest if oldest < self._present(sender) else max(heard)]
        return Proof(first, said) if first.statement != said.statement else None

    def _present(self, sender: str) -> tuple[int, int]:
        """Return the gossip step in which a sender's model is wanted."""
        del sender  # the same for all
        return self.exchange

    def take(self, sender: str) -> Delivery | None:
        """Return the sender's model of this gossip step, once."""
        delivery = self.peek(sender)
        if delivery is not None:
            self._settled.add(sender)
            self._waiting[sender].popleft()
        return delivery

    def peek(self, sender: str) -> Delivery | None:
        """Return the sender's model of this gossip step without taking it."""
        queue = self._waiting.get(sender)
        return queue[0] if queue and queue[0].exchange == self.exchange else None

    def give_up(self, sender: str) -> None:
        """Go on without the sender's row of this exchange."""
        self._settled.add(sender)
        self._given_up.add(sender)

    def overtaken(self, sender: str) -> bool:
        """Whether a later row came in the stream of this exchange, so that the row of it will not come."""
        phase = sum(self.exchange) % self.period
        queue = self._waiting.get(sender, ())
        return any(each.exchange > self.exchange and sum(each.exchange) % self.period == phase for each in queue)

    def missing(self) -> list[str]:
        """Whom this exchange still waits for."""
        return [sender for sender in self.order if sender not in self._settled]

    def may_send(self, sender: str) -> bool:
        """Whether the sender may be given credit for more.

        Small rows may come as long as few wait. Large rows come one at a time and in turn, which
        bounds memory and keeps two peers from waiting for each other: of all unfinished transfers,
        the one of the earliest exchange and turn is always allowed.
        """
        queue = self._waiting.get(sender)
        if queue is None or len(queue) >= AHEAD:
            return False
        if not self.large:
            return True
        missing = self.missing()
        return not queue and bool(missing) and missing[0] == sender


@dataclass
class Newest(Mailbox):
    """Of each sender the newest row, for peers in cycles of their own: nothing is awaited, and nothing held back.

    A sender numbers its rows by its own cycles. A newer one takes the place of one that waits; an older one is late.
    So a row waits from each neighbour, however fast it is, and everybody may always send.
    """

    _newest: dict[str, tuple[int, int]] = field(default_factory=dict)

    def open(self, exchange: tuple[int, int], order: Sequence[str]) -> None:
        """Note the own exchange; that of a row says nothing of whether it is late."""
        self.exchange, self.order = exchange, tuple(order)

    def forget(self, sender: str) -> None:
        """Drop what an earlier life of a neighbour said, and how far it had counted."""
        super().forget(sender)
        self._newest.pop(sender, None)

    def collect(self) -> dict[str, Delivery]:
        """Return the models that have arrived since the last call, each once."""
        came = {sender: queue.popleft() for sender, queue in self._waiting.items() if queue}
        return dict(sorted(came.items()))

    def missing(self) -> list[str]:
        """Nobody is waited for."""
        return []

    def may_send(self, sender: str) -> bool:
        """Whether the sender is a neighbour."""
        return sender in self._waiting

    def _keep(self, sender: str, delivery: Delivery, queue: deque[Delivery]) -> Verdict:
        newest = self._newest.get(sender, (-1, 0))
        if delivery.exchange <= newest:
            return "duplicate" if delivery.exchange == newest else "late"
        self._newest[sender] = delivery.exchange
        queue.clear()
        queue.append(delivery)
        return "kept"

    def _present(self, sender: str) -> tuple[int, int]:
        return self._newest.get(sender, (0, 0))
