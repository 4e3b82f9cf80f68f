"""What a peer tells those who run it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.identity import FirstUse, fingerprint
from p2pfl.peer.storage.best import Best
from p2pfl.privacy.accounting.examples import Sampling
from p2pfl.protocol.equivocation import Proof
from p2pfl.protocol.ledgers.unsettled import Unsettled
from p2pfl.protocol.membership import Membership
from p2pfl.report import Record

PROMISED = "promised to release nothing more"
"""What is said of who cannot go on."""


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
        Neighbours it waits for right now; or the broker.
    present
        Neighbours that are there.
    """

    peer: str
    phase: str
    round: int
    waiting: tuple[str, ...]
    present: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notice:
    """A sentence that people should read."""

    peer: str
    sentence: str


@dataclass(frozen=True)
class Alarm(Notice):
    """A notice of something that harms the result, with the way back.

    Attributes
    ----------
    round
        In which it happened, counted from 0.
    partners
        The mask partners of which nothing came in it.
    """

    round: int = 0
    partners: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settled(Notice):
    """A notice that masks of an earlier alarm have cancelled.

    Attributes
    ----------
    round
        Of the alarm.
    partners
        Those of it whose masks are cancelled now.
    """

    round: int = 0
    partners: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True):
    """A peer's last word: its final scores, its private memory in bytes, what all peers' common model scores.

    And why it did not play all rounds, if it is the budget; of running sums, what it gave each neighbour, and who of
    these did not come back; the best model that it keeps, and what it could not settle with its neighbours. Last, the
    epsilon that it has spent, and how often it made which steps of DP-SGD: noise, rate, steps and count.
    """

    peer: str
    scores: dict[str, float]
    memory: int | None
    common: dict[str, float] | None = None
    stopped: str | None = None
    given: dict[str, float] | None = None
    vanished: list[str] = []
    best: Best | None = None
    unsettled: Unsettled | None = None
    spent: float | None = None
    samplings: tuple[tuple[float, float, int, int], ...] | None = None

    @property
    def played(self) -> dict[Sampling, int] | None:
        """Return how many rounds had which steps of DP-SGD; ``None`` where single samples are promised nothing."""
        if self.samplings is None:
            return None
        return {Sampling(noise, rate, steps): count for noise, rate, steps, count in self.samplings}


class Failed(msgspec.Struct, frozen=True):
    """Why a peer ended early: one sentence and an exit status."""

    peer: str
    reason: str
    status: int


class Described(msgspec.Struct, frozen=True):
    """The content of ``model.json``, as soon as a peer knows it; all peers of a run know the same."""

    peer: str
    about: dict[str, Any]


class Alive(msgspec.Struct, frozen=True):
    """A sign of life: the peer has moved on, but what it is doing reads the same."""

    peer: str


Event = Record | Progress | Notice | Alive | Described | Done | Failed


def strangers(membership: Membership) -> list[str]:
    """Return sentences on whose key is trusted on first use, and on who else answers to our name; each once."""
    trust, name = membership.trust, membership.me.peer
    told = [*filter(None, map(trust.news, sorted(membership.present)))] if isinstance(trust, FirstUse) else []
    if membership.namesake:
        told.append(
            f'a peer with the key {fingerprint(membership.namesake)} answers to the name "{name}"; neighbours that '
            f"know the key {fingerprint(membership.me.identity)} ignore it, so find out whose it is or use a roster"
        )
        membership.namesake = b""
    return told


def ahead(round: int, *, again: bool, rounds: int) -> str:
    """Say with which of the rounds a peer begins, or goes on, where others have not waited for it."""
    if round >= rounds:
        return f"the others are ahead, in their last round: it comes too late to play one of the {rounds} rounds"
    how = "comes back" if again else "begins"
    return f"the others are ahead: it {how} in round {round + 1}, from where they are then"


def unpaid(missed: Collection[str]) -> str:
    """Return a sentence that models are missing from the gossip step in which masks are paid, for good."""
    return (
        f"nothing came from {', '.join(sorted({*missed}))} in the gossip step that settles masks, which changes the "
        "mean of all models"
    )


def resting(rounds: int, *, lost: bool) -> str:
    """Say that an earlier incarnation has promised to release nothing more, and which row is kept.

    Parameters
    ----------
    rounds
        After how many it is.
    lost
        Whether a newer one was released, and is lost.
    """
    why = "; what was released after it stays with the others and changes the mean of all models" if lost else ""
    return f"an earlier incarnation has {PROMISED}: its row after {rounds} rounds is kept as it is{why}"


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
