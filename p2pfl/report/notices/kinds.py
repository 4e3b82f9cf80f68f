"""Notices: what people should know of a run besides its records, each as a kind with fields.

:func:`p2pfl.report.notices.wording.sentence` turns a notice into a sentence. The kind is the name of the
class in snake case; ``events.jsonl`` has one notice a line, and docs/schema.json describes each.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import ClassVar, Final, Literal

import msgspec

SCHEMA: Final = 1
"""Version of the files of a run; it grows when a field or a kind changes its meaning or disappears."""

Severity = Literal["info", "warning", "alarm", "resolved"]
"""Level of a notice: it is news, asks for attention, harms the result, or ends such harm."""


def kind_of(name: str) -> str:
    """Return the kind of a class of notices.

    Examples
    --------
    >>> kind_of("MasksCancelled")
    'masks_cancelled'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag=kind_of):
    """Something that people should know of a peer.

    Attributes
    ----------
    schema
        Version of the format of the line.
    time
        Time at which it was recorded, in UTC; null before.
    peer
        Name of the peer that reports it.
    """

    severity: ClassVar[Severity] = "warning"

    schema: Literal[1] = SCHEMA
    time: datetime | None = None
    peer: str


# ---------------------------------------------------------------------- the course of a peer


class PhaseBegan(Notice, frozen=True, kw_only=True):
    """A peer began a phase of its run.

    Attributes
    ----------
    phase
        ``joining``, ``gathering``, ``learning``, ``leaving`` or ``done``.
    round
        Its round, counted from 0.
    """

    severity = "info"

    phase: str
    round: int


STALLED = 1.0
"""Seconds of waiting in the same gossip step after which a peer reports a :class:`WaitBegan`."""


class WaitBegan(Notice, frozen=True, kw_only=True):
    """A peer has waited for the same gossip step longer than a second.

    Attributes
    ----------
    round
        Its round, counted from 0.
    neighbours
        Neighbours that it waits for; a later event replaces them.
    connected
        True if it reaches the broker.
    """

    severity = "info"

    round: int
    neighbours: tuple[str, ...]
    connected: bool = True


class WaitEnded(Notice, frozen=True, kw_only=True):
    """A peer waits no longer."""

    severity = "info"


class PresenceChanged(Notice, frozen=True, kw_only=True):
    """Neighbours of a peer came or left, as far as it knows.

    Attributes
    ----------
    came
        Neighbours that are present now.
    left
        Neighbours that are not present any more.
    """

    severity = "info"

    came: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class PeerFinished(Notice, frozen=True, kw_only=True):
    """A peer ended as it should.

    Attributes
    ----------
    scores
        Final scores on the test part.
    """

    severity = "info"

    scores: dict[str, float]


class PeerFailed(Notice, frozen=True, kw_only=True):
    """A peer ended early.

    Attributes
    ----------
    error
        Class of the error.
    message
        Message of the error.
    status
        Exit status.
    """

    severity = "alarm"

    error: str
    message: str
    status: int


class JoinsLate(Notice, frozen=True, kw_only=True):
    """The other peers are ahead, and the peer begins where they are.

    Attributes
    ----------
    round
        First round in which it takes part, counted from 0.
    rounds
        Rounds of the experiment; if the first round is not below, it takes part in none.
    again
        True if it comes back.
    """

    round: int
    rounds: int
    again: bool


class ReleasesEnded(Notice, frozen=True, kw_only=True):
    """An earlier incarnation promised to release nothing more, so the model is kept as it is.

    Attributes
    ----------
    rounds
        Number of rounds after which the model is.
    lost
        True if a newer model was released and is lost.
    """

    rounds: int
    lost: bool


class LearningStopped(Notice, frozen=True, kw_only=True):
    """A peer may not release another model, and stops learning.

    Attributes
    ----------
    reason
        ``budget`` where the privacy budget is spent, ``partners`` where too few mask partners are present,
        ``undecided`` where it is unknown which models of the round count, or one is missing for good.
    message
        Message of the error.
    """

    reason: Literal["budget", "partners", "undecided"]
    message: str


class AwaitsReturn(Notice, frozen=True, kw_only=True):
    """A peer that could not complete a round waits for all others, to play the round again.

    Attributes
    ----------
    round
        Round that did not complete, counted from 0.
    seconds
        Timeout, ``transport.outage``.
    """

    round: int
    seconds: float


class BudgetExceeded(Notice, frozen=True, kw_only=True):
    """More than the privacy budget has been spent, because a release lacked a mask.

    Attributes
    ----------
    spent
        Epsilon so far.
    epsilon
        The budget, ``privacy.epsilon``.
    """

    spent: float
    epsilon: float


# ---------------------------------------------------------------------- neighbours


class KeyTrusted(Notice, frozen=True, kw_only=True):
    """The key of a neighbour is trusted because it is the first that was seen.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    key
        Fingerprint of its public key.
    """

    neighbour: str
    key: str


class NameShared(Notice, frozen=True, kw_only=True):
    """Another peer answers to the name of this one.

    Attributes
    ----------
    key
        Fingerprint of its public key.
    own
        Fingerprint of the peer's own public key.
    """

    key: str
    own: str


class VersionDiffers(Notice, frozen=True, kw_only=True):
    """A neighbour runs another release of p2pfl.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    theirs
        Release that it announces, escaped; empty if it announces none.
    ours
        Release of this peer.
    """

    neighbour: str
    theirs: str
    ours: str


class PeerExcluded(Notice, frozen=True, kw_only=True):
    """A neighbour signed two different messages for one gossip step and was excluded.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    key
        Fingerprint of its public key.
    signed
        Kind of statement that it signed twice.
    round
        Round, counted from 0.
    step
        Gossip step in the round, counted from 0.
    proof
        File with the proof; null if none is kept.
    """

    severity = "alarm"

    neighbour: str
    key: str
    signed: str
    round: int
    step: int
    proof: str | None = None


class NeighboursMissing(Notice, frozen=True, kw_only=True):
    """Neighbours did not come at the end of a run, which a peer that has played all rounds can do without.

    Attributes
    ----------
    absent
        Neighbours that never came.
    gone
        Neighbours that left.
    message
        Message of the error.
    """

    absent: tuple[str, ...]
    gone: tuple[str, ...]
    message: str


class PartnersAwaited(Notice, frozen=True, kw_only=True):
    """A release waits for mask partners.

    Attributes
    ----------
    partners
        Names of the partners.
    seconds
        Longest time that it waits.
    """

    severity = "info"

    partners: tuple[str, ...]
    seconds: float


# ---------------------------------------------------------------------- broker, clock and disk


class BrokerUnavailable(Notice, frozen=True, kw_only=True):
    """A peer waits for the broker.

    Attributes
    ----------
    message
        Message of the error.
    seconds
        Longest time that it retries; null without a limit.
    """

    message: str
    seconds: float | None


class PasswordExposed(Notice, frozen=True, kw_only=True):
    """A password travels unencrypted.

    Attributes
    ----------
    brokers
        Addresses of the brokers.
    """

    brokers: tuple[str, ...]


class ClockBehind(Notice, frozen=True, kw_only=True):
    """The clock of the device is behind the last start of the peer.

    Attributes
    ----------
    seconds
        By how much.
    key
        Fingerprint of the key of that start if it is another one; null otherwise.
    """

    seconds: int
    key: str | None = None


class AnnouncementAhead(Notice, frozen=True, kw_only=True):
    """The broker retains an announcement under the peer's name that is more than 80 years ahead of the clock.

    Attributes
    ----------
    key
        Fingerprint of the key of that announcement.
    topic
        Topic of the retained message.
    """

    key: str
    topic: str


class CheckpointDamaged(Notice, frozen=True, kw_only=True):
    """A checkpoint could not be used and was removed.

    Attributes
    ----------
    file
        Path of the checkpoint.
    message
        Message of the error.
    previous
        True if an earlier checkpoint is tried in its place.
    """

    file: str
    message: str
    previous: bool


class BestModelDamaged(Notice, frozen=True, kw_only=True):
    """The file of the best model cannot be read.

    Attributes
    ----------
    file
        Path of the model.
    message
        Message of the error.
    """

    file: str
    message: str


class SecretsRecorded(Notice, frozen=True, kw_only=True):
    """The run is recorded with all secrets of the peer.

    Attributes
    ----------
    file
        Path of the recording.
    """

    file: str
