"""The bytes of a message.

    | u8 version | u16 length of head | head, msgpack | data of a chunk |

The head is an array whose first element names the kind of message. Unknown trailing fields are ignored; an unknown
kind or version is refused.
"""

from __future__ import annotations

import msgspec

from p2pfl.core.errors import DecodeError, VersionError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.messages import Account, Ack, Announcement, Chunk, Claim, Key, Message, Plain, Pulse
from p2pfl.network.protocol.wire.sum_messages import Agreements, ParticipantsConfirmed, RollCall, Term, Unmasking
from p2pfl.network.protocol.wire.total_messages import Abort, Again, AgreedParticipants, Here, Subtotal, Total
from p2pfl.network.protocol.wire.verdict_messages import (
    Contradiction,
    Copy,
    DecisionMessage,
    Halves,
    PrepareMessage,
    PromiseMessage,
    ProposalMessage,
    Votes,
    Wanted,
)

VERSION = 13
"""The first byte of every payload that is not sealed.

It grows with every change of the format, and never to a number that :mod:`p2pfl.network.protocol.wire.envelope` uses or
has used.
"""

PREFIX = 3
"""Bytes before the head."""

HEAD = 2**16
"""Upper bound of the bytes of a message without its data."""


class _TermHead(msgspec.Struct, frozen=True, array_like=True, tag="term"):
    """Part of a :class:`Term` that is encoded as msgpack; its data follow unchanged."""

    round: bounds.Round
    step: bounds.Step
    offset: bounds.Size
    total: bounds.Size
    mass: bounds.Weight | None = None


class _SubtotalHead(msgspec.Struct, frozen=True, array_like=True, tag="subtotal"):
    """Part of a :class:`Subtotal` that is encoded as msgpack; its data follow unchanged."""

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    offset: bounds.Size
    total: bounds.Size


class _TotalHead(msgspec.Struct, frozen=True, array_like=True, tag="total"):
    """Part of a :class:`Total` that is encoded as msgpack; its data follow unchanged."""

    round: bounds.Round
    attempt: bounds.Attempt
    number: bounds.Number
    offset: bounds.Size
    total: bounds.Size
    digest: bounds.Key = b""


class _CopyHead(msgspec.Struct, frozen=True, array_like=True, tag="copy"):
    """Part of a :class:`Copy` that is encoded as msgpack; its data follow unchanged."""

    peer: bounds.Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    digest: bounds.Key
    offset: bounds.Size
    total: bounds.Size


class _ChunkHead(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """Part of a :class:`Chunk` that is encoded as msgpack; its data follow unchanged."""

    incarnation: bounds.Incarnation
    phase: bounds.Phase
    sequence: bounds.Sequence
    first: bounds.Sequence
    offset: bounds.Size
    total: bounds.Size


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    Announcement
    | Key
    | Claim
    | Pulse
    | Ack
    | Account
    | RollCall
    | ParticipantsConfirmed
    | Agreements
    | Unmasking
    | Here
    | AgreedParticipants
    | Again
    | Abort
    | Votes
    | PrepareMessage
    | PromiseMessage
    | ProposalMessage
    | DecisionMessage
    | Halves
    | Contradiction
    | Wanted
    | _ChunkHead
    | _TermHead
    | _SubtotalHead
    | _TotalHead
    | _CopyHead
)
_WithData = _ChunkHead | _TermHead | _SubtotalHead | _TotalHead | _CopyHead
_plain = msgspec.msgpack.Decoder(Plain)


def encode(message: Message) -> bytes:
    """Return the payload of one message; the data of a chunk are copied once.

    Examples
    --------
    >>> decode(encode(Claim(7)))
    Claim(incarnation=7, key=b'')
    """
    if isinstance(message, Chunk | Term | Subtotal | Total | Copy):
        head = _encoder.encode(_head_of(message))
        return b"".join((_prefix(head), head, message.data))
    head = _encoder.encode(message)
    return _prefix(head) + head


def decode(payload: bytes | bytearray | memoryview, *, plain: bool = False) -> Message:
    """Read one message.

    Parameters
    ----------
    payload
        As it came.
    plain
        True if only what nobody seals is read; of anything else the kind is looked at and nothing that follows.

    Raises
    ------
    DecodeError
        The bytes are no message; nothing else is raised.
    """
    view = memoryview(payload)
    if len(view) < PREFIX:
        raise DecodeError(f"{len(view)} bytes are too few for a message")
    if view[0] != VERSION:
        raise VersionError(theirs=view[0], ours=VERSION)
    end = PREFIX + int.from_bytes(view[1:PREFIX], "little")
    try:
        head = (_plain if plain else _decoder).decode(view[PREFIX:end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"the bytes are no message of protocol version {VERSION}: {error}") from None
    if isinstance(head, _WithData):
        return _with_data(head, view[end:])
    if len(view) > end and not isinstance(head, Claim):
        raise DecodeError(f"{len(view) - end} bytes follow the end of a {type(head).__name__}")
    message: Message = head.came(bytes(view[PREFIX:end])) if isinstance(head, Announcement) else head
    return message


def _head_of(message: Chunk | Term | Subtotal | Total | Copy) -> _WithData:
    """Return what travels as msgpack of a message with data."""
    m = message
    match m:
        case Chunk():
            return _ChunkHead(m.incarnation, m.phase, m.sequence, m.first, m.offset, m.total)
        case Term():
            return _TermHead(m.round, m.step, m.offset, m.total, mass=m.mass)
        case Subtotal():
            return _SubtotalHead(m.round, m.attempt, m.number, m.offset, m.total)
        case Total():
            return _TotalHead(m.round, m.attempt, m.number, m.offset, m.total, m.digest)
        case Copy():
            return _CopyHead(m.peer, m.incarnation, m.round, m.digest, m.offset, m.total)


def _with_data(head: _WithData, data: memoryview) -> Message:
    """Return the message of a head and the data that follow it."""
    h = head
    match h:
        case _ChunkHead():
            return Chunk(h.incarnation, h.phase, h.sequence, h.first, h.offset, h.total, data)
        case _TermHead():
            return Term(h.round, h.step, h.offset, h.total, h.mass, data)
        case _SubtotalHead():
            return Subtotal(h.round, h.attempt, h.number, h.offset, h.total, data)
        case _TotalHead():
            return Total(h.round, h.attempt, h.number, h.offset, h.total, h.digest, data)
        case _CopyHead():
            return Copy(h.peer, h.incarnation, h.round, h.digest, h.offset, h.total, data)


def _prefix(head: bytes) -> bytes:
    if len(head) >= HEAD:
        raise ValueError(f"the head has {len(head)} bytes, and it must be shorter than 64 KiB")
    return VERSION.to_bytes(1, "little") + len(head).to_bytes(2, "little")
