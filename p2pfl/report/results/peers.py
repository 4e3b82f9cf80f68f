"""Results of one peer in ``summary.json``."""

from __future__ import annotations

from typing import Literal

import msgspec


class Unsettled(msgspec.Struct, frozen=True):
    """State that one peer could not settle with its neighbours.

    Attributes
    ----------
    masks
        Number of masks that may not have cancelled, by partner.
    deviation
        Standard deviation of what these leave in a parameter of the average.
    steps
        Number of gossip steps that may have moved only one of the two models, by neighbour.
    sums
        Number of sums that lacked the part of a neighbour, by neighbour.
    earlier
        Neighbours that did not learn what an earlier incarnation left open.
    """

    masks: dict[str, int] = {}
    deviation: float = 0.0
    steps: dict[str, int] = {}
    sums: dict[str, int] = {}
    earlier: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.masks or self.steps or self.sums or self.earlier)


class BestKept(msgspec.Struct, frozen=True):
    """The best model of a peer.

    Attributes
    ----------
    round
        Round that it comes from, counted from 0.
    loss
        Its mean loss.
    part
        Part of the peer's data that it has this loss on: ``validation`` or ``train``.
    file
        File of the model in the run directory.
    """

    round: int
    loss: float
    part: str
    file: str


class GainInterval(msgspec.Struct, frozen=True):
    """95 % interval of the gain of a score on new data.

    Attributes
    ----------
    low, high
        Ends of the interval.
    method
        ``newcombe`` for a share of samples (Newcombe's method 10); ``paired t`` for other means over samples
        (Student's t for the differences of the two models on the same samples); ``bootstrap`` for scores of a whole
        set (percentiles of the differences on resampled test samples).
    draws
        Number of bootstrap samples; null for the other methods.
    """

    low: float
    high: float
    method: Literal["newcombe", "paired t", "bootstrap"]
    draws: int | None = None


class PeerResult(msgspec.Struct, frozen=True):
    """Scores of one peer.

    Attributes
    ----------
    alone
        Score of a model that the peer trains alone; null if unknown.
    together
        Score of the model that it learned with the others; null if unknown.
    attacker
        True if the peer attacks the others.
    samples
        Number of its training samples; null if a run does not split data itself.
    tested
        Number of samples that its scores are means over; null like ``samples``.
    interval
        Interval of the gain; null where nothing sound can be computed.
    """

    alone: float | None
    together: float | None
    attacker: bool
    samples: int | None = None
    tested: int | None = None
    interval: GainInterval | None = None
