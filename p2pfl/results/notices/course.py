"""Notices of the course of a peer: its phases and waits, and how it ends."""

from __future__ import annotations

from typing import Literal

from p2pfl.results.notices.kinds import Notice


class PhaseBegan(Notice, frozen=True, kw_only=True):
    """A peer began a phase of its run.

    Attributes
    ----------
    phase
        ``joining``, ``gathering``, ``learning``, ``leaving`` or ``done``.
    round
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
    neighbours
        For which it waits; a later event replaces them.
    connected
        Whether it reaches the broker.
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
    came, left
    """

    severity = "info"

    came: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class PeerFinished(Notice, frozen=True, kw_only=True):
    """A peer ended as it should.

    Attributes
    ----------
    scores
        Final scores.
    """

    severity = "info"

    scores: dict[str, float]


class PeerFailed(Notice, frozen=True, kw_only=True):
    """A peer ended early.

    Attributes
    ----------
    error
        Class.
    message
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
        First round in which it takes part.
    rounds
        Of the experiment.
    again
        Whether it comes back.
    """

    round: int
    rounds: int
    again: bool


class ReleasesEnded(Notice, frozen=True, kw_only=True):
    """An earlier incarnation promised to release nothing more; the model stays as it is.

    Attributes
    ----------
    rounds
        Rounds behind the model.
    lost
        Whether a newer model was released and is lost.
    """

    rounds: int
    lost: bool


class LearningStopped(Notice, frozen=True, kw_only=True):
    """A peer may not release another model, and stops learning.

    Attributes
    ----------
    reason
        ``budget`` (spent), ``partners`` (too few mask partners) or ``undecided`` (which models count).
    message
    """

    reason: Literal["budget", "partners", "undecided"]
    message: str


class AwaitsReturn(Notice, frozen=True, kw_only=True):
    """A round did not complete; the peer waits for all others, to play it again.

    Attributes
    ----------
    round
    seconds
        Timeout, ``transport.outage``.
    """

    round: int
    seconds: float


class BudgetExceeded(Notice, frozen=True, kw_only=True):
    """More than the privacy budget is spent, because a release lacked a mask.

    Attributes
    ----------
    spent
        Epsilon so far.
    epsilon
        The budget.
    """

    spent: float
    epsilon: float
