"""Effects that a session returns for the shell to carry out, and answers to the requests of the peer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from p2pfl.core.errors import P2PFLError, PeerError
from p2pfl.network.protocol.interface.events import Read
from p2pfl.network.protocol.wire.messages import ChangeRelay, ForOne, Message
from p2pfl.network.protocol.wire.total_messages import Total
from p2pfl.network.protocol.wire.trailer import Trailer
from p2pfl.network.protocol.wire.wire_rows import Delivery, ModelMessage, read_rows
from p2pfl.privacy.total_masks import Ring

SLOW = 2**20
"""Size in bytes above which a model is read in a thread, so that the event loop need not wait, and from which a sum is
unmasked in one."""

Reason = Literal["not expected", "gone", "no edge", "overtaken", "abandoned", "refused", "timeout"]
"""Reason why a model is missing: its sender does not take part in this round, has left, is no longer a neighbour, has
sent a later model, the attempt has failed at another member, the model was refused, or the sender has been silent or
slow for too long."""


# ---------------------------------------------------------------------- to the broker


@dataclass(frozen=True)
class Publish:
    """Instruction to publish a message.

    Parameters
    ----------
    place
        Topic below the peer's own name, or a neighbour's inbox, ``in/{neighbour}``.
    message
        Message before sealing.
    retain
        True if the broker keeps the message; the shell publishes such messages one after another.
    receipt
        Receipt of the ``Published`` event that follows; no event follows if it is empty.
    size
        Size in bytes to which the payload is padded.
    """

    place: str
    message: Message
    retain: bool = False
    receipt: str = ""
    size: int = 0


@dataclass(frozen=True)
class Clear:
    """Instruction to remove the peer's own retained announcement; a ``Published`` with the receipt follows."""

    receipt: str


@dataclass(frozen=True)
class Subscribe:
    """Instruction to subscribe to places below the swarm's root; a ``Subscribed`` follows if there is a receipt."""

    places: tuple[str, ...]
    receipt: str = ""


@dataclass(frozen=True)
class Flush:
    """Instruction to wait until everything in the queue is published; a ``Flushed`` follows."""


# ---------------------------------------------------------------------- to the disk, threads and the clock


@dataclass(frozen=True)
class Store:
    """Instruction to make state durable before any message that depends on it is sent; a ``Stored`` follows."""


@dataclass(frozen=True)
class Parse:
    """Instruction to read large models; a ``Read`` follows before the session handles any other arrival.

    Parameters
    ----------
    sender, phase
        Stream on which the messages arrived.
    messages
        Messages as they arrived.
    trailer, largest
        Required end of each message, and the size in bytes of the largest allowed message.
    head
        Head of the stream in the heartbeat to acknowledge; ``None`` after a chunk.
    """

    sender: str
    phase: int
    messages: tuple[ModelMessage, ...]
    trailer: Trailer
    largest: int
    head: int | None

    def result(self) -> Read:
        """Read the models."""
        models = read_rows(self.messages, trailer=self.trailer, largest=self.largest)
        return Read(self.sender, self.phase, models, self.head)


@dataclass(frozen=True)
class ProcessSum:
    """Instruction to process a neighbour's message of a secure sum; a ``SumRefused`` follows if it is not credible."""

    sender: str
    message: ForOne | Total


@dataclass(frozen=True)
class TakeChange:
    """Instruction to take what a neighbour relays of a change of the swarm."""

    sender: str
    message: ChangeRelay


@dataclass(frozen=True)
class Forget:
    """Instruction to abandon the sums begun with a neighbour's former incarnation, because it began a new one."""

    peer: str


@dataclass(frozen=True)
class WakeAt:
    """Instruction to send the session a ``Tick`` no later than this time on its clock."""

    when: float


@dataclass(frozen=True)
class Fail:
    """Notification that the peer cannot continue."""

    error: P2PFLError


# ---------------------------------------------------------------------- answers


@dataclass(frozen=True)
class Entered:
    """Confirmation that the peer is announced."""


@dataclass(frozen=True)
class Gathered:
    """Confirmation that all neighbours, or as many as the quorum requires, are present; otherwise the error."""

    error: PeerError | None = None


@dataclass(frozen=True)
class Sent:
    """Confirmation that the model is on its way."""


@dataclass(frozen=True)
class Deliver:
    """Model that a neighbour sent for the current gossip step."""

    sender: str
    model: Delivery


@dataclass(frozen=True)
class Missing:
    """Notification that a neighbour's model of the current gossip step will not arrive or is no longer awaited."""

    sender: str
    reason: Reason


@dataclass(frozen=True)
class Collected:
    """Newest models, by neighbour."""

    models: dict[str, Delivery]


@dataclass(frozen=True)
class Convened:
    """Agreed participants of a round's totals.

    Parameters
    ----------
    peers
        Names of the participants, sorted.
    attempt
        Number of times that the totals of the round were restarted.
    """

    peers: tuple[str, ...]
    attempt: int


@dataclass(frozen=True)
class Totalled:
    """Completed total.

    Parameters
    ----------
    values
        Total, ``[K]`` in the ring; empty at a peer that does not obtain it.
    """

    values: Ring


@dataclass(frozen=True)
class Unfinished:
    """Notification that an attempt at a round's totals has failed, at this peer or at another.

    Parameters
    ----------
    lost
        Peers that caused attempts to fail.
    reporter
        Neighbour that reported it; empty if this peer noticed it.
    """

    lost: frozenset[str]
    reporter: str = ""


@dataclass(frozen=True)
class Concluded:
    """Outcome of an attempt at a round, the same at all of its members.

    Parameters
    ----------
    committed
        True if the attempt's parameters replace those from before the round; otherwise the round is played again.
    members
        Members of the next attempt, sorted: without peers that were dropped, this one perhaps, and with one that joins.
    failed
        Member that has reported the first failure that this one knows of, if any; others may know of another one.
    """

    committed: bool
    members: tuple[str, ...]
    failed: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Admitted:
    """Attempt with which a peer that has come back is a member again.

    Parameters
    ----------
    round, attempt
        Round, and number of the first attempt at it.
    members
        Members of the attempt, sorted, this peer among them.
    """

    round: int
    attempt: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class Undecided:
    """Notification that there is no verdict within the timeout.

    Parameters
    ----------
    peers
        Peers on whose reports there is no verdict.
    """

    peers: frozenset[str]


@dataclass(frozen=True)
class Play:
    """Round to play next."""

    round: int


@dataclass(frozen=True)
class Settled:
    """Confirmation that all partners have answered except those that are gone or hang."""


@dataclass(frozen=True)
class Left:
    """Confirmation that the peer has sent its goodbye."""


Answer = (
    Entered
    | Gathered
    | Sent
    | Deliver
    | Missing
    | Collected
    | Convened
    | Totalled
    | Unfinished
    | Concluded
    | Admitted
    | Undecided
    | Play
    | Settled
    | Left
)
"""Answer to a request; each request that expects an answer gets exactly one."""

Effect = Publish | Clear | Subscribe | Flush | Store | Parse | ProcessSum | TakeChange | Forget | WakeAt | Fail | Answer
