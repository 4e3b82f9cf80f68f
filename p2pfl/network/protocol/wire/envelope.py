"""Envelope that seals a peer's messages for its neighbours: the broker and outsiders see names, sizes and times.

    | u8 5 | u32 stream | u64 sequence | u16 tags | tag of each neighbour | AES-256-GCM(sender key, message) |

The sender key of a peer's incarnation is handed to each neighbour over their own edge. All of them hold it, so each
neighbour believes only what carries a tag under a key of its own edge, see
:mod:`p2pfl.network.protocol.wire.wire_codec`. Nothing is stored before that. What is for one neighbour alone is sealed
under a key of their edge, both incarnations and the direction, with a number that counts up:

    | u8 6 | u64 number | AES-256-GCM(key of the edge, message) |

Nothing that is not sealed by a neighbour reaches a decoder beyond these first bytes, except announcements (signed),
claims to one's own name, and the handing over of keys itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import blake3

from p2pfl.core.errors import AuthenticityError, DecodeError, InputError, PrivacyError
from p2pfl.network.protocol.wire.bounds import MAX_TAGS, TAG_BYTES
from p2pfl.network.protocol.wire.messages import Announcement, Chunk, ForOne, Key, Message
from p2pfl.network.protocol.wire.wire_codec import (
    add_tags,
    authentic,
    contains,
    decode,
    digest_of,
    encode,
    encode_parts,
    parts,
    split,
    tag_statement,
)
from p2pfl.privacy.keys import (
    Announced,
    ExchangeKey,
    SenderKey,
    edge_key,
    edge_secret,
    epoch_of,
    epoch_secret,
    unwrap,
    wrap,
)

SEALED = 5
"""The first byte of a sealed payload; plain ones begin with their protocol version, and 2 had no tags."""

PRIVATE = 6
"""The first byte of a payload that is sealed for one neighbour alone."""

CONTROL = 2**32 - 1
"""The stream of everything but chunks, whose stream is their phase."""

OVERHEAD = 13 + 2 + 16
"""Bytes of a sealed payload beside the message and the tags."""

MAX_SEAL_BYTES = OVERHEAD + MAX_TAGS * TAG_BYTES
"""Upper bound of the bytes of a sealed payload beside the message."""

MAX_SEQUENCE = 2**48
"""No peer has sent as many messages: a larger sequence or number is refused."""

_PREFIX = struct.Struct("<BIQ")
PLACE = _PREFIX.size
"""Bytes of a sealed payload that name its place, before the tags."""

_PRIVATE = struct.Struct("<BQ")


@dataclass
class Envelope:
    """One peer's keys, decided without a clock or a loop.

    Parameters
    ----------
    me, incarnation
        Name of the peer, and its incarnation.
    exchange, sender
        Its X25519 key pair and its sender key of this incarnation.
    run
        As in :func:`p2pfl.privacy.keys.edge_secret`.
    nonce
        Nonce that this incarnation announced.
    sent
        Messages for one neighbour alone that were numbered before, under the same keys.
    """

    me: str
    incarnation: int
    exchange: ExchangeKey
    sender: SenderKey
    run: str
    nonce: bytes = b""
    sent: int = 0
    _secrets: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # by neighbour: its incarnation, a secret
    _tags: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)  # by neighbour: keys of tags, own and theirs
    _alone: dict[str, tuple[SenderKey, SenderKey]] = field(default_factory=dict)  # by neighbour: for it alone, and from
    _keys: dict[str, SenderKey] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)  # neighbours that have this peer's key
    _last: dict[str, int] = field(default_factory=dict)  # by neighbour and kind: the last control message
    _next: int = 0
    _sent: dict[str, int] = field(default_factory=dict)  # by neighbour: messages for it alone, in this incarnation

    def meet(self, announcement: Announcement) -> None:
        """Learn a neighbour's public key from its authenticated announcement, and forget its earlier incarnations.

        Raises
        ------
        DecodeError
            The key leads to no secret.
        """
        try:
            epoch = epoch_of(Announced(self.me, self.incarnation, self.nonce), announcement.announced)
            secret = epoch_secret(edge_secret(self.exchange, announcement.key, run=self.run), epoch)
        except (InputError, PrivacyError) as error:
            raise DecodeError(str(error)) from None
        self._secrets[announcement.peer] = announcement.incarnation, secret
        mine, theirs = f"{self.me}@{self.incarnation:x}", f"{announcement.peer}@{announcement.incarnation:x}"
        self._tags[announcement.peer] = (
            self._direction(secret, announcement.peer, purpose="auth", incarnation=self.incarnation, receiver=theirs),
            self._direction(
                secret, announcement.peer, purpose="auth", incarnation=announcement.incarnation, receiver=mine
            ),
        )
        self._alone[announcement.peer] = (
            self._private(secret, announcement.peer, incarnation=self.incarnation, receiver=theirs),
            self._private(secret, announcement.peer, incarnation=announcement.incarnation, receiver=mine),
        )
        self._keys.pop(announcement.peer, None)
        self._known.discard(announcement.peer)
        for kind in [kind for kind in self._last if kind.startswith(f"{announcement.peer} ")]:
            del self._last[kind]  # what is sealed under an earlier key cannot be opened

    def meets(self, peer: str) -> bool:
        """Return whether keys are being exchanged with a neighbour, and either of them may not have arrived yet."""
        return peer in self._secrets and not self.has_settled([peer])

    def handover(self, peer: str) -> Key:
        """Return this peer's sender key, wrapped for one neighbour."""
        theirs, secret = self._secrets[peer]
        have, has_key = peer in self._keys, peer in self._known
        key = self._edge(
            secret, peer, incarnation=self.incarnation, receiver=f"{peer}@{theirs:x}", have=have, has_key=has_key
        )
        return Key(self.incarnation, wrap(self.sender, key), have, has_key)

    def _edge(self, secret: bytes, peer: str, *, incarnation: int, receiver: str, have: bool, has_key: bool) -> bytes:
        """Return the key of one handover between incarnations; it depends on the message, so nobody can change that."""
        state = have + 2 * has_key
        return edge_key(secret, purpose="aead", a=self.me, b=peer, round=incarnation, attempt=state, receiver=receiver)

    def receive(self, peer: str, message: Key) -> bool:
        """Take a neighbour's key; return whether the neighbour still waits for this peer's confirmation.

        Raises
        ------
        DecodeError
            It is for another peer, of another incarnation of the neighbour, or differs from what was wrapped.
        """
        incarnation, secret = self._secrets.get(peer, (-1, b""))
        if incarnation != message.incarnation:
            raise DecodeError(f"the key is of incarnation {message.incarnation}, not of incarnation {incarnation}")
        key = self._edge(
            secret,
            peer,
            incarnation=incarnation,
            receiver=f"{self.me}@{self.incarnation:x}",
            have=message.have,
            has_key=message.known,
        )
        self._keys[peer] = unwrap(message.wrapped, key)
        if message.have:
            self._known.add(peer)
        return not (message.have and message.known)

    def reads(self, peer: str) -> bool:
        """Return whether the neighbour's sender key has arrived, which opens its sealed messages."""
        return peer in self._keys

    def has_settled(self, peers: Iterable[str]) -> bool:
        """Return whether keys have been exchanged with all of ``peers``."""
        return all(peer in self._keys and peer in self._known for peer in peers)

    def seal(self, message: Message, *, to: Collection[str] | None = None) -> bytes:
        """Return the payload of a message to neighbours; of a chunk that is sent again, the same ciphertext.

        Parameters
        ----------
        message
            Message to seal.
        to
            Neighbours that can authenticate it; by default all that this peer has met.
        """
        if isinstance(message, Chunk):
            stream, sequence = message.phase, message.sequence
        else:
            stream, sequence = CONTROL, self._next
            self._next += 1
        prefix = _PREFIX.pack(SEALED, stream, sequence)
        head, data = encode_parts(message)
        sealed = self.sender.seal(b"".join((head, data)), stream=stream, sequence=sequence, header=prefix)
        hashed = message.digest if isinstance(message, Chunk) else blake3.blake3(data).digest()
        keys = [self._tags[peer][0] for peer in self._tags if to is None or peer in to]
        return add_tags(prefix, digest_of(prefix, head, hashed), sealed, keys=keys)

    def open(self, peer: str, payload: bytes | bytearray | memoryview) -> Message:
        """Read a message that a neighbour sealed for all of its neighbours.

        Raises
        ------
        AuthenticityError
            The neighbour has not sealed it for this peer; nothing has changed.
        DecodeError
            The neighbour has sealed it, but it is no message for all, is in the place of another, or is a replay.
        """
        stream, sequence, text, hashed = self._authentic(peer, payload)
        message = decode(text)
        if isinstance(message, Chunk):
            if (message.phase, message.sequence) != (stream, sequence):
                raise DecodeError("the chunk is in the place of another chunk")
            vars(message)["digest"] = hashed
        elif isinstance(message, ForOne):
            raise DecodeError("a message for one neighbour was sent to all")
        elif stream != CONTROL:
            raise DecodeError("a control message was sent in the stream of chunks")
        else:
            self._count(f"{peer} {type(message).__name__}", sequence)
        return message

    def tags(self, statement: bytes, *, to: Iterable[str]) -> bytes:
        """Return the tags of what this peer states, for peers that others pass it on to; zeros for one not met."""
        keys = [self._tags[peer][0] if peer in self._tags else None for peer in to]
        return b"".join(bytes(TAG_BYTES) if key is None else tag_statement(statement, key=key) for key in keys)

    def has_tagged(self, peer: str, statement: bytes, tags: bytes) -> bool:
        """Return whether a neighbour's present incarnation has tagged a statement for this peer."""
        return peer in self._tags and contains(tags, tag_statement(statement, key=self._tags[peer][1]))

    def _authentic(self, peer: str, payload: bytes | bytearray | memoryview) -> tuple[int, int, bytes, bytes]:
        """Return stream, sequence and bytes of what a neighbour sealed, and the hash of its data; nothing is stored."""
        key = self._keys.get(peer)
        if key is None:
            raise AuthenticityError(f'a sealed message of "{peer}" arrived before the key that opens it')
        if len(payload) < OVERHEAD:
            raise AuthenticityError(f"{len(payload)} bytes are too few for a sealed message")
        sealed = parts(payload, prefix=PLACE)
        _, stream, sequence = _PREFIX.unpack(sealed.prefix)
        try:
            text = key.open(sealed.ciphertext, stream=stream, sequence=sequence, header=sealed.prefix)
        except DecodeError as error:
            raise AuthenticityError(str(error)) from None
        head, data = split(text)
        hashed = blake3.blake3(data).digest()
        if not authentic(sealed, digest_of(sealed.prefix, head, hashed), key=self._tags[peer][1]):
            raise AuthenticityError(f'the message has no tag with which "{peer}" sealed it for this peer')
        return stream, sequence, text, hashed

    def _count(self, kind: str, number: int) -> None:
        """Note the number of an authentic message; the next of its kind must have a larger one."""
        if not self._last.get(kind, -1) < number < MAX_SEQUENCE:
            raise DecodeError("the message is a replay, or its number is out of range")
        self._last[kind] = number

    def seal_for(self, peer: str, message: ForOne) -> bytes:
        """Return the payload of a message that only one neighbour can read or create."""
        key, _ = self._alone[peer]
        number = self._sent[peer] = self._sent.get(peer, self.sent - 1) + 1
        prefix = _PRIVATE.pack(PRIVATE, number)
        return prefix + key.seal(encode(message), stream=0, sequence=number, header=prefix)

    def open_from(self, peer: str, payload: bytes | bytearray | memoryview) -> ForOne:
        """Read a message that a neighbour sealed for this peer alone.

        Raises
        ------
        AuthenticityError
            It is not sealed by that neighbour's present incarnation for this one; nothing has changed.
        DecodeError
            It is for others, too, or is a replay.
        """
        view = memoryview(payload)
        if peer not in self._alone or len(view) < _PRIVATE.size:
            raise AuthenticityError(f'"{peer}" shares no key with this peer, or {len(view)} bytes are too few')
        prefix = bytes(view[: _PRIVATE.size])
        _, number = _PRIVATE.unpack(prefix)
        _, key = self._alone[peer]
        try:
            data = key.open(view[_PRIVATE.size :], stream=0, sequence=number, header=prefix)
        except DecodeError as error:
            raise AuthenticityError(str(error)) from None
        message = decode(data)
        if not isinstance(message, ForOne):
            raise DecodeError(f"a {type(message).__name__} must not be sent to one neighbour alone")
        self._count(f"{peer} alone {type(message).__name__}", number)
        return message

    def _private(self, secret: bytes, peer: str, *, incarnation: int, receiver: str) -> SenderKey:
        """Return the key of one direction of an edge in one incarnation of each end; it seals nothing else."""
        return SenderKey(self._direction(secret, peer, purpose="private", incarnation=incarnation, receiver=receiver))

    def _direction(self, secret: bytes, peer: str, *, purpose: str, incarnation: int, receiver: str) -> bytes:
        """Return a key of one direction of an edge, which names the incarnations of both ends."""
        return edge_key(secret, purpose=purpose, a=self.me, b=peer, round=incarnation, receiver=receiver)
