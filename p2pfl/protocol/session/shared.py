"""What all parts of a session know, and where they put what is to be done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from p2pfl.protocol import plausible
from p2pfl.protocol.edges import Edges
from p2pfl.protocol.ledgers.books import Books
from p2pfl.protocol.mailbox import Mailbox
from p2pfl.protocol.membership import Membership
from p2pfl.protocol.progress import Whereabouts
from p2pfl.protocol.rate_limit import Allowance
from p2pfl.protocol.session.effects import Effect, Publish
from p2pfl.protocol.timeouts import Doubts
from p2pfl.protocol.wire.messages import Digest, Hello, Message
from p2pfl.protocol.wire.sealing import Codec

PULSE = 1.0
"""Seconds between heartbeats."""


@dataclass
class Shared:
    """The state of a session that more than one part of it needs.

    Parameters
    ----------
    codec
        Opens what came; it has the announcement and the keys of this peer.
    membership, mailbox, edges, books
        Who is there, models that came, who sends to whom when, and what was exchanged with whom.
    row_bytes
        Upper bound of a model's message.
    patience
        Seconds without progress after which a neighbour is not waited for any more.
    last
        The last round that anybody plays.

    Attributes
    ----------
    progress
        Which part of the run the neighbours play.
    timeouts
        Who is waited for, and how long.
    refused
        By sender and reason, how often a message was not used.
    first
        The first round that this incarnation takes part in; ``None`` until it is known.
    waiting
        Whether the peer waits for neighbours, as its heartbeats say.
    total
        The last total, as its heartbeats say; ``None`` before the first.
    grace
        Seconds within which others whose Last Will came may well be back.
    now
        The time of the event that is handled.
    effects
        What it has led to so far.
    """

    codec: Codec
    membership: Membership
    mailbox: Mailbox
    edges: Edges
    books: Books
    row_bytes: int
    patience: float
    last: int = plausible.UNLIMITED
    progress: Whereabouts = field(default_factory=Whereabouts)
    timeouts: Doubts = field(default_factory=lambda: Doubts(period=PULSE, patience=0.0))
    allowance: Allowance = field(default_factory=Allowance)
    refused: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    waiting: bool = False
    total: Digest | None = None
    grace: float = 0.0
    now: float = 0.0
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timeouts.patience = self.patience

    @property
    def me(self) -> Hello:
        """The announcement of this incarnation."""
        return self.membership.me

    def do(self, effect: Effect) -> None:
        """Add an effect of the event that is handled."""
        self.effects.append(effect)

    def publish(self, place: str, message: Message) -> None:
        """Publish a message that nobody waits for."""
        self.effects.append(Publish(place, message))

    def refuse(self, sender: str, why: str) -> None:
        """Count a message that was not used."""
        self.refused[f"{self.known(sender)}: {why}"] += 1

    def known(self, sender: str) -> str:
        """Return a sender's name, or one for all strangers, who can choose as many names as they like."""
        return sender if sender == self.me.peer or sender in self.membership.known else "stranger"

    def admit(self, sender: str, *, authentic: bool) -> bool:
        """Return whether one more message is read: so many of each neighbour, and as many that anybody may have sent.

        Announcements and keys are authenticated later and one by one, so those under a neighbour's topic have an
        allowance of their own: whoever floods that topic keeps out no model and no heartbeat.
        """
        known = self.known(sender)
        admitted = self.allowance.take(known if authentic else f"{known} unproven", now=self.now)
        if not admitted:
            self.refuse(sender, "too much")
        return admitted
