"""Trailer of a model's message, which shows whether it arrived unchanged: a checksum, or its sender's signature."""

from __future__ import annotations

from dataclasses import dataclass

import blake3

from p2pfl.core.errors import DecodeError
from p2pfl.privacy.keys import SIGNATURE_BYTES, Identity, verify

START = 64
"""Bytes at the start of a message that are signed as they are; a row's head lies within them."""

CHECKSUM_BYTES = 16
MAX_TRAILER_BYTES = SIGNATURE_BYTES
"""An upper bound of a trailer's length in bytes."""


@dataclass(frozen=True)
class SignedStatement:
    """Signed statement of a sender about a model, without the model itself.

    Attributes
    ----------
    statement
        What is signed: the context, the first 64 bytes of the message, BLAKE3 of the rest.
    signature
        The trailer.
    """

    statement: bytes
    signature: bytes

    @property
    def context(self) -> str:
        """To which swarm, peer and incarnation it belongs."""
        return self.statement[: -START - 32].decode(errors="replace")

    @property
    def start(self) -> bytes:
        """The first 64 bytes of the message."""
        return self.statement[-START - 32 : -32]

    def by(self, public: bytes) -> bool:
        """Return whether the owner of this key signed it."""
        return verify(public, self.statement, self.signature, domain=_DOMAIN)


@dataclass(frozen=True)
class Checksum:
    """128 bits of BLAKE3, which guard against mistakes, not against forgery: anybody can compute them."""

    size: int = CHECKSUM_BYTES

    def begin(self) -> Hash:
        """Start to hash a message."""
        return blake3.blake3()

    def end(self, digest: bytes) -> bytes:
        """Return the first half of the hash."""
        return digest[: self.size]

    def statement(self, message: memoryview) -> bytes:
        """Return the hash of a message that is there as a whole."""
        return blake3.blake3(message).digest()

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Compare."""
        if digest[: self.size] != trailer:
            raise DecodeError("the digest does not match the model, which was changed on the way")


@dataclass(frozen=True)
class Signature:
    """Ed25519 over the context, the message's first 64 bytes, and BLAKE3 of the rest.

    BLAKE3 takes 12 ms for 50 MB where SHA-256 takes 29, and less than that where the processor has no
    instructions for SHA-256. The head lies in those 64 bytes, so that two signed statements of one
    round and step prove to anybody that a peer says different things, without the rows.

    Parameters
    ----------
    context
        Binds the signature to one swarm, peer and incarnation, so that it is worth nothing elsewhere.
    public
        Of the sender.
    identity
        Of the sender, where it is ourselves.
    """

    context: str
    public: bytes
    identity: Identity | None = None
    size: int = SIGNATURE_BYTES

    @staticmethod
    def of(swarm: str, peer: str, incarnation: int, *, public: bytes, identity: Identity | None = None) -> Signature:
        """Return the trailer of a peer's models in one of its incarnations."""
        return Signature(f"{swarm}/{peer}/{incarnation:x}/", public, identity)

    def begin(self) -> Hash:
        """Start to hash a message."""
        return _Statement(self.context.encode())

    def end(self, digest: bytes) -> bytes:
        """Sign."""
        assert self.identity is not None, "only the sender signs"  # noqa: S101 (a mistake of ours)
        return self.identity.sign(digest, domain=_DOMAIN)

    def statement(self, message: memoryview) -> bytes:
        """Return what is signed of a message that is there as a whole."""
        return self.context.encode() + bytes(message[:START]) + blake3.blake3(message[START:]).digest()

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Verify."""
        if not verify(self.public, digest, trailer, domain=_DOMAIN):
            raise DecodeError("the signature is not that of the sender, or the model was changed on the way")


class _Statement:
    """Gathers what is signed as a message goes by."""

    def __init__(self, context: bytes) -> None:
        self._context = context
        self._start = bytearray()
        self._rest = blake3.blake3()

    def update(self, data: memoryview, /) -> None:
        room = START - len(self._start)
        self._start += data[:room]
        self._rest.update(data[room:])

    def copy(self) -> _Statement:
        copied = _Statement(self._context)
        copied.__dict__.update(_start=self._start.copy(), _rest=self._rest.copy())
        return copied

    def digest(self) -> bytes:
        return self._context + bytes(self._start) + self._rest.digest()


Hash = blake3.blake3 | _Statement
"""Hash of a message that goes by."""

Trailer = Checksum | Signature
"""Trailer of the models of one sender."""

_DOMAIN = "row"
CHECKSUM = Checksum()
