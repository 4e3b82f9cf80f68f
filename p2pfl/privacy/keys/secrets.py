"""Sources of secret bytes."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

KEY_LENGTH = 32
"""Bytes of the key of a source."""


class Source(Protocol):
    """Interface to the only source of secret bytes, which tests and simulations can replace."""

    @property
    def secret(self) -> bool:
        """True if nobody can compute the bytes again; only then does private noise guarantee anything."""
        ...

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that only ``peer`` knows."""
        ...


@dataclass(frozen=True)
class SecretSource:
    """Randomness of the operating system: fresh bytes on every call, for any purpose."""

    secret: ClassVar[bool] = True

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` fresh bytes."""
        del purpose, peer, round
        return secrets.token_bytes(size)


@dataclass(frozen=True)
class KeyedSource:
    """Bytes that follow from a key, so that processes that share it draw the same.

    Two runs that are given one key draw the same noise, and the difference of their results has none. So a key that a
    caller holds is no secret, unless the caller says that it is of one run.

    The bytes are SHAKE-256 of (key, purpose, peer, round).

    Parameters
    ----------
    key
        32 bytes of the operating system.
    secret
        True if the key was drawn for one run and is forgotten after it, so that the run may state epsilon.

    Raises
    ------
    ValueError
        The key has another length.

    Examples
    --------
    >>> ours, theirs = KeyedSource(bytes(32)), KeyedSource(bytes(32))
    >>> ours.bytes(4, purpose="noise", peer="ada") == theirs.bytes(4, purpose="noise", peer="ada")
    True
    >>> ours
    KeyedSource(secret=False)
    """

    key: bytes = field(repr=False)
    secret: bool = False

    def __post_init__(self) -> None:
        if len(self.key) != KEY_LENGTH:
            raise ValueError(f"the key of a source has {len(self.key)} bytes, not {KEY_LENGTH}; draw {KEY_LENGTH}")

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes of this purpose, peer and round."""
        return hashlib.shake_256(self.key + _name(purpose, peer, round)).digest(size)


@dataclass(frozen=True)
class SeededSource:
    """Reproducible bytes for simulations and tests, which anyone with the seed can compute.

    The bytes are SHAKE-256 of (seed, purpose, peer, round).

    Examples
    --------
    >>> SeededSource(7).bytes(4, purpose="noise", peer="ada").hex()
    '73778ce6'
    """

    seed: int = field(repr=False)
    secret: ClassVar[bool] = False

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes of this purpose, peer and round."""
        return hashlib.shake_256(f"{self.seed}\x1f".encode() + _name(purpose, peer, round)).digest(size)


def _name(purpose: str, peer: str, round: int) -> bytes:
    """Return the name of a draw."""
    return f"{purpose}\x1f{peer}\x1f{round}".encode()
