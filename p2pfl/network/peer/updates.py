"""Updates that a running peer sends to the process that started it: records, progress, notices and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from p2pfl.core.explanations import Explained
from p2pfl.network.peer.storage.checkpoint import Best
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.results import Record
from p2pfl.results.content import GainInterval, Unsettled
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.spending.stated import BudgetStop


@dataclass(frozen=True)
class Progress:
    """Current activity of a peer, for observers.

    Attributes
    ----------
    phase
        One of ``gathering``, ``learning``, ``paused`` (between two rounds), ``asleep`` and ``leaving``.
    round
        Current round.
    waiting
        Neighbours that the peer waits for.
    present
        Neighbours that are present.
    connected
        True if the broker is reachable.
    stalled
        True if the peer has waited in the same gossip step longer than a second.
    """

    peer: str
    phase: str
    round: int
    waiting: tuple[str, ...]
    present: tuple[str, ...] = ()
    connected: bool = True
    stalled: bool = False


class Done(msgspec.Struct, frozen=True):
    """Final results of a peer.

    Attributes
    ----------
    scores, common
        Final scores of the peer's model, and of the common model of all peers.
    memory
        Private memory of the process in bytes.
    written
        Bytes that the process has written for the peer.
    stopped
        Where the privacy budget ended the run; ``None`` if it did not.
    best, unsettled
        Best model that the peer keeps, and the state that it could not settle with its neighbours.
    spent
        Epsilon spent so far.
    explained
        Importances or coefficients of the features, where the model has them.
    played
        Number of rounds by setting of DP-SGD; ``None`` if single samples have no guarantee.
    """

    peer: str
    scores: dict[str, float]
    memory: int | None
    written: int | None = None
    common: dict[str, float] | None = None
    stopped: BudgetStop | None = None
    best: Best | None = None
    unsettled: Unsettled | None = None
    spent: float | None = None
    played: dict[SampledSteps, int] | None = None
    explained: Explained | None = None


class Alone(msgspec.Struct, frozen=True):
    """Model that a peer has trained alone after the run, on its own data for as many rounds.

    Attributes
    ----------
    scores
        Its scores.
    intervals
        Intervals of what the peer gained by learning with the others, by score.
    """

    peer: str
    scores: dict[str, float]
    intervals: dict[str, GainInterval] = {}


class Failed(msgspec.Struct, frozen=True):
    """Error that ended a peer early.

    Attributes
    ----------
    reason, status
        Message and exit status of the error.
    error
        Name of the error's class.
    """

    peer: str
    reason: str
    status: int
    error: str = "RunError"


class ModelDescription(msgspec.Struct, frozen=True):
    """Content of ``model.json``, sent once a peer knows it, and identical at all peers of a run."""

    peer: str
    about: dict[str, Any]


class Alive(msgspec.Struct, frozen=True):
    """Sign of life of a peer that has made progress while its reported activity stays the same."""

    peer: str


Event = Record | Progress | Notice | Alive | ModelDescription | Done | Alone | Failed
