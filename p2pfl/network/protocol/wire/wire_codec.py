"""The bytes of a message.

    | u8 version | u16 length of head | head, msgpack | data of a chunk |

The head is an array whose first element names the kind of message. Unknown trailing fields are ignored; an unknown
kind or version is refused.
"""

from __future__ import annotations

import msgspec

from p2pfl.core.errors import DecodeError, VersionError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.messages import Announcement, Claim, Message, Plain

VERSION = 19
"""The first byte of every payload that is not sealed.

It grows with every change of the format, and never to a number that :mod:`p2pfl.network.protocol.wire.envelope` uses or
has used.
"""

PREFIX = 3
"""Bytes before the head."""

HEAD = 2**16
"""Upper bound of the bytes of a message without its data."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)
_plain = msgspec.msgpack.Decoder(Plain)


def encode(message: Message) -> bytes:
    """Return the payload of one message; the data of a chunk are copied once.

    Examples
    --------
    >>> decode(encode(Claim(7)))
    Claim(incarnation=7, key=b'')
    """
    return b"".join(encode_parts(message))


def encode_parts(message: Message) -> tuple[bytes, memoryview]:
    """Return the bytes of a message before its data, and its data, which are not copied.

    Examples
    --------
    >>> encode_parts(Claim(7)) == split(encode(Claim(7)))
    True
    """
    if isinstance(message, bounds.WithData):
        *fields, data = msgspec.structs.astuple(message)
        head = _encoder.encode((message.__struct_config__.tag, *fields))
        return _prefix(head) + head, data
    head = _encoder.encode(message)
    return _prefix(head) + head, bounds.NO_DATA


def split(payload: bytes | bytearray | memoryview) -> tuple[memoryview, memoryview]:
    """Return the bytes of a message before its data, and its data, before anything is decoded."""
    view = memoryview(payload)
    end = PREFIX + int.from_bytes(view[1:PREFIX], "little")
    return view[:end], view[end:]


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
    before, data = split(view)
    try:
        head: Message = (_plain if plain else _decoder).decode(before[PREFIX:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"the bytes are no message of protocol version {VERSION}: {error}") from None
    if isinstance(head, bounds.WithData):
        return msgspec.structs.replace(head, data=data)
    if len(data) and not isinstance(head, Claim):
        raise DecodeError(f"{len(data)} bytes follow the end of a {type(head).__name__}")
    return head.came(bytes(before[PREFIX:])) if isinstance(head, Announcement) else head


def _prefix(head: bytes) -> bytes:
    if len(head) >= HEAD:
        raise ValueError(f"the head has {len(head)} bytes, and it must be shorter than 64 KiB")
    return VERSION.to_bytes(1, "little") + len(head).to_bytes(2, "little")
