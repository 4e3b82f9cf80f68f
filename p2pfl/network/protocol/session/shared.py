"""State that the parts of a session share, and the effects that they add."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.network.protocol.incoming import plausible
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.incoming.rate_limit import Allowance
from p2pfl.network.protocol.interface.effects import Effect, Publish, Store
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.neighbour_progress import NeighbourProgress
from p2pfl.network.protocol.timing.timeouts import Timeouts
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement, Digest, Message

Waiter = Literal["sending", "waiting", "totals", "commits", "gathering", "settling", "leaving"]
"""Part of a session that can wait for something, and decides after each event while it does."""

PULSE = 1.0
"""Seconds between heartbeats."""


@dataclass
class Shared:
    """State that more than one part of a session needs.

    Parameters
    ----------
    codec
        Codec that opens incoming messages, with the announcement and the keys of this peer.
    membership, mailbox, edges, ledgers
        Present peers, received models, schedule of senders and receivers, and ledgers of each neighbour.
    row_bytes
        Upper bound on the size of a model's message in bytes.
    patience
        Seconds without progress after which this peer stops waiting for a neighbour.
    last
        Last round that anybody may play, see :data:`~p2pfl.network.protocol.incoming.plausible.AFTER`.

    Attributes
    ----------
    progress
        Rounds that the neighbours take part in and have reached.
    timeouts
        Decisions on which neighbours to wait for, and for how long.
    refused
        Number of messages that were not used, by sender and reason.
    first
        First round that this incarnation takes part in; ``None`` until it is known.
    abandoned
        True if a member of the attempt at the round has reported that it has failed.
    waiting
        True if the peer waits for neighbours; its heartbeats include this flag.
    total
        Digest of the last total, which its heartbeats include; ``None`` before the first total.
    grace
        Seconds within which a peer whose Last Will arrived may still return.
    work
        Work of this peer so far, which its heartbeats include.
    pause
        Time at which this peer ends its pause between two rounds; ``None`` outside of one.
    now
        Time of the current event.
    effects
        Effects of the current event so far.
    stores
        Parts that wait for a write, in the order of the writes.
    active
        Parts that wait for something; each adds itself.
    """

    codec: MessageCodec
    membership: Membership
    mailbox: Mailbox
    edges: Edges
    ledgers: PeerLedgers
    row_bytes: int
    patience: float
    last: int = plausible.UNLIMITED
    progress: NeighbourProgress = field(default_factory=NeighbourProgress)
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(period=PULSE, patience=0.0))
    allowance: Allowance = field(default_factory=Allowance)
    refused: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    abandoned: bool = False
    waiting: bool = False
    total: Digest | None = None
    grace: float = 0.0
    work: int = 0
    pause: float | None = None
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    stores: deque[Literal["sending", "commits"]] = field(default_factory=deque)
    active: set[Waiter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.timeouts.patience = self.patience

    @property
    def me(self) -> Announcement:
        """Announcement of this incarnation."""
        return self.membership.me

    @property
    def rounds(self) -> int:
        """Number of rounds of the experiment."""
        return self.last - plausible.AFTER

    @property
    def running(self) -> bool:
        """True if a neighbour is in a later gossip step than it can reach without this peer."""
        entered = self.progress.entered
        return any(
            round > entered[peer] or self.edges.is_needed_for(peer, round=round, steps=step)
            for peer, (round, step) in self.progress.places.items()
        )

    def do(self, effect: Effect) -> None:
        """Add an effect of the current event."""
        self.effects.append(effect)

    def store(self, part: Literal["sending", "commits"]) -> None:
        """Make the state durable for a part, which learns of it by a ``Stored``."""
        self.stores.append(part)
        self.effects.append(Store())

    def publish(self, path: str, message: Message) -> None:
        """Publish a message without a receipt."""
        self.effects.append(Publish(path, message))

    def refuse(self, sender: str, why: str) -> None:
        """Count a message that was not used."""
        self.refused[f"{self.sender_key(sender)}: {why}"] += 1

    def sender_key(self, sender: str) -> str:
        """Return a sender's name, or one name for all strangers, which can choose any number of names."""
        return sender if sender == self.me.peer or sender in self.membership.neighbours else "stranger"

    def admit(self, sender: str, *, authentic: bool) -> bool:
        """Return whether the rate limits admit another message of a sender.

        Authentic messages of a neighbour, and messages under its topic that any peer may have sent, have separate and
        equal limits. Announcements and keys are authenticated later and one by one, so they count as the latter: a
        flood on that topic blocks no model and no heartbeat.
        """
        sender_key = self.sender_key(sender)
        admitted = self.allowance.take(sender_key if authentic else f"{sender_key} unproven", now=self.now)
        if not admitted:
            self.refuse(sender, "too much")
        return admitted
