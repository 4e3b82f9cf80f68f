"""Notices of observers, who see peers from outside, and of what they can no longer see."""

from __future__ import annotations

from typing import Literal

from p2pfl.report.notices.kinds import Notice


class PeerAnnounced(Notice, frozen=True, kw_only=True):
    """The broker retains a new announcement of a peer, as an observer of the swarm sees it.

    Attributes
    ----------
    status
        ``up``; ``left`` after a goodbye; ``dead`` if the broker lost it.
    done
        True if the peer left after all rounds.
    """

    severity = "info"

    status: Literal["up", "left", "dead"]
    done: bool = False


class PeerSilent(Notice, frozen=True, kw_only=True):
    """A peer has given no sign of life, although its connection exists.

    Attributes
    ----------
    seconds
        Time since the last one.
    """

    seconds: float


class PeerResponded(Notice, frozen=True, kw_only=True):
    """A peer that was silent gives signs of life again."""

    severity = "info"


class TelemetryStopped(Notice, frozen=True, kw_only=True):
    """Observers cannot look at a peer.

    Attributes
    ----------
    message
        Message of the error.
    """

    message: str


class ScoresRecalled(Notice, frozen=True, kw_only=True):
    """A peer sends its earlier scores to an observer that comes late.

    Attributes
    ----------
    score
        Name of the score.
    rounds, values
        Some of the earlier rounds, and the score after each of them.
    """

    severity = "info"

    score: str
    rounds: tuple[int, ...]
    values: tuple[float, ...]
