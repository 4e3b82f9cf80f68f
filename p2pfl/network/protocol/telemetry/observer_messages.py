"""Messages between a peer and an observer, and the topics on which they travel.

    request, observer to peer   | u8 240 | msgpack |                     signed by the observer
    grant, peer to observer     | u8 241 | msgpack |                     signed by the peer
    frame, peer to observer     | u8 242 | u64 number | AES-256-GCM |    1,024 bytes, whatever it contains

A request names the incarnation of the peer, so one of another run or of an earlier start is refused. The last challenge
of the peer in it proves that the observer is present; the first request has none, and a grant answers it. The key of
the frames follows from one X25519 key of each end that is drawn for this purpose:

    secret = HKDF-Extract(salt=SHA256(swarm, both identities, incarnation, both keys), X25519)
    key    = HKDF-Expand(secret, "p2pfl/v1/telemetry", names)

Each pair of a peer and an observer has its own key, so one observer can neither read nor forge what another receives.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from p2pfl.core.errors import DecodeError, InputError, PrivacyError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import ExchangeKey, Identity, SenderKey, edge_key, edge_secret, verify

REQUEST, GRANT, FRAME = 240, 241, 242
"""First bytes of the payloads; no other payload of p2pfl begins with them."""

SIZE = 1024
"""Bytes of the plaintext of every frame, so that its size reveals nothing."""

LARGEST = SIZE + 64
"""Upper bound of the bytes of a payload."""

CHALLENGE_BYTES = 16
"""Length of a challenge."""

ENTRIES = 64
"""Largest number of entries of a frame."""

_NUMBER = 9
"""Bytes of a frame before its ciphertext."""

_LENGTH = 2
"""Bytes of the length of a body."""

Challenge = Annotated[bytes, msgspec.Meta(max_length=CHALLENGE_BYTES)]
Nonce = Annotated[bytes, msgspec.Meta(max_length=16)]
Age = Annotated[float, msgspec.Meta(ge=0.0, le=2.0**32)]
Entry = Annotated[bytes, msgspec.Meta(max_length=SIZE)]

Kind = TypeVar("Kind", "Request", "Grant", "Body")


class UnusedError(Exception):
    """A message is not used; the text of the error is one of few reasons, to be counted."""


class Request(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """A request of an observer to see a peer for some seconds.

    Attributes
    ----------
    observer, identity
        Name and public Ed25519 key of the observer.
    key
        Public X25519 key that the observer drew when it started.
    peer, incarnation, nonce
        The start of the peer that is asked, as its announcement names it.
    number
        Counts up for each key of an observer.
    challenge
        Last challenge that the observer received from the peer; empty in the first request.
    signature
        Signature of everything else here and of the name of the swarm.
    """

    observer: bounds.Name
    identity: bounds.Key32
    key: bounds.Key32
    peer: bounds.Name
    incarnation: bounds.Incarnation
    nonce: Nonce
    number: bounds.Number
    challenge: Challenge = b""
    signature: bounds.Signature = b""

    def signed(self, identity: Identity, *, swarm: str) -> Request:
        """Return the request with the signature of an observer."""
        return msgspec.structs.replace(self, signature=identity.sign(_signable(self, swarm), domain="observe"))

    def authentic(self, *, swarm: str) -> bool:
        """Return whether the owner of ``identity`` signed this in this swarm."""
        return verify(self.identity, _signable(self, swarm), self.signature, domain="observe")

    def names(self, peer: Announcement) -> bool:
        """Return whether the request is for this start of a peer."""
        return (self.peer, self.incarnation, self.nonce) == (peer.peer, peer.incarnation, peer.nonce)


class Grant(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    """The answer of a peer to an observer that may look: its key, and a challenge that a fresh request repeats.

    Attributes
    ----------
    peer, incarnation, nonce
        As in the request.
    observer, identity, theirs, number
        Name and keys of the observer, and number of its request.
    key
        Public X25519 key that the peer drew for this observer.
    challenge
        Random bytes; a request that repeats them is fresh.
    signature
        Signature of everything else here and of the name of the swarm.
    """

    peer: bounds.Name
    incarnation: bounds.Incarnation
    nonce: Nonce
    observer: bounds.Name
    identity: bounds.Key32
    theirs: bounds.Key32
    number: bounds.Number
    key: bounds.Key32
    challenge: Challenge
    signature: bounds.Signature = b""

    @classmethod
    def to(cls, request: Request, *, key: bytes, challenge: bytes) -> Grant:
        """Return the unsigned answer to a request."""
        asked = (request.peer, request.incarnation, request.nonce)
        return cls(*asked, request.observer, request.identity, request.key, request.number, key, challenge)

    def signed(self, identity: Identity, *, swarm: str) -> Grant:
        """Return the grant with the signature of a peer."""
        return msgspec.structs.replace(self, signature=identity.sign(_signable(self, swarm), domain="observed"))

    def authentic(self, public: bytes, *, swarm: str) -> bool:
        """Return whether a peer with this identity signed this in this swarm."""
        return verify(public, _signable(self, swarm), self.signature, domain="observed")

    def answers(self, request: Request) -> bool:
        """Return whether the grant is for the observer and the start of the peer that a request names."""
        asked = (request.peer, request.incarnation, request.nonce, request.observer, request.identity, request.key)
        return asked == (self.peer, self.incarnation, self.nonce, self.observer, self.identity, self.theirs)


class Body(msgspec.Struct, frozen=True, array_like=True, tag="body"):
    """Plaintext of a frame.

    Attributes
    ----------
    challenge
        Present challenge of the peer, for the next request.
    dropped
        Number of entries so far that did not fit into the frames.
    entries
        Age in seconds, and bytes, of each entry that is new.
    """

    challenge: Challenge
    dropped: bounds.Number = 0
    entries: Annotated[tuple[tuple[Age, Entry], ...], msgspec.Meta(max_length=ENTRIES)] = ()


_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Request, Grant, Body)
}
_FIRST: dict[type, int] = {Request: REQUEST, Grant: GRANT}


def encode(message: Request | Grant) -> bytes:
    """Return the payload of a request or a grant."""
    return bytes([_FIRST[type(message)]]) + _encoder.encode(message)


def decode(payload: bytes | memoryview, kind: type[Kind]) -> Kind:
    """Return the request or grant in a payload.

    Raises
    ------
    DecodeError
        The payload is anything else.
    """
    view = memoryview(payload)
    if not 1 < len(view) <= LARGEST or view[0] != _FIRST.get(kind):
        raise DecodeError(f"the {len(view)} bytes are no {kind.__name__.lower()} of telemetry")
    return _decoded(view[1:], kind)


def seal(body: Body, *, key: SenderKey, number: int) -> bytes:
    """Return the payload of a frame.

    Parameters
    ----------
    body
        The plaintext; it must fit, see :func:`room`.
    key
        Key of this peer and observer, from :func:`key_between`.
    number
        Number of the frame, which is never used twice under one key.
    """
    plain = _encoder.encode(body)
    prefix = bytes([FRAME]) + number.to_bytes(_NUMBER - 1, "little")
    padded = (len(plain).to_bytes(_LENGTH, "little") + plain).ljust(SIZE, b"\0")
    return prefix + key.seal(padded, stream=0, sequence=number, header=prefix)


def room(body: Body) -> int:
    """Return the number of bytes that are left in the frame of a body; negative if it does not fit."""
    return SIZE - _LENGTH - len(_encoder.encode(body))


def open_frame(payload: bytes | memoryview, *, key: SenderKey) -> tuple[int, Body]:
    """Return the number and the body of a frame.

    Raises
    ------
    DecodeError
        The payload is no frame that was sealed under the key.
    """
    view = memoryview(payload)
    if not _NUMBER < len(view) <= LARGEST or view[0] != FRAME:
        raise DecodeError(f"the {len(view)} bytes are no frame of telemetry")
    prefix = bytes(view[:_NUMBER])
    number = int.from_bytes(prefix[1:], "little")
    plain = key.open(view[_NUMBER:], stream=0, sequence=number, header=prefix)
    end = _LENGTH + int.from_bytes(plain[:_LENGTH], "little")
    return number, _decoded(memoryview(plain)[_LENGTH:end], Body)


def key_between(own: ExchangeKey, other: bytes, *, grant: Grant, peer: bytes, swarm: str) -> SenderKey:
    """Return the key of the frames from a peer to an observer, which both ends compute.

    Parameters
    ----------
    own, other
        X25519 key pair of one end, and public key of the other.
    grant
        The grant, which names both ends.
    peer
        Identity of the peer.
    swarm
        Name of the swarm.

    Raises
    ------
    DecodeError
        The public key of the other end leads to no secret.
    """
    named = (peer, grant.nonce, grant.identity, grant.key, grant.theirs)
    run = f"{swarm}/telemetry/{grant.incarnation:x}/{'/'.join(each.hex() for each in named)}"
    try:
        secret = edge_secret(own, other, run=run)
    except (InputError, PrivacyError) as error:
        raise DecodeError(str(error)) from None
    ends = f"peer {grant.peer}", f"observer {grant.observer}"
    return SenderKey(edge_key(secret, purpose="telemetry", a=ends[0], b=ends[1], round=0))


# ---------------------------------------------------------------------- topics


def inbox(swarm: str, *, peer: str, observer: str = "+") -> str:
    """Return the topic of requests to a peer.

    Examples
    --------
    >>> inbox("clinic", peer="ada")
    'p2pfl/v1/clinic/watch/+/to/ada'
    """
    return f"p2pfl/v1/{swarm}/watch/{observer}/to/{peer}"


def outlet(swarm: str, *, observer: str, peer: str = "+") -> str:
    """Return the topic of what a peer publishes for an observer.

    Examples
    --------
    >>> outlet("clinic", observer="ops")
    'p2pfl/v1/clinic/peer/+/telemetry/ops'
    """
    return f"p2pfl/v1/{swarm}/peer/{peer}/telemetry/{observer}"


def announcements(swarm: str) -> str:
    """Return the filter of the announcements of all peers."""
    return f"p2pfl/v1/{swarm}/peer/+/state"


def _signable(message: Request | Grant, swarm: str) -> bytes:
    """Return the signed bytes: the swarm, and the message without its signature."""
    return swarm.encode() + b"/" + _encoder.encode(msgspec.structs.replace(message, signature=b""))


def _decoded(data: bytes | memoryview, kind: type[Kind]) -> Kind:
    try:
        found: Kind = _decoders[kind].decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        raise DecodeError(f"the bytes are no {kind.__name__.lower()} of telemetry: {error}") from None
    return found
