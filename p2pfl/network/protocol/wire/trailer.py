"""Trailer of a model, in the head of its last chunk: a checksum, or its sender's signature.

It covers the chain of the hashes of all pieces that the model was cut into, in their order:

    chain = BLAKE3(chain of the pieces before, BLAKE3(piece)), of no pieces 32 zeros

A receiver has hashed each piece anyway when it looked for its tag (:mod:`p2pfl.network.protocol.wire.wire_codec`), so
each model is hashed once. Two models have different chains, but one model that is cut in two ways has two: a peer cuts
all models of an incarnation to one size.
"""

from __future__ import annotations

from dataclasses import dataclass

from p2pfl.core.errors import DecodeError
from p2pfl.privacy.keys import Identity, verify

START = 64
"""Bytes at the start of a model's message that are signed as they are; a row's head lies within them."""

CHECKSUM_BYTES = 16
"""Bytes of a checksum."""


@dataclass(frozen=True)
class SignedStatement:
    """Signed statement of a sender about a model, without the model itself.

    Attributes
    ----------
    statement
        Signed bytes: the context, the first 64 bytes of the message, and the chain of its pieces.
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
    """128 bits of the chain, which guard against mistakes, not against forgery: anybody can compute them."""

    def statement(self, start: bytes, chain: bytes) -> bytes:
        """Return the chain."""
        del start
        return chain

    def end(self, statement: bytes) -> bytes:
        """Return the first half of the chain."""
        return statement[:CHECKSUM_BYTES]

    def check(self, statement: bytes, trailer: bytes) -> None:
        """Compare."""
        if self.end(statement) != trailer:
            raise DecodeError("the digest does not match the model, which was changed on the way")


@dataclass(frozen=True)
class Signature:
    """Ed25519 over the context, the message's first 64 bytes, and the chain of its pieces.

    The head lies in those 64 bytes, so that two statements of one round and step prove to anybody, without the models,
    that a peer has signed both. BLAKE3 takes 12 ms for 50 MB where SHA-256 takes 29.

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

    @staticmethod
    def of(swarm: str, peer: str, incarnation: int, *, public: bytes, identity: Identity | None = None) -> Signature:
        """Return the trailer of a peer's models in one of its incarnations."""
        return Signature(f"{swarm}/{peer}/{incarnation:x}/", public, identity)

    def statement(self, start: bytes, chain: bytes) -> bytes:
        """Return what is signed of a message that begins with ``start``."""
        return self.context.encode() + start + chain

    def end(self, statement: bytes) -> bytes:
        """Sign."""
        assert self.identity is not None, "only the sender signs"  # noqa: S101 (a mistake of ours)
        return self.identity.sign(statement, domain=_DOMAIN)

    def check(self, statement: bytes, trailer: bytes) -> None:
        """Verify."""
        if not verify(self.public, statement, trailer, domain=_DOMAIN):
            raise DecodeError("the signature is not that of the sender, or the model was changed on the way")


Trailer = Checksum | Signature
"""Trailer of the models of one sender."""

_DOMAIN = "row"
CHECKSUM = Checksum()
