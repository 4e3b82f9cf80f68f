"""Trailer of a model's message, which shows whether it arrived unchanged: a checksum, or its sender's signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
    start: ClassVar[int] = 0

    def end(self, start: bytes, digest: bytes) -> bytes:
        """Return the first half of the hash of the message; it keeps no start as it is."""
        del start
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
    start: ClassVar[int] = START

    @staticmethod
    def of(swarm: str, peer: str, incarnation: int, *, public: bytes, identity: Identity | None = None) -> Signature:
        """Return the trailer of a peer's models in one of its incarnations."""
        return Signature(f"{swarm}/{peer}/{incarnation:x}/", public, identity)

    def end(self, start: bytes, digest: bytes) -> bytes:
        """Sign the start of a message and the hash of the rest."""
        assert self.identity is not None, "only the sender signs"  # noqa: S101 (a mistake of ours)
        return self.identity.sign(self.context.encode() + start + digest, domain=_DOMAIN)

    def statement(self, message: memoryview) -> bytes:
        """Return what is signed of a message that is there as a whole."""
        return self.context.encode() + bytes(message[:START]) + blake3.blake3(message[START:]).digest()

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Verify."""
        if not verify(self.public, digest, trailer, domain=_DOMAIN):
            raise DecodeError("the signature is not that of the sender, or the model was changed on the way")


Trailer = Checksum | Signature
"""Trailer of the models of one sender."""

_DOMAIN = "row"
CHECKSUM = Checksum()
