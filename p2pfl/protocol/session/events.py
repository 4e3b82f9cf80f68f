"""What a session is told: what came, what was carried out, and what the peer asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from p2pfl.privacy.ring import Ring
from p2pfl.protocol.ledgers.masks import Journal
from p2pfl.protocol.ledgers.page import Page, Rows
from p2pfl.protocol.wire.messages import ForOne, Message
from p2pfl.protocol.wire.rows import Encoded, Head
from p2pfl.protocol.wire.trailer import Said
from p2pfl.rows import Rows as Row

Exchange = tuple[int, int]
"""A round, and a gossip step in it."""

Parsed = tuple[Head, Row, Said]
"""A model that came: its head, its numbers ``[P]``, and what its sender signed."""


# ---------------------------------------------------------------------- what came


@dataclass(frozen=True)
class Received:
    """A payload arrived on a topic."""

    topic: str
    data: bytes | memoryview


@dataclass(frozen=True)
class Heard:
    """A message arrived that is authentic and decoded; ``state`` if it is the sender's retained announcement."""

    sender: str
    message: Message
    state: bool = False


@dataclass(frozen=True)
class Tick:
    """Time has passed.

    Parameters
    ----------
    grace
        Seconds within which others whose Last Will came may well be back.
    """

    grace: float = 0.0


@dataclass(frozen=True)
class Connected:
    """The connection was lost and is back: others may have heard the Last Will of this peer."""


# ---------------------------------------------------------------------- what was carried out


@dataclass(frozen=True)
class Subscribed:
    """The broker has confirmed a :class:`~p2pfl.protocol.session.effects.Subscribe` that asked for a receipt."""

    receipt: str


@dataclass(frozen=True)
class Published:
    """The broker has confirmed a :class:`~p2pfl.protocol.session.effects.Publish` that asked for a receipt."""

    receipt: str


@dataclass(frozen=True)
class Flushed:
    """All that was to be published is."""


@dataclass(frozen=True)
class Stored:
    """What must not be forgotten is on the disk, see :class:`~p2pfl.protocol.session.effects.Store`."""


@dataclass(frozen=True)
class Read:
    """Models were read, see :class:`~p2pfl.protocol.session.effects.Parse`; ``None`` stands for one that is none."""

    sender: str
    phase: int
    models: tuple[Parsed | None, ...]
    head: int | None


@dataclass(frozen=True)
class Summed:
    """A message of a secure sum was taken.

    Parameters
    ----------
    sender
        Of the message.
    answers
        What is to be published, and to whom; ``None`` if the message was refused.
    lied
        Whether the sender has signed two different statements.
    """

    sender: str
    kind: str
    answers: tuple[tuple[str, ForOne], ...] | None
    lied: bool = False


# ---------------------------------------------------------------------- what the peer asks for


@dataclass(frozen=True)
class Enter:
    """Join the swarm: subscribe, make sure that the name is free, announce this peer; answered by ``Entered``.

    Parameters
    ----------
    limit
        Bytes of the largest payload that the channel takes.
    grace
        As of :class:`Tick`.
    """

    limit: int
    grace: float = 0.0


@dataclass(frozen=True)
class Gather:
    """Wait for the neighbours; answered by ``Gathered``.

    Parameters
    ----------
    quorum
        Share of the neighbours without which the peer does not begin.
    within
        Seconds.
    """

    quorum: float
    within: float


@dataclass(frozen=True)
class Resume:
    """Go on with the ledgers of a checkpoint: what is not in them and before ``round`` will never be applied."""

    page: Page
    rows: Rows
    round: int
    journal: Journal | None


@dataclass(frozen=True)
class Begin:
    """Take part from this round on."""

    first: int


@dataclass(frozen=True)
class Tolerate:
    """Decide from now on who is waited for.

    Parameters
    ----------
    quantile
        Of the neighbours' times, beyond which a slow one is left behind; 1 leaves nobody behind. Without it all must
        hear all: nobody is suspected either.
    """

    quantile: float | None


@dataclass(frozen=True)
class Turn:
    """Begin to train for a round."""

    round: int


@dataclass(frozen=True)
class Open:
    """Begin a gossip step, with the neighbours whose models are wanted in it, in turn.

    Parameters
    ----------
    since
        Only neighbours that took part in this round already are waited for.
    """

    exchange: Exchange
    senders: tuple[str, ...]
    since: int


@dataclass(frozen=True)
class Offer:
    """Send the model of the present gossip step; answered by ``Sent`` once the one before is on its way.

    Parameters
    ----------
    model
        Encoded.
    phase
        Of the schedule, whose listeners get it.
    masked
        Whether it is a release on the grid of masks, so that partners are told which masks are in it.
    newest
        Whether it is left out where the one before is not on its way yet.
    """

    model: Encoded
    phase: int
    masked: bool = False
    newest: bool = False


@dataclass(frozen=True)
class Expect:
    """Wait for a neighbour's model of the present gossip step; answered by ``Deliver`` or ``Missing``.

    Parameters
    ----------
    keep
        Whether only to look at it, so that it can be expected again.
    """

    sender: str
    keep: bool = False


@dataclass(frozen=True)
class Collect:
    """Take the newest model of each neighbour that came; answered by ``Collected`` at once."""


@dataclass(frozen=True)
class Reject:
    """Count a model as missing that was delivered and cannot be used."""

    sender: str
    fault: str


@dataclass(frozen=True)
class Close:
    """End the present gossip step."""


@dataclass(frozen=True)
class Convene:
    """Find out who takes part in the totals of a round; answered by ``Convened`` or ``Unfinished``.

    Where the last attempt at this round has failed, this begins the next one.

    Parameters
    ----------
    round
        As of :class:`p2pfl.privacy.totals.Slot`.
    """

    round: int


@dataclass(frozen=True)
class Contribute:
    """Add to the next total of the attempt; answered by ``Totalled`` or ``Unfinished``.

    Parameters
    ----------
    values
        Masked contribution, ``[K]`` in the ring.
    """

    values: Ring


@dataclass(frozen=True)
class Continue:
    """Choose the round to play after this one; answered by ``Play`` at once.

    Parameters
    ----------
    apart
        Rounds that neighbours may be ahead although they wait for this peer.
    last
        Of the run, which everybody plays.
    """

    apart: int
    last: int


@dataclass(frozen=True)
class Finish:
    """Promise that nothing follows in one ledger, and wait until all partners have; answered by ``Settled``."""

    ledger: Literal["masks", "flows"]


@dataclass(frozen=True)
class Compare:
    """Send an account to partners, and wait for theirs; answered by ``Settled``."""

    partners: frozenset[str]


@dataclass(frozen=True)
class Stop:
    """Promise that nothing follows in both ledgers, without waiting for anybody; answered by ``Settled``."""


@dataclass(frozen=True)
class Missed:
    """Find out which neighbours are gone without a goodbye; answered by ``Vanished``.

    Parameters
    ----------
    peers
        Whose models were missing last.
    """

    peers: frozenset[str]


@dataclass(frozen=True)
class Leave:
    """Wait until what was sent has arrived, and say goodbye; answered by ``Left``.

    Parameters
    ----------
    done
        Whether all rounds were played.
    until
        When to leave although not all of it has arrived.
    """

    done: bool
    until: float


Request = (
    Enter
    | Gather
    | Resume
    | Begin
    | Tolerate
    | Turn
    | Open
    | Offer
    | Expect
    | Collect
    | Reject
    | Close
    | Convene
    | Contribute
    | Continue
    | Finish
    | Compare
    | Stop
    | Missed
    | Leave
)
"""What the peer asks for."""

Arrival = Received | Heard | Read | Summed
"""What came."""

Outcome = Tick | Connected | Subscribed | Published | Flushed | Stored
"""What was carried out, and the time."""

Event = Arrival | Outcome | Request
