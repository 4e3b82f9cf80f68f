"""What a running peer sends to whoever started it: its records, progress, notices and results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from p2pfl.peer.storage.best import Best
from p2pfl.privacy.accounting.examples import Sampling
from p2pfl.report import Record
from p2pfl.report.notices.kinds import Notice
from p2pfl.report.results import BudgetStop, Unsettled


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
        Neighbours that it waits for.
    present
        Neighbours that are present.
    connected
        Whether the broker can be reached.
    """

    peer: str
    phase: str
    round: int
    waiting: tuple[str, ...]
    present: tuple[str, ...] = ()
    connected: bool = True


class Done(msgspec.Struct, frozen=True):
    """Results of a peer at its end.

    Attributes
    ----------
    scores, common
        Its final scores, and those of the one model of all peers.
    memory
        Its private memory in bytes.
    stopped
        How the privacy budget stopped it early.
    given, vanished
        Of running sums, what it gave each neighbour, and which of these disappeared and did not come back.
    best, unsettled
        The best model that it keeps, and what it could not settle with its neighbours.
    spent
        Epsilon so far.
    samplings
        Noise, rate, steps and count of each kind of steps of DP-SGD.
    """

    peer: str
    scores: dict[str, float]
    memory: int | None
    common: dict[str, float] | None = None
    stopped: BudgetStop | None = None
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
    """The error with which a peer ended early.

    Attributes
    ----------
    reason, status
        Message and exit status of the error.
    error
        Class of the error.
    """

    peer: str
    reason: str
    status: int
    error: str = "RunError"


class Described(msgspec.Struct, frozen=True):
    """The content of ``model.json``, as soon as a peer knows it; all peers of a run know the same."""

    peer: str
    about: dict[str, Any]


class Alive(msgspec.Struct, frozen=True):
    """A sign of life: the peer has moved on, but what it is doing reads the same."""

    peer: str


Event = Record | Progress | Notice | Alive | Described | Done | Failed
