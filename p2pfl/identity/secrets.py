"""Where secret bytes come from."""

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Protocol


class Source(Protocol):
    """Where secret bytes come from; the only one, so that tests and simulations can replace it."""

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that nobody but ``peer`` knows."""
        ...


@dataclass(frozen=True)
class SecretSource:
    """The operating system's randomness: fresh bytes on every call, whatever they are for."""

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` fresh bytes."""
        del purpose, peer, round
        return secrets.token_bytes(size)


@dataclass(frozen=True)
class SeededSource:
    """Reproducible bytes for simulations and tests: whoever knows the seed knows them all.

    The bytes are SHAKE-256 of (seed, purpose, peer, round).

    Examples
    --------
    >>> SeededSource(7).bytes(4, purpose="noise", peer="ada").hex()
    '73778ce6'
    """

    seed: int = field(repr=False)

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return the ``size`` bytes that belong to this purpose, peer and round."""
        name = f"{self.seed}\x1f{purpose}\x1f{peer}\x1f{round}".encode()
        return hashlib.shake_256(name).digest(size)
