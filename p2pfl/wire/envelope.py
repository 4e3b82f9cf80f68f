"""What a peer says, sealed for its neighbours: the broker and outsiders see names, sizes and times.

    | u8 2 | u32 stream | u64 sequence | AES-256-GCM(sender key of the peer, message) |

The sender key of a peer's life is handed to each neighbour over their own edge. What is for one
neighbour alone is sealed under a key of their edge, these lives and direction, its number counted on:

    | u8 3 | u64 number | AES-256-GCM(key of the edge, message) |

Nothing that is not
sealed by a neighbour reaches a decoder beyond these first bytes, but for hellos (signed), claims
to one's own name, and the handing over of keys itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pfl.errors import DecodeError, InputError, PrivacyError
from p2pfl.identity import (
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
from p2pfl.wire.codec import decode, encode
from p2pfl.wire.messages import Chunk, ForOne, Hello, Key, Message

SEALED = 2
"""The first byte of a sealed payload; plain ones begin with their protocol version."""

PRIVATE = 3
"""The first byte of a payload that is sealed for one neighbour alone."""

CONTROL = 2**32 - 1
"""The stream of everything but chunks, whose stream is their phase."""

OVERHEAD = 13 + 16
_PREFIX = struct.Struct("<BIQ")
_PRIVATE = struct.Struct("<BQ")


@dataclass
class Envelope:
    """One peer's keys, decided without a clock or a loop.

    Parameters
    ----------
    me, incarnation
        Whose.
    exchange, sender
        Its X25519 key pair and its sender key of this life.
    run
        As in :func:`p2pfl.identity.edge_secret`.
    nonce
        What this incarnation announced.
    """

    me: str
    incarnation: int
    exchange: ExchangeKey
    sender: SenderKey
    run: str
    nonce: bytes = b""
    _secrets: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # by neighbour: its incarnation, our epoch
    _keys: dict[str, SenderKey] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)  # who has our key
    _last: dict[str, int] = field(default_factory=dict)  # by neighbour and kind: the last control message
    _next: int = 0
    _sent: dict[str, int] = field(default_factory=dict)  # by neighbour: messages for it alone, in this life

    def meet(self, hello: Hello) -> None:
        """Learn a neighbour's public key from its authenticated hello, and forget its earlier lives.

        Raises
        ------
        DecodeError
            The key leads to no secret.
        """
        try:
            epoch = epoch_of(Announced(self.me, self.incarnation, self.nonce), hello.announced)
            secret = epoch_secret(edge_secret(self.exchange, hello.key, run=self.run), epoch)
        except (InputError, PrivacyError) as error:
            raise DecodeError(str(error)) from None
        self._secrets[hello.peer] = hello.incarnation, secret
        self._keys.pop(hello.peer, None)
        self._known.discard(hello.peer)
        for kind in [kind for kind in self._last if kind.startswith(f"{hello.peer} ")]:
            del self._last[kind]  # what is sealed under an earlier key cannot be opened

    def meets(self, peer: str) -> bool:
        """Whether keys are being exchanged with a neighbour, and not yet both are known to have come."""
        return peer in self._secrets and not self.settled([peer])

    def handover(self, peer: str) -> Key:
        """Our sender key, for one neighbour alone."""
        theirs, secret = self._secrets[peer]
        have, known = peer in self._keys, peer in self._known
        key = self._edge(secret, peer, life=self.incarnation, receiver=f"{peer}@{theirs:x}", have=have, known=known)
        return Key(self.incarnation, wrap(self.sender, key), have, known)

    def _edge(self, secret: bytes, peer: str, *, life: int, receiver: str, have: bool, known: bool) -> bytes:
        """The key of one handover from life to life; another for each thing it says, so that nobody can change that."""
        said = have + 2 * known
        return edge_key(secret, purpose="aead", a=self.me, b=peer, round=life, attempt=said, receiver=receiver)

    def hear(self, peer: str, message: Key) -> bool:
        """Take a neighbour's key; return whether it still waits for a word of ours.

        Raises
        ------
        DecodeError
            It is not for us, of another life of the neighbour, or says something else than was wrapped.
        """
        life, secret = self._secrets.get(peer, (-1, b""))
        if life != message.incarnation:
            raise DecodeError(f"expected a key of incarnation {life}, got one of {message.incarnation}")
        key = self._edge(
            secret, peer, life=life, receiver=f"{self.me}@{self.incarnation:x}", have=message.have, known=message.known
        )
        self._keys[peer] = unwrap(message.wrapped, key)
        if message.have:
            self._known.add(peer)
        return not (message.have and message.known)

    def settled(self, peers: Iterable[str]) -> bool:
        """Whether keys have been exchanged with all of ``peers``."""
        return all(peer in self._keys and peer in self._known for peer in peers)

    def seal(self, message: Message) -> bytes:
        """The payload of a message to neighbours; of a chunk that is sent again the same bytes."""
        if isinstance(message, Chunk):
            stream, sequence = message.phase, message.sequence
        else:
            stream, sequence = CONTROL, self._next
            self._next += 1
        prefix = _PREFIX.pack(SEALED, stream, sequence)
        return prefix + self.sender.seal(encode(message), stream=stream, sequence=sequence, header=prefix)

    def open(self, peer: str, payload: bytes | bytearray | memoryview) -> Message:
        """Read what a neighbour sealed.

        Raises
        ------
        DecodeError
            It is not sealed by that neighbour, says something else than its place, or was said before.
        """
        view = memoryview(payload)
        key = self._keys.get(peer)
        if key is None:
            raise DecodeError(f'expected a key of "{peer}" before what it seals, got none yet')
        if len(view) < OVERHEAD:
            raise DecodeError(f"expected a sealed message, got {len(view)} bytes")
        prefix = bytes(view[: _PREFIX.size])
        _, stream, sequence = _PREFIX.unpack(prefix)
        message = decode(key.open(view[_PREFIX.size :], stream=stream, sequence=sequence, header=prefix))
        if isinstance(message, Chunk):
            if (message.phase, message.sequence) != (stream, sequence):
                raise DecodeError("expected a chunk in its place, got one of another")
        elif isinstance(message, ForOne):
            raise DecodeError("expected a message for all neighbours, got one that is for one alone")
        elif stream != CONTROL or sequence <= self._last.get(kind := f"{peer} {type(message).__name__}", -1):
            raise DecodeError("expected a message that is new, got one that was heard before")
        else:
            self._last[kind] = sequence
        return message

    def seal_for(self, peer: str, message: ForOne) -> bytes:
        """The payload of a message that only one neighbour can read, or make."""
        theirs, secret = self._secrets[peer]
        number = self._sent[peer] = self._sent.get(peer, -1) + 1
        prefix = _PRIVATE.pack(PRIVATE, number)
        key = self._private(secret, peer, life=self.incarnation, receiver=f"{peer}@{theirs:x}")
        return prefix + key.seal(encode(message), stream=0, sequence=number, header=prefix)

    def open_from(self, peer: str, payload: bytes | bytearray | memoryview) -> ForOne:
        """Read what a neighbour sealed for us alone.

        Raises
        ------
        DecodeError
            It is not sealed by that neighbour's present life for this one, is for others, too, or was said before.
        """
        view = memoryview(payload)
        life, secret = self._secrets.get(peer, (-1, b""))
        if life < 0 or len(view) < _PRIVATE.size:
            raise DecodeError(f'expected a sealed message of a neighbour, got {len(view)} bytes of "{peer}"')
        prefix = bytes(view[: _PRIVATE.size])
        _, number = _PRIVATE.unpack(prefix)
        key = self._private(secret, peer, life=life, receiver=f"{self.me}@{self.incarnation:x}")
        message = decode(key.open(view[_PRIVATE.size :], stream=0, sequence=number, header=prefix))
        if not isinstance(message, ForOne):
            raise DecodeError(f"expected a message for one alone, got a {type(message).__name__}")
        if number <= self._last.get(kind := f"{peer} alone {type(message).__name__}", -1):
            raise DecodeError("expected a message that is new, got one that was heard before")
        self._last[kind] = number
        return message

    def _private(self, secret: bytes, peer: str, *, life: int, receiver: str) -> SenderKey:
        """The key of one direction of an edge, in one life of each end: nothing else is sealed under it."""
        return SenderKey(edge_key(secret, purpose="private", a=self.me, b=peer, round=life, receiver=receiver))
