"""What a peer tells those who run it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from p2pfl.identity import FirstUse, Trust, fingerprint
from p2pfl.peer.proof import Proof


@dataclass(frozen=True)
class Progress:
    """What a peer is doing, for whoever watches.

    Attributes
    ----------
    phase
        ``gathering``, ``learning``, ``leaving``.
    round
        The current one.
    waiting
        Neighbours it waits for right now.
    """

    peer: str
    phase: str
    round: int
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class Notice:
    """A sentence that people should read."""

    peer: str
    sentence: str


def strangers(trust: Trust, present: Collection[str]) -> list[str]:
    """Sentences on whose key is trusted on first use."""
    return [*filter(None, map(trust.news, sorted(present)))] if isinstance(trust, FirstUse) else []


def exclusion(peer: str, proof: Proof, *, identity: bytes, path: Path | None) -> str:
    """Say who was excluded and why.

    Parameters
    ----------
    peer, proof
        Who, and of what.
    identity
        Its public key.
    path
        Where the proof is kept, if it is.
    """
    round, step = proof.exchange
    kept = "" if path is None else f"; the proof is in {path}"
    return (
        f'EXCLUDED: "{peer}" with the key {fingerprint(identity)} signed two different {proof.domain}s for step {step} '
        f"of round {round}{kept}; ask its owner why, and revoke the key if he cannot tell."
    )
