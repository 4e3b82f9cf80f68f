"""Which neighbour's model of a gossip step is waited for, how long, and why it is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from p2pfl.protocol.session.effects import Deliver, Missing, Reason
from p2pfl.protocol.session.events import Exchange
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.session.streams import Streams


@dataclass
class Awaited:
    """A model that the peer waits for.

    Attributes
    ----------
    sender, keep
        As of :class:`~p2pfl.protocol.session.events.Expect`.
    since
        When it began to wait.
    """

    sender: str
    keep: bool
    since: float


@dataclass
class Waiting:
    """Wait for one model at a time: so few are held, however many neighbours there are.

    Attributes
    ----------
    awaited
        What is waited for now.
    opened
        When the peer's own model of the present gossip step was on its way.
    """

    shared: Shared
    streams: Streams
    awaited: Awaited | None = None
    opened: float = 0.0
    _expected: set[str] = field(default_factory=set)  # whose models of this step will come, or would have

    def open(self, exchange: Exchange, senders: tuple[str, ...], *, since: int) -> None:
        """Begin a gossip step; only neighbours that took part in the round ``since`` are waited for."""
        self.shared.mailbox.open(exchange, senders)
        self.streams.grant()
        self._expected = {peer for peer in senders if self.expects(peer, since)}

    def expect(self, sender: str, *, keep: bool) -> None:
        """Wait for a model; what was used before is free by now, so that the next sender may go on."""
        self.streams.grant()
        self.awaited = Awaited(sender, keep, self.shared.now)

    def close(self) -> None:
        """End the gossip step."""
        self.shared.mailbox.close()
        self.streams.grant()

    @property
    def active(self) -> bool:
        """Whether a model is waited for."""
        return self.awaited is not None

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        return math.inf if self.awaited is None else self._deadline(self.awaited)

    def decide(self) -> None:
        """Answer, if the model came or will not."""
        awaited, mailbox = self.awaited, self.shared.mailbox
        if awaited is None:
            return
        model = mailbox.peek(awaited.sender)
        reason = None if model is not None else self._missing(awaited)
        if model is not None:
            if not awaited.keep:
                mailbox.take(awaited.sender)
            self.shared.do(Deliver(awaited.sender, model))
        elif reason is not None:
            if not awaited.keep:
                mailbox.give_up(awaited.sender)
                self.shared.books.missed()
            self.shared.do(Missing(awaited.sender, reason))
        else:
            return
        self.awaited = None

    def expects(self, peer: str, round: int) -> bool:
        """Return whether a neighbour's models of a round will come."""
        if peer in self.shared.membership.returning:
            return True  # until it says where it goes on
        return peer in self.shared.membership.present and self.shared.progress.expects(peer, round)

    def deadline(self, peer: str, *, since: float) -> float:
        """Return when to go on without a neighbour that is waited for since then."""
        progress = self.streams.progress.get(peer, since)
        return self.shared.timeouts.deadline(peer, since=since, progress=progress, peers=self.shared.edges.peers)

    def left_behind(self, peer: str) -> bool:
        """Return whether a neighbour is too slow to be waited for; where models come one at a time, nobody is."""
        place, _ = self.shared.progress.places.get(peer, (0, 0))
        return not self.shared.mailbox.large and self.shared.timeouts.left_behind(peer, place=place)

    def _missing(self, awaited: Awaited) -> Reason | None:
        """Return why a model is not waited for any more; ``None`` while it is."""
        shared, sender = self.shared, awaited.sender
        round, step = shared.mailbox.exchange
        if sender not in self._expected:
            return "not expected"
        if not self.expects(sender, round):
            return "gone"
        if sender not in shared.edges.hears((round + step) % shared.edges.period):
            return "no edge"
        if shared.mailbox.overtaken(sender):
            return "overtaken"
        if shared.now < self._deadline(awaited):
            return None
        shared.timeouts.pace.give_up(sender)
        return "timeout"

    def _deadline(self, awaited: Awaited) -> float:
        """Return when to go on without a model: once its sender is silent, or slower than is worth waiting for."""
        timeouts, since = self.shared.timeouts, awaited.since
        deadline = self.deadline(awaited.sender, since=since)
        if not timeouts.allowed or self.shared.mailbox.large:
            return deadline
        return since if self.left_behind(awaited.sender) else min(deadline, self.opened + timeouts.pace.bound)
