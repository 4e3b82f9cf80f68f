"""The bytes of a message, and the tags that prove to each neighbour by itself that a sealed one is the sender's.

    | u8 version | u16 length of head | head, msgpack | data of a chunk |

The head is an array whose first element names the kind of message. Unknown trailing fields are ignored; an unknown
kind or version is refused.

A peer seals once for all neighbours under one key, so each of them could seal in its name. Beside the ciphertext there
is one tag for each neighbour that is to believe it, under a key that only the two ends of that edge know:

    digest = BLAKE3(prefix, message without its data, BLAKE3(data))
    tag    = BLAKE3(digest) keyed by the edge, the direction and both incarnations, 16 bytes

The tag of AES-GCM cannot stand for the message: whoever has the key can compute other ciphertexts with the same tag.
A model's trailer (:mod:`p2pfl.network.protocol.wire.trailer`) covers a whole model, so it does not show which chunk was
forged. Both cover the same hash of the plain data, as a ciphertext differs when a model is sent again.

The receiver decrypts, computes its own tag and looks for it among them before it decodes anything: what an outsider
sends fails in AES-GCM. A tag takes two microseconds, where an Ed25519 signature takes 70 and its verification 150
(``benchmarks/sealing.py``).

References
----------
J. O'Connor, J.-P. Aumasson, S. Neves, Z. Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2020 (keyed mode).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import NamedTuple

import blake3
import msgspec

from p2pfl.core.errors import AuthenticityError, DecodeError, VersionError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import MAX_TAGS, TAG_BYTES
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

STATEMENT = b"s"
"""First byte of what the tag of a statement covers."""

_COUNT = 2

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


class SealedParts(NamedTuple):
    """A sealed message in its parts.

    Attributes
    ----------
    prefix
        The bytes that name its place, in the clear.
    tags
        One for each neighbour that is to believe it, 16 bytes each, in any order.
    ciphertext
        Of the message, with the tag of AES-GCM.
    """

    prefix: bytes
    tags: memoryview
    ciphertext: memoryview


def add_tags(prefix: bytes, digest: bytes, ciphertext: bytes, *, keys: Iterable[bytes]) -> bytes:
    """Return a payload with one tag under each key.

    Parameters
    ----------
    prefix, ciphertext
        As in :class:`SealedParts`.
    digest
        Digest of the sealed message, from :func:`digest_of`.
    keys
        32 bytes for each neighbour, from :func:`p2pfl.privacy.keys.edge_key` with purpose ``auth``.

    Examples
    --------
    >>> digest = digest_of(b"place", b"head", blake3.blake3(b"data").digest())
    >>> payload = add_tags(b"place", digest, b"ciphertext", keys=[bytes(32), bytes([1] * 32)])
    >>> authentic(parts(payload, prefix=5), digest, key=bytes([1] * 32))
    True
    >>> authentic(parts(payload, prefix=5), digest, key=bytes([2] * 32))
    False
    """
    tags = [_tag(digest, key) for key in keys]
    return b"".join((prefix, len(tags).to_bytes(_COUNT, "little"), *tags, ciphertext))


def parts(payload: bytes | bytearray | memoryview, *, prefix: int) -> SealedParts:
    """Split a payload whose prefix has so many bytes.

    Raises
    ------
    AuthenticityError
        The payload is too short for its tags, or carries more than ``MAX_TAGS``.
    """
    view = memoryview(payload)
    start = prefix + _COUNT
    count = int.from_bytes(view[prefix:start], "little")
    end = start + count * TAG_BYTES
    if count > MAX_TAGS or len(view) < end:
        raise AuthenticityError(
            f"a sealed message of {len(view)} bytes claims {count} tags; it must hold all of them, at most {MAX_TAGS}"
        )
    return SealedParts(bytes(view[:prefix]), view[start:end], view[end:])


def authentic(sealed: SealedParts, digest: bytes, *, key: bytes) -> bool:
    """Return whether one of the tags is the one of this digest under this key."""
    return contains(sealed.tags, _tag(digest, key))


def contains(tags: bytes | memoryview, tag: bytes) -> bool:
    """Return whether one of the tags is this one."""
    each = (tags[at : at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES))
    return any(hmac.compare_digest(tag, one) for one in each)


def tag_statement(statement: bytes, *, key: bytes) -> bytes:
    """Return the tag of what a peer states, for one neighbour that others pass it on to.

    Its first byte is that of no sealed payload, so neither tag can pass for the other.

    Examples
    --------
    >>> len(tag_statement(b"complete", key=bytes(32)))
    16
    """
    return _tag(blake3.blake3(STATEMENT + statement).digest(), key)


def digest_of(prefix: bytes, head: bytes | memoryview, data: bytes) -> bytes:
    """Return the hash of a message.

    All prefixes have one length, and a head states its own, so no other message has the same.

    Parameters
    ----------
    prefix
        The bytes that name its place.
    head, data
        The message without its data, and the hash of its data.
    """
    return blake3.blake3(b"".join((prefix, head, data))).digest()


def _tag(digest: bytes, key: bytes) -> bytes:
    return blake3.blake3(digest, key=key).digest(length=TAG_BYTES)
