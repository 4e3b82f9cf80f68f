"""Models that have arrived and wait for their gossip step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.core.rows import Rows
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head

Verdict = Literal["kept", "late", "duplicate", "stranger", "equivocation"]

AHEAD = 4
"""Models of one neighbour that may wait for later gossip steps before the neighbour gets no more credit."""


WINDOW = 8
"""Gossip steps of one neighbour, around the current one, whose signed statements are kept for comparison."""


@dataclass
class Mailbox:
    """Models by sender, in the order of gossip steps.

    Parameters
    ----------
    large
        True if models are so large that they should arrive one at a time.
    period
        Number of phases of the schedule; each phase is a separate stream with its own order.
    most
        Maximum number of models of one neighbour that wait. Credit allows for fewer, but if this peer was suspended and
        its neighbours continued without it, all their models since then arrive at once; the newest ones are kept.
    proofs
        Evidence against neighbours that signed two models for one gossip step.
    arrived
        When models of this gossip step arrived after it had begun, by sender.
    """

    large: bool = False
    period: int = 1
    most: int = 64
    gossip_step: tuple[int, int] = (0, 0)
    order: tuple[str, ...] = ()
    proofs: dict[str, Proof] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    _said: dict[str, dict[tuple[int, int], SignedStatement]] = field(default_factory=dict)
    _waiting: dict[str, dict[tuple[int, int], Delivery]] = field(default_factory=dict)  # by sender and gossip step
    _settled: set[str] = field(default_factory=set)
    _given_up: set[str] = field(default_factory=set)

    def open(self, gossip_step: tuple[int, int], order: Sequence[str]) -> None:
        """Begin a gossip step with the senders in ``order``, which is also the order of their turns.

        Models of earlier gossip steps are late from now on.
        """
        self.gossip_step = gossip_step
        self.order = tuple(order)
        self._settled.clear()
        self._given_up.clear()
        self.arrived.clear()
        for models in self._waiting.values():
            for late in [each for each in models if each < gossip_step]:
                del models[late]

    def close(self) -> None:
        """End the gossip step: its models are late from now on."""
        round, step = self.gossip_step
        self.open((round, step + 1), self.order)

    def know(self, sender: str) -> None:
        """Accept models of a neighbour."""
        self._waiting.setdefault(sender, {})

    def forget(self, sender: str) -> None:
        """Discard the models of an earlier incarnation of a neighbour.

        If one of them was used in the current gossip step, the model of the next incarnation for that step is late.
        """
        self._waiting.pop(sender, None)
        self._said.pop(sender, None)
        self._given_up |= self._settled & {sender}

    def deliver(self, sender: str, head: Head, row: Rows, *, signed: SignedStatement | None = None) -> Verdict:
        """Keep a model, or return the reason why not.

        Once a sender has signed a second, different model for one gossip step, none of its models is kept any more.
        """
        gossip_step = head.round, head.step
        if sender not in self._waiting:
            return "stranger"
        if signed is not None and (proof := self._contradiction(sender, gossip_step, signed)) is not None:
            self.proofs[sender] = proof
            del self._waiting[sender], self._said[sender]
            return "equivocation"
        return self._keep(sender, gossip_step, Delivery(head, row))

    def _keep(self, sender: str, gossip_step: tuple[int, int], delivery: Delivery) -> Verdict:
        """Keep a model of a neighbour until its gossip step begins."""
        models, current = self._waiting[sender], gossip_step == self.gossip_step
        if gossip_step < self.gossip_step or (current and sender in self._given_up):
            return "late"
        if gossip_step in models or (current and sender in self._settled):
            return "duplicate"
        models[gossip_step] = delivery
        if len(models) > self.most:
            del models[min(models)]
        return "kept"

    def _contradiction(self, sender: str, gossip_step: tuple[int, int], signed: SignedStatement) -> Proof | None:
        """Return the evidence that the sender sent two different models for this gossip step."""
        received = self._said.setdefault(sender, {})
        first = received.setdefault(gossip_step, signed)
        if (
            len(received) > WINDOW
        ):  # past ones first, then the farthest, so that far ones cannot displace the current one
            oldest = min(received)
            del received[oldest if oldest < self._present(sender) else max(received)]
        return Proof(first, signed) if first.statement != signed.statement else None

    def _present(self, sender: str) -> tuple[int, int]:
        """Return the gossip step in which a sender's model is wanted."""
        del sender  # the same for all
        return self.gossip_step

    def take(self, sender: str) -> Delivery | None:
        """Return the sender's model of this gossip step, once."""
        delivery = self.peek(sender)
        if delivery is not None:
            self._settled.add(sender)
            del self._waiting[sender][self.gossip_step]
        return delivery

    def peek(self, sender: str) -> Delivery | None:
        """Return the sender's model of this gossip step without taking it."""
        return self._waiting.get(sender, {}).get(self.gossip_step)

    def give_up(self, sender: str) -> None:
        """Continue without the sender's model of this gossip step."""
        self._settled.add(sender)
        self._given_up.add(sender)

    def overtaken(self, sender: str) -> bool:
        """Return whether a later model arrived in the stream of this gossip step, so that its own model never will."""
        phase = sum(self.gossip_step) % self.period
        models = self._waiting.get(sender, {})
        return any(each > self.gossip_step and sum(each) % self.period == phase for each in models)

    def missing(self) -> list[str]:
        """Return the senders for which this gossip step still waits."""
        return [sender for sender in self.order if sender not in self._settled]

    def may_send(self, sender: str) -> bool:
        """Return whether the sender may get credit for more models.

        Small models may arrive as long as few wait. Large models arrive one at a time and in turn, which bounds memory
        and keeps two peers from waiting for each other: of all unfinished transfers, the one of the earliest gossip
        step and turn is always allowed.
        """
        models = self._waiting.get(sender)
        if models is None or len(models) >= AHEAD:
            return False
        if not self.large:
            return True
        missing = self.missing()
        return not models and bool(missing) and missing[0] == sender


@dataclass
class Newest(Mailbox):
    """Newest model of each sender, for asynchronous peers: nothing is awaited, and nothing is held back.

    A sender numbers its models by its own cycles. A newer model replaces one that waits; an older one is late. So at
    most one model of each neighbour waits, however fast the neighbour is, and all neighbours may always send.
    """

    _newest: dict[str, tuple[int, int]] = field(default_factory=dict)

    def open(self, gossip_step: tuple[int, int], order: Sequence[str]) -> None:
        """Note the own gossip step; whether a model is late does not depend on it."""
        self.gossip_step, self.order = gossip_step, tuple(order)

    def forget(self, sender: str) -> None:
        """Discard the models of an earlier incarnation of a neighbour, and their numbers."""
        super().forget(sender)
        self._newest.pop(sender, None)

    def collect(self) -> dict[str, Delivery]:
        """Return the models that have arrived since the last call, each once."""
        came = {sender: models.popitem()[1] for sender, models in self._waiting.items() if models}
        return dict(sorted(came.items()))

    def missing(self) -> list[str]:
        """Return no senders, because an asynchronous peer waits for none."""
        return []

    def may_send(self, sender: str) -> bool:
        """Return whether the sender is a neighbour."""
        return sender in self._waiting

    def _keep(self, sender: str, gossip_step: tuple[int, int], delivery: Delivery) -> Verdict:
        newest = self._newest.get(sender, (-1, 0))
        if gossip_step <= newest:
            return "duplicate" if gossip_step == newest else "late"
        self._newest[sender] = gossip_step
        self._waiting[sender] = {gossip_step: delivery}
        return "kept"

    def _present(self, sender: str) -> tuple[int, int]:
        return self._newest.get(sender, (0, 0))
