"""Notices of what harms the mean of all models: masks that did not cancel, and what stays open at the end of a run."""

from __future__ import annotations

from p2pfl.results.notices.kinds import Notice


class Alarm(Notice, frozen=True, kw_only=True):
    """Notice that something harms the result.

    Attributes
    ----------
    round
    partners
        From which nothing came.
    before, now, best_round, best_file
    cancelled
        Whether the masks have cancelled since.
    """

    severity = "alarm"

    round: int
    partners: tuple[str, ...] = ()
    before: dict[str, float] | None = None
    now: dict[str, float]
    best_round: int | None = None
    best_file: str | None = None
    cancelled: bool = False


class MasksUncancelled(Alarm, frozen=True, kw_only=True):
    """Masks that did not cancel are in the models.

    Attributes
    ----------
    deviation
        Standard deviation of their noise in a parameter of the average.
    """

    deviation: float


class LossRose(Alarm, frozen=True, kw_only=True):
    """The loss rose steeply; models may contain masks of a peer that disappeared."""


class MasksCancelled(Notice, frozen=True, kw_only=True):
    """Masks of an earlier alarm have cancelled.

    Attributes
    ----------
    round
        Of the alarm.
    partners
    """

    severity = "resolved"

    round: int
    partners: tuple[str, ...]


class SettlementIncomplete(Notice, frozen=True, kw_only=True):
    """Models are missing from the gossip step in which masks are settled.

    Attributes
    ----------
    neighbours
        From which nothing came.
    """

    neighbours: tuple[str, ...]


class MasksUnsettled(Notice, frozen=True, kw_only=True):
    """Masks may not have cancelled at the end of a run.

    Attributes
    ----------
    masks
        Number by partner.
    deviation
        Their standard deviation in a parameter of the average.
    """

    masks: dict[str, int]
    deviation: float


class StepsUnsettled(Notice, frozen=True, kw_only=True):
    """Gossip steps may have moved only one of two models.

    Attributes
    ----------
    steps
        Number by neighbour.
    """

    steps: dict[str, int]


class SumsUnsettled(Notice, frozen=True, kw_only=True):
    """Sums lacked the part of a neighbour.

    Attributes
    ----------
    sums
        Number by neighbour.
    """

    sums: dict[str, int]


class RestartUnsettled(Notice, frozen=True, kw_only=True):
    """No neighbour confirmed that it reverted gossip steps of an earlier incarnation.

    Attributes
    ----------
    neighbours
    """

    neighbours: tuple[str, ...]


class ConsensusUnknown(Notice, frozen=True, kw_only=True):
    """The peers could not agree on a model, and the peer keeps its own.

    Attributes
    ----------
    message
    """

    message: str


class CommonScoresUnknown(Notice, frozen=True, kw_only=True):
    """The scores of the common model stay unknown.

    Attributes
    ----------
    message
    """

    message: str
