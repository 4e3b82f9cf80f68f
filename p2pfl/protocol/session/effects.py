"""What a session decides, for the shell to carry out; answers go to whoever asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from p2pfl.errors import DecodeError, P2PFLError, PeerError
from p2pfl.privacy.ring import Ring
from p2pfl.protocol.mailbox import Delivery
from p2pfl.protocol.session.events import Parsed, Read
from p2pfl.protocol.wire.messages import ForOne, Message
from p2pfl.protocol.wire.rows import read_row
from p2pfl.protocol.wire.trailer import Trailer

SLOW = 2**20
"""Bytes of a model from which it is read in a thread, and of a sum from which it is unmasked in one."""

Reason = Literal["not expected", "gone", "no edge", "overtaken", "timeout"]
"""Why a model is missing: its sender does not play this round, went, is no neighbour any more, sent a later one, or is
silent or slow for too long."""


# ---------------------------------------------------------------------- to the broker


@dataclass(frozen=True)
class Publish:
    """Publish a message.

    Parameters
    ----------
    place
        Below one's own name, or a neighbour's inbox, ``in/{neighbour}``.
    message
        Not sealed yet.
    retain
        Whether the broker keeps it; such messages are published one after another.
    receipt
        If not empty, a ``Published`` with it follows.
    size
        Bytes to which it is padded.
    """

    place: str
    message: Message
    retain: bool = False
    receipt: str = ""
    size: int = 0


@dataclass(frozen=True)
class Clear:
    """Remove one's own retained announcement; a ``Published`` with the receipt follows."""

    receipt: str


@dataclass(frozen=True)
class Subscribe:
    """Subscribe to places below the swarm's root; if there is a receipt, a ``Subscribed`` with it follows."""

    places: tuple[str, ...]
    receipt: str = ""


@dataclass(frozen=True)
class Unsubscribe:
    """Unsubscribe from places below the swarm's root."""

    places: tuple[str, ...]


@dataclass(frozen=True)
class Flush:
    """Wait until all that was to be published is; a ``Flushed`` follows."""


# ---------------------------------------------------------------------- to the disk, threads and the clock


@dataclass(frozen=True)
class Store:
    """Write down what must not be forgotten before anything of it leaves; a ``Stored`` follows."""


@dataclass(frozen=True)
class Parse:
    """Read models that are large; a ``Read`` follows before anything else that came is told to the session.

    Parameters
    ----------
    sender, phase
        Whose stream they came by.
    messages
        As they came.
    trailer, largest
        How they must end, and bytes of the largest.
    head
        Of a heartbeat's stream that is to be acknowledged; ``None`` after a chunk.
    """

    sender: str
    phase: int
    messages: tuple[memoryview, ...]
    trailer: Trailer
    largest: int
    head: int | None

    @property
    def slow(self) -> bool:
        """Whether it takes so long that the loop must not wait for it."""
        return any(len(message) > SLOW for message in self.messages)

    def result(self) -> Read:
        """Read them."""
        return Read(self.sender, self.phase, tuple(map(self._one, self.messages)), self.head)

    def _one(self, message: memoryview) -> Parsed | None:
        try:
            return read_row(message, trailer=self.trailer, largest=self.largest)
        except DecodeError:
            return None


@dataclass(frozen=True)
class Sum:
    """Take a neighbour's message of a secure sum; a ``Summed`` follows before anything else that came."""

    sender: str
    message: ForOne


@dataclass(frozen=True)
class Forget:
    """A neighbour began a new incarnation: sums that were begun with the former one do not go on."""

    peer: str


@dataclass(frozen=True)
class WakeAt:
    """Tell the session the time no later than this, on its clock."""

    when: float


@dataclass(frozen=True)
class Fail:
    """The peer cannot go on."""

    error: P2PFLError


# ---------------------------------------------------------------------- answers


@dataclass(frozen=True)
class Entered:
    """The peer is announced."""


@dataclass(frozen=True)
class Gathered:
    """The neighbours are there, or as many as the quorum asks for; or why not."""

    error: PeerError | None = None


@dataclass(frozen=True)
class Sent:
    """The model is on its way."""


@dataclass(frozen=True)
class Deliver:
    """A neighbour's model of the present gossip step came."""

    sender: str
    model: Delivery


@dataclass(frozen=True)
class Missing:
    """A neighbour's model of the present gossip step will not come, or is not waited for any more."""

    sender: str
    reason: Reason


@dataclass(frozen=True)
class Collected:
    """The newest models, by neighbour."""

    models: dict[str, Delivery]


@dataclass(frozen=True)
class Convened:
    """The participants of a round's totals are agreed.

    Parameters
    ----------
    peers
        Their names, sorted.
    attempt
        How often the round was begun again.
    """

    peers: tuple[str, ...]
    attempt: int


@dataclass(frozen=True)
class Totalled:
    """The total is there.

    Parameters
    ----------
    values
        ``[K]`` in the ring.
    """

    values: Ring


@dataclass(frozen=True)
class Unfinished:
    """An attempt at a round's totals has failed, here or elsewhere.

    Parameters
    ----------
    lost
        Peers because of which attempts have failed.
    """

    lost: frozenset[str]


@dataclass(frozen=True)
class Play:
    """Play this round next."""

    round: int


@dataclass(frozen=True)
class Settled:
    """All partners have answered but those that are gone or hang."""


@dataclass(frozen=True)
class Vanished:
    """These neighbours are gone without a goodbye."""

    peers: frozenset[str]


@dataclass(frozen=True)
class Left:
    """The peer has said goodbye."""


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
    | Play
    | Settled
    | Vanished
    | Left
)
"""What a request comes to; each request that has one is answered by exactly one."""

Effect = Publish | Clear | Subscribe | Unsubscribe | Flush | Store | Parse | Sum | Forget | WakeAt | Fail | Answer
