"""Waits for the neighbours' models of a gossip step: deadlines, and reasons why a model is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from p2pfl.network.protocol.interface.effects import Deliver, Missing, Reason
from p2pfl.network.protocol.interface.requests import GossipStep
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.session.streams import Streams


@dataclass
class Awaited:
    """Model that the peer waits for.

    Attributes
    ----------
    sender, keep
        See :class:`~p2pfl.network.protocol.interface.requests.Expect`.
    since
        Time at which the peer began to wait.
    """

    sender: str
    keep: bool
    since: float


@dataclass
class ModelWait:
    """Wait for one model at a time, which limits memory for any number of neighbours.

    Attributes
    ----------
    awaited
        Model that the peer waits for; ``None`` if there is none.
    opened
        Time at which the peer's own model of the current gossip step was on its way.
    """

    shared: Shared
    streams: Streams
    awaited: Awaited | None = None
    opened: float = 0.0
    _expected: set[str] = field(default_factory=set)  # senders whose models of this step were expected when it began

    def open(self, gossip_step: GossipStep, senders: tuple[str, ...], *, since: int) -> None:
        """Begin a gossip step, and wait only for neighbours that took part in the round ``since``."""
        self.shared.mailbox.open(gossip_step, senders)
        if self.shared.mailbox.large:  # it is the first sender's turn
            self.streams.grant()
        self._expected = {peer for peer in senders if self.expects(peer, since)}

    def expect(self, sender: str, *, keep: bool) -> None:
        """Wait for a model; the memory of the previous one is free by now, which is room for the next large one."""
        if self.shared.mailbox.large:
            self.streams.grant()
        self.awaited = Awaited(sender, keep, self.shared.now)
        self.shared.active.add("waiting")

    def close(self) -> None:
        """End the gossip step."""
        self.shared.mailbox.close()
        self.streams.grant()

    @property
    def active(self) -> bool:
        """True if the peer waits for a model."""
        return self.awaited is not None

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return math.inf if self.awaited is None else self._deadline(self.awaited)

    def decide(self) -> None:
        """Answer if the model has arrived or is missing."""
        awaited, mailbox = self.awaited, self.shared.mailbox
        if awaited is None:
            return
        model = mailbox.peek(awaited.sender)
        reason = None if model is not None else self._missing_reason(awaited)
        if model is not None:
            if not awaited.keep:
                mailbox.take(awaited.sender)
            self.shared.do(Deliver(awaited.sender, model))
        elif reason is not None:
            if not awaited.keep:
                mailbox.give_up(awaited.sender)
                self.shared.ledgers.note_missed_model()
            self.shared.do(Missing(awaited.sender, reason))
        else:
            return
        self.awaited = None

    def expects(self, peer: str, round: int) -> bool:
        """Return whether a neighbour is expected to send models of a round, in constant time: each step asks of all."""
        membership, entered = self.shared.membership, self.shared.progress.entered
        if peer in membership.returning:
            return True  # until it reports the round from which it continues
        if peer not in membership.proven or peer in membership.gone or peer in membership.excluded:
            return False
        return entered.get(peer, round + 1) <= round

    def deadline(self, peer: str, *, since: float) -> float:
        """Return the time at which to continue without a neighbour for which this peer waits since ``since``."""
        progress = self.streams.progress.get(peer, since)
        return self.shared.timeouts.deadline(peer, since=since, progress=progress, peers=self.shared.edges.peers)

    def is_left_behind(self, peer: str) -> bool:
        """Return whether a neighbour is too slow to wait for; no neighbour is if models arrive one at a time."""
        reached, _ = self.shared.progress.places.get(peer, (0, 0))
        return not self.shared.mailbox.large and self.shared.timeouts.is_left_behind(peer, reached=reached)

    def _missing_reason(self, awaited: Awaited) -> Reason | None:
        """Return the reason why a model is missing; ``None`` while the peer waits for it."""
        shared, sender = self.shared, awaited.sender
        round, step = shared.mailbox.gossip_step
        if sender not in self._expected:
            return "not expected"
        if not self.expects(sender, round):
            return "gone"
        if sender not in shared.edges.senders_in((round + step) % shared.edges.period):
            return "no edge"
        if shared.abandoned:
            return "abandoned"
        if self.streams.lacks(sender, (round, step)):
            return "refused"
        if shared.mailbox.overtaken(sender) or self.streams.has_passed(sender, (round, step)):
            return "overtaken"
        if shared.now < self._deadline(awaited):
            return None
        shared.timeouts.pace.give_up(sender)
        return "timeout"

    def _deadline(self, awaited: Awaited) -> float:
        """Return the time at which to continue without a model, because its sender is silent or too slow."""
        timeouts, since = self.shared.timeouts, awaited.since
        deadline = self.deadline(awaited.sender, since=since)
        if not timeouts.allowed or self.shared.mailbox.large:
            return deadline
        return since if self.is_left_behind(awaited.sender) else min(deadline, self.opened + timeouts.pace.bound)
