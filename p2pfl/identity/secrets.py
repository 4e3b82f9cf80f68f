"""Sources of secret bytes."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Protocol


class Source(Protocol):
    """Interface to the only source of secret bytes, which tests and simulations can replace."""

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that only ``peer`` knows."""
        ...


@dataclass(frozen=True)
class SecretSource:
    """Randomness of the operating system: fresh bytes on every call, for any purpose."""

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` fresh bytes."""
        del purpose, peer, round
        return secrets.token_bytes(size)


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

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes of this purpose, peer and round."""
        name = f"{self.seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()
        return hashlib.shake_256(name).digest(size)
