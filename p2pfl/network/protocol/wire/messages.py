"""Messages of peers; :mod:`p2pfl.network.protocol.wire.wire_codec` encodes them.

Rules for change: fields are only ever appended, with a default; a field is never retyped. Each has a finite bound, see
:mod:`p2pfl.network.protocol.wire.bounds`.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import blake3
import msgspec

from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import FACTS, MAX_ENTRIES, Key32, Name
from p2pfl.network.protocol.wire.sum_messages import OfSums
from p2pfl.network.protocol.wire.total_messages import Abort, Again, Here, OfTotals, Subtotal
from p2pfl.network.protocol.wire.verdict_messages import OfVerdicts
from p2pfl.privacy.keys import Announced, Identity, verify

Status = Literal["up", "left", "dead"]

FRAME = 1024
"""Bytes of every message of telemetry before it is sealed."""

ENTRIES = 64
"""Largest number of entries in a message of telemetry."""


class Announcement(msgspec.Struct, frozen=True, array_like=True, tag="hello", dict=True):
    """Name, keys and status of a peer; retained, and planted as the Last Will.

    Attributes
    ----------
    peer, incarnation
        Its name, and a number that grows with each incarnation of a peer of that name.
    status
        ``up``; ``left`` after a goodbye; ``dead`` when the broker lost it.
    facts
        Facts that neighbours must agree on, each as text.
    key
        The public X25519 key of this incarnation, 32 bytes.
    identity, signature
        The public Ed25519 key of the peer, and what it signs: everything else here, in this swarm. Of an announcement
        that came, the bytes are verified as they came, with fields that only a later version knows.
    answers
        The key of the :class:`Claim` to its name that it contradicts.
    rounds
        With which it can go on, of one that was stopped.
    attempt
        Of its masks, if it goes back to a round with others.
    turn
        Number of its returns in this incarnation after the broker had declared it dead.
    done
        Of a goodbye, whether all rounds have been played: who is still in the last of them has all that it needs.
    version
        The release of p2pfl that the peer runs; any text, so it must be escaped where it is printed.
    nonce
        16 bytes that this incarnation drew: keys of an edge name those of both ends, see
        :mod:`p2pfl.privacy.keys.exchange`.
    """

    peer: Name
    incarnation: bounds.Incarnation
    status: Status
    facts: Annotated[dict[bounds.Fact, bounds.Text], msgspec.Meta(max_length=FACTS)] = {}
    key: bounds.Key = b""
    identity: bounds.Key = b""
    signature: bounds.Signature = b""
    answers: bounds.Key = b""
    rounds: Annotated[list[bounds.Round], msgspec.Meta(max_length=4)] = []
    attempt: bounds.Attempt = 0
    turn: bounds.Number = 0
    done: bool = False
    version: Annotated[str, msgspec.Meta(max_length=32)] = ""
    nonce: Annotated[bytes, msgspec.Meta(max_length=16)] = b""

    @property
    def announced(self) -> Announced:
        """The end of an epoch that this incarnation is."""
        return Announced(self.peer, self.incarnation, self.nonce)

    def sign(self, identity: Identity, *, swarm: str) -> Announcement:
        """Return the announcement with a signature."""
        named = msgspec.structs.replace(self, identity=identity.public, signature=b"")
        return msgspec.structs.replace(named, signature=identity.sign(named.signable(swarm), domain="hello"))

    def authentic(self, *, swarm: str) -> bool:
        """Return whether the owner of ``identity`` signed this for this swarm."""
        return verify(self.identity, self.signable(swarm), self.signature, domain="hello")

    def signable(self, swarm: str) -> bytes:
        """Return the signed bytes: the swarm, and the message without its signature."""
        head = vars(self).get("head") or _encoder.encode(self)
        fields = _fields.decode(head)
        index = 1 + self.__struct_fields__.index("signature")  # after the kind of message
        fields[index:] = [_UNSIGNED, *fields[index + 1 :]] if len(fields) > index else []
        return swarm.encode() + b"/" + _encoder.encode(fields)

    def came(self, head: bytes) -> Announcement:
        """Return the announcement with the bytes that it was read from; a changed copy drops them."""
        vars(self)["head"] = head
        return self


class Key(msgspec.Struct, frozen=True, array_like=True, tag="key"):
    """A peer's sender key for one neighbour, see :mod:`p2pfl.network.protocol.wire.envelope`.

    Attributes
    ----------
    incarnation
        Of the sender.
    wrapped
        The key, under one of their edge.
    have, known
        True if the sender has the neighbour's own, and knows that the neighbour has its.
    """

    incarnation: bounds.Incarnation
    wrapped: bounds.Wrapped
    have: bool
    known: bool


class Claim(msgspec.Struct, frozen=True, array_like=True, tag="claim"):
    """Message to the peer's own inbox that asks any other peer of this name to answer.

    Padding may follow, up to the length of the longest message: some brokers drop larger messages without an error,
    and then the claim does not come back.

    Attributes
    ----------
    incarnation, key
        Of the sender; nobody knew the key before, so that an answer to it is new.
    """

    incarnation: bounds.Incarnation
    key: bounds.Key = b""


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """The total of a slot, in short: neighbours that were given different totals notice.

    Attributes
    ----------
    round, attempt, number
        As of :class:`Subtotal`.
    digest
        SHA-256 of slot and total.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    digest: Key32


class Pulse(msgspec.Struct, frozen=True, array_like=True, tag="pulse"):
    """A heartbeat: how far the sender's stream reaches and what it is doing.

    Attributes
    ----------
    incarnation, phase
        Of the stream.
    tail, head
        Chunks ``tail <= sequence < head`` have been sent and are still held.
    round, step
        The gossip step the sender is in.
    waiting
        True if it waits for neighbours, rather than learns.
    first
        The first round that it takes part in, in this incarnation; ``None`` until it knows.
    total
        The last total that it was given; ``None`` before the first.
    work
        Processor time that its computations have used, in tenths of seconds: it grows while the sender computes.
    pause
        Seconds until it begins its next round, in the pause between two rounds; 0 outside of one.
    """

    incarnation: bounds.Incarnation
    phase: bounds.Phase
    tail: bounds.Sequence
    head: bounds.Sequence
    round: bounds.Round = 0
    step: bounds.Step = 0
    waiting: bool = False
    first: bounds.Round | None = None
    total: Digest | None = None
    work: bounds.Number = 0
    pause: bounds.Number = 0


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="ack"):
    """A listener's word to a sender: what arrived, and how far it may go on.

    Attributes
    ----------
    incarnation, phase
        Of the stream that is acknowledged.
    next
        Every chunk below it has arrived.
    limit
        Chunks below it may be sent: the credit.
    missing
        Chunks at or above ``next`` to be sent again.
    """

    incarnation: bounds.Incarnation
    phase: bounds.Phase
    next: bounds.Sequence
    limit: bounds.Sequence
    missing: Annotated[list[bounds.Sequence], msgspec.Meta(max_length=1024)] = []


Place = Annotated[tuple[bounds.Coordinate, ...], msgspec.Meta(max_length=4)]
Places = Annotated[tuple[Place, ...], msgspec.Meta(max_length=MAX_ENTRIES)]


class FlowStatement(msgspec.Struct, frozen=True, array_like=True):
    """Statement of the ledger of flows for one partner, in every account.

    Attributes
    ----------
    since, closed
        Of the gossip steps from ``since`` to before ``closed``, those in neither set will never be applied.
    applied
        From ``since`` on, in the row and in its checkpoint.
    pending
        Likewise in the row, but a crash would lose it.
    settled
        First gossip step of which the sender still needs statements.
    """

    since: Place
    closed: Place
    applied: Places
    pending: Places
    settled: Place

    def excludes(self, gossip_step: tuple[int, ...]) -> bool:
        """Return whether the sender will never apply a gossip step."""
        return self.since <= gossip_step < self.closed and gossip_step not in (*self.applied, *self.pending)


Names = Annotated[list[Name], msgspec.Meta(max_length=MAX_ENTRIES)]


class Account(msgspec.Struct, frozen=True, array_like=True, tag="account"):
    """Statements of the models that a peer has applied; the tags of its envelope prove the sender.

    Attributes
    ----------
    incarnation, number
        Of the sender's incarnation, and of the account in it.
    flows
        Statements and the neighbours that each is for; the last names none and is for all others.
    over
        True if the sender promises to release nothing more.
    incarnations
        Of which incarnation of each partner the flows are: another than the present one does not believe them.
    """

    incarnation: bounds.Incarnation
    number: bounds.Number
    flows: Annotated[list[tuple[FlowStatement, Names]], msgspec.Meta(max_length=MAX_ENTRIES)] = []
    over: bool = False
    incarnations: Annotated[dict[Name, bounds.Incarnation], msgspec.Meta(max_length=MAX_ENTRIES)] = {}


class Chunk(bounds.WithData, frozen=True, tag="chunk", dict=True):
    """A piece of a message in a peer's stream.

    Attributes
    ----------
    incarnation, phase, sequence
        Of the stream, and the place in it.
    first
        Sequence of the message's first chunk, which names the message.
    offset, total
        Offset of the piece in the message, and length of the message, in bytes.
    trailer
        Of the message, beside its last piece, see :mod:`p2pfl.network.protocol.wire.trailer`.
    data
        A view: into the row when it is sent, into the payload when it has arrived.
    """

    incarnation: bounds.Incarnation
    phase: bounds.Phase
    sequence: bounds.Sequence
    first: bounds.Sequence
    offset: bounds.Size
    total: bounds.Size
    trailer: bounds.Signature = b""
    data: bounds.Data = bounds.NO_DATA

    @cached_property
    def digest(self) -> bytes:
        """BLAKE3 of the data for tags and trailer; who has computed it sets it, and a changed copy drops it."""
        return blake3.blake3(self.data).digest()


Challenge = Annotated[bytes, msgspec.Meta(max_length=16)]
Entry = tuple[Annotated[float, msgspec.Meta(ge=0.0, le=2.0**32)], Annotated[bytes, msgspec.Meta(max_length=FRAME)]]


class Look(msgspec.Struct, frozen=True, array_like=True, tag="look"):
    """From an observer: it still looks, because it repeats the last challenge of the peer."""

    challenge: Challenge


class Telemetry(bounds.WithData, frozen=True, tag="telemetry"):
    """From a peer to one observer: what it has done.

    Attributes
    ----------
    challenge
        Random bytes; a :class:`Look` that repeats them is fresh.
    dropped
        Number of entries so far that did not fit.
    entries
        Age in seconds, and bytes, of each entry that is new.
    data
        Padding, so that the size reveals nothing.
    """

    challenge: Challenge
    dropped: bounds.Number = 0
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=ENTRIES)] = ()
    data: bounds.Data = bounds.NO_DATA


class ChangeRelay(bounds.WithData, frozen=True, tag="change"):
    """From a peer to a neighbour: the change of the swarm that it holds, which the operator has signed.

    Only peers whose roster names an operator send it, and only once there is a change.

    Attributes
    ----------
    digest
        SHA-256 of the change.
    data
        The change; empty if the neighbour has it.
    """

    digest: Key32
    data: bounds.Data = bounds.NO_DATA


ForOne = OfSums | Here | Subtotal | Again | Abort | Look | Telemetry | ChangeRelay
"""Message that is sealed for one neighbour alone."""

Plain = Announcement | Key | Claim
"""Message that is not sealed, because it is signed, wrapped, or sent to the own inbox."""

Message = Plain | Pulse | Ack | Account | Chunk | OfSums | OfTotals | OfVerdicts | Look | Telemetry | ChangeRelay

_encoder = msgspec.msgpack.Encoder()
_fields = msgspec.msgpack.Decoder(list[msgspec.Raw])
_UNSIGNED = msgspec.Raw(_encoder.encode(b""))


def mark_of(announcement: Announcement) -> bytes:
    """Return the 16 bytes that name an incarnation among those of a peer, see :class:`p2pfl.privacy.keys.Announced`.

    Examples
    --------
    >>> mark_of(Announcement("ada", 1, "up")) == mark_of(Announcement("ada", 2, "up"))
    False
    """
    return _mark(announcement.peer, announcement.incarnation, announcement.nonce)


@lru_cache(maxsize=4096)  # a peer that waits for a total asks for it at each message
def _mark(peer: str, incarnation: int, nonce: bytes) -> bytes:
    return hashlib.sha256(f"p2pfl/v1/participant/{peer}/{incarnation}/{nonce.hex()}".encode()).digest()[:16]
