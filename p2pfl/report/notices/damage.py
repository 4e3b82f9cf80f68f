"""Notices of what harms the mean of all models: masks that did not cancel, and what stays open at the end of a run."""

from __future__ import annotations

from p2pfl.report.notices.kinds import Notice


class Alarm(Notice, frozen=True, kw_only=True):
    """Something harms the result.

    Attributes
    ----------
    round
        Round in which it happened, counted from 0.
    partners
        Mask partners from which nothing came in it.
    before
        Scores of the peer before the round; null if there are none.
    now
        Scores of the peer after the round.
    best_round
        Round of the best model so far; null if none is kept.
    best_file
        File of the best model so far; null if none is kept.
    cancelled
        True if all masks of these partners have cancelled since.
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
        Standard deviation of the noise that they leave in a parameter of the average.
    """

    deviation: float


class LossRose(Alarm, frozen=True, kw_only=True):
    """The loss rose steeply, so the models may contain masks of a peer that disappeared."""


class MasksCancelled(Notice, frozen=True, kw_only=True):
    """Masks of an earlier alarm have cancelled.

    Attributes
    ----------
    round
        Round of the alarm, counted from 0.
    partners
        Mask partners whose masks have cancelled.
    """

    severity = "resolved"

    round: int
    partners: tuple[str, ...]


class SettlementIncomplete(Notice, frozen=True, kw_only=True):
    """Models are missing from the gossip step in which masks are settled.

    Attributes
    ----------
    neighbours
        Neighbours from which nothing came.
    """

    neighbours: tuple[str, ...]


class MasksUnsettled(Notice, frozen=True, kw_only=True):
    """Masks may not have cancelled at the end of a run.

    Attributes
    ----------
    masks
        Number of masks by partner.
    deviation
        Standard deviation of what they leave in a parameter of the average.
    """

    masks: dict[str, int]
    deviation: float


class StepsUnsettled(Notice, frozen=True, kw_only=True):
    """Gossip steps may have moved only one of two models.

    Attributes
    ----------
    steps
        Number of gossip steps by neighbour.
    """

    steps: dict[str, int]


class SumsUnsettled(Notice, frozen=True, kw_only=True):
    """Sums lacked the part of a neighbour.

    Attributes
    ----------
    sums
        Number of sums by neighbour.
    """

    sums: dict[str, int]


class RestartUnsettled(Notice, frozen=True, kw_only=True):
    """No neighbour confirmed that it reverted gossip steps of an earlier incarnation.

    Attributes
    ----------
    neighbours
        Names of the neighbours.
    """

    neighbours: tuple[str, ...]


class WeightLost(Notice, frozen=True, kw_only=True):
    """A neighbour that disappeared took weight with it.

    Attributes
    ----------
    neighbour
        Name of the neighbour.
    weight
        Weight that it received from this peer beyond what it gave back.
    """

    neighbour: str
    weight: float


class ConsensusUnknown(Notice, frozen=True, kw_only=True):
    """The peer keeps its own model, because the peers could not agree on one.

    Attributes
    ----------
    message
        Message of the error.
    """

    message: str


class CommonScoresUnknown(Notice, frozen=True, kw_only=True):
    """The scores of the common model stay unknown.

    Attributes
    ----------
    message
        Message of the error.
    """

    message: str
