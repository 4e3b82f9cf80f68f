"""Notices of observers, who see peers from outside, and of what they can no longer see."""

from __future__ import annotations

from typing import Literal

from p2pfl.results.notices.kinds import Notice


class PeerAnnounced(Notice, frozen=True, kw_only=True):
    """The broker retains a new announcement, as an observer sees it.

    Attributes
    ----------
    status
        ``up``; ``left`` after a goodbye; ``dead`` if the broker lost it.
    done
        Whether it left after all rounds.
    """

    severity = "info"

    status: Literal["up", "left", "dead"]
    done: bool = False


class PeerSilent(Notice, frozen=True, kw_only=True):
    """A connected peer gives no sign of life.

    Attributes
    ----------
    seconds
        Since the last one.
    """

    seconds: float


class PeerResponded(Notice, frozen=True, kw_only=True):
    """A silent peer gives signs of life again."""

    severity = "info"


class TelemetryStopped(Notice, frozen=True, kw_only=True):
    """Observers cannot look at a peer.

    Attributes
    ----------
    message
    """

    message: str


class ScoresRecalled(Notice, frozen=True, kw_only=True):
    """A peer sends earlier scores to an observer that comes late.

    Attributes
    ----------
    score
        Name.
    rounds, values
    """

    severity = "info"

    score: str
    rounds: tuple[int, ...]
    values: tuple[float, ...]
