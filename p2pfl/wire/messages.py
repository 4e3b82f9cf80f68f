"""What peers say to each other, as msgpack.

Every payload is one version byte followed by one msgpack array whose first element names the kind
of message. Rules for change: fields are only ever appended, with a default; a field is never
retyped; unknown trailing fields are ignored; an unknown kind or version is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from p2pfl.errors import DecodeError

VERSION = 1
"""The first byte of every payload."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,22}$")]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Who a peer is and whether it lives; retained, and planted as the Last Will.

    Attributes
    ----------
    peer, incarnation
        Its name, and a number that grows with each life of a peer of that name.
    status
        ``up``; ``left`` after a goodbye; ``dead`` when the broker lost it.
    facts
        What neighbours must agree on, each as text.
    key
        The public X25519 key of this life, 32 bytes; empty where no masks are used.
    """

    peer: Name
    incarnation: Count
    status: Literal["up", "left", "dead"]
    facts: dict[str, str] = {}
    key: Annotated[bytes, msgspec.Meta(max_length=32)] = b""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag="claim"):
    """Sent to one's own inbox: whoever bears this name already should speak up."""

    incarnation: Count


class Pulse(msgspec.Struct, frozen=True, array_like=True, tag="pulse"):
    """A heartbeat: how far the sender's stream reaches and what it is doing.

    Attributes
    ----------
    incarnation, phase
        Of the stream.
    tail, head
        Chunks ``tail <= sequence < head`` have been sent and are still held.
    round, step
        The exchange the sender is in.
    waiting
        Whether it waits for neighbours, rather than learns.
    """

    incarnation: Count
    phase: Count
    tail: Count
    head: Count
    round: Count = 0
    step: Count = 0
    waiting: bool = False


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

    incarnation: Count
    phase: Count
    next: Count
    limit: Count
    missing: Annotated[list[Count], msgspec.Meta(max_length=1024)] = []


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """A piece of a message in a peer's stream.

    Attributes
    ----------
    incarnation, phase, sequence
        Of the stream, and the place in it.
    first
        Sequence of the message's first chunk, which names the message.
    offset, total
        Where the piece lies in the message, and the message's length, in bytes.
    data
        A view into the received payload; nothing is copied.
    """

    incarnation: Count
    phase: Count
    sequence: Count
    first: Count
    offset: Count
    total: Count
    data: memoryview


Message = Hello | Claim | Pulse | Ack | Chunk

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytearray:
    """Version byte and msgpack of one message.

    Examples
    --------
    >>> decode(encode(Claim(7)))
    Claim(incarnation=7)
    """
    payload = bytearray((VERSION,))
    _encoder.encode_into(message, payload, 1)
    return payload


def decode(payload: bytes | bytearray | memoryview) -> Message:
    """Read one message.

    Raises
    ------
    DecodeError
        And nothing else, whatever the bytes are.
    """
    view = memoryview(payload)
    if len(view) == 0:
        raise DecodeError("expected a message, got an empty payload")
    if view[0] != VERSION:
        raise DecodeError(
            f"expected protocol version {VERSION}, got {view[0]}: install the same version of p2pfl everywhere"
        )
    try:
        message: Message = _decoder.decode(view[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"expected a message of protocol version {VERSION}, got other bytes: {error}") from None
    return message
