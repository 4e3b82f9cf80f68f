"""Notices of the course of a peer: its phases and waits, and how it ends."""

from __future__ import annotations

from typing import Literal

from p2pfl.report.notices.kinds import Notice


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
