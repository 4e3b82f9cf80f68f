"""What ends a row's message and tells whether it came as it was sent: a checksum, or its sender's signature."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import xxhash

from p2pfl.errors import DecodeError
from p2pfl.identity import SIGNATURE_BYTES, Identity, verify

START = 64
"""Bytes at the start of a message that are signed as they are; a row's head lies within them."""

CHECKSUM_BYTES = 16
LONGEST = SIGNATURE_BYTES
"""An upper bound of a trailer's length in bytes."""


@dataclass(frozen=True)
class Said:
    """What a sender has said, without the row itself.

    Attributes
    ----------
    statement
        What is signed: the context, the first 64 bytes of the message, SHA-256 of the rest.
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
        """Whether the owner of this key said it."""
        return verify(public, self.statement, self.signature, domain=_DOMAIN)


class Hash(Protocol):
    """What hashlib and xxhash give."""

    def update(self, data: memoryview, /) -> None:
        """Take more bytes."""
        ...

    def digest(self) -> bytes:
        """The hash of all bytes so far."""
        ...


class Trailer(Protocol):
    """How one sender's rows end."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def begin(self) -> Hash:
        """Start to hash a message."""
        ...

    def end(self, digest: bytes) -> bytes:
        """The trailer of a message with this hash."""
        ...

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Raise :class:`~p2pfl.errors.DecodeError` unless the trailer is that of this hash."""
        ...


@dataclass(frozen=True)
class Checksum:
    """XXH3-128, which guards against mistakes, not against forgery.

    Whoever can forge a row can forge any unkeyed digest, and SHA-256 takes five times as long.
    """

    size: int = CHECKSUM_BYTES

    def begin(self) -> Hash:
        """Start to hash a message."""
        return xxhash.xxh3_128()

    def end(self, digest: bytes) -> bytes:
        """The hash itself."""
        return digest

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Compare."""
        if digest != trailer:
            raise DecodeError("expected a row with its digest, got bytes that changed on the way")


@dataclass(frozen=True)
class Signature:
    """Ed25519 over the context, the message's first 64 bytes, and SHA-256 of the rest.

    The head lies in those 64 bytes, so that two signed statements of one round and step prove to
    anybody that a peer says different things, without the rows.

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
        """The trailer of a peer's rows in one of its lives."""
        return Signature(f"{swarm}/{peer}/{incarnation:x}/", public, identity)

    def begin(self) -> Hash:
        """Start to hash a message."""
        return _Statement(self.context.encode())

    def end(self, digest: bytes) -> bytes:
        """Sign."""
        assert self.identity is not None, "only the sender signs"  # noqa: S101 (a mistake of ours)
        return self.identity.sign(digest, domain=_DOMAIN)

    def check(self, digest: bytes, trailer: bytes) -> None:
        """Verify."""
        if not verify(self.public, digest, trailer, domain=_DOMAIN):
            raise DecodeError("expected a row signed by its sender, got another's or bytes that changed on the way")


class _Statement:
    """Gathers what is signed as a message goes by."""

    def __init__(self, context: bytes) -> None:
        self._context = context
        self._start = bytearray()
        self._rest = hashlib.sha256()

    def update(self, data: memoryview, /) -> None:
        room = START - len(self._start)
        self._start += data[:room]
        self._rest.update(data[room:])

    def digest(self) -> bytes:
        return self._context + bytes(self._start) + self._rest.digest()


_DOMAIN = "row"
CHECKSUM = Checksum()
