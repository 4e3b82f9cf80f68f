"""Results of one peer in ``summary.json``."""

from __future__ import annotations

from typing import Literal

import msgspec


class Unsettled(msgspec.Struct, frozen=True):
    """State that one peer could not settle with its neighbours.

    Attributes
    ----------
    masks
        Masks that may not have cancelled, by partner.
    deviation
        Standard deviation of these masks in a parameter of the average.
    steps
        Gossip steps that may have moved only one of two models, by neighbour.
    sums
        Sums that lacked the part of a neighbour, by neighbour.
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
    loss
        Mean loss.
    part
        Data of this loss: ``validation`` or ``train``.
    file
        Path in the run directory.
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
    method
        ``newcombe`` for a share of samples; ``paired t`` for other means over samples; ``bootstrap`` for scores of a
        whole set.
    draws
        Bootstrap samples.
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
        Score of a model trained alone.
    together
        Score of the model learned with the others.
    attacker
    samples
        Training samples; null if the run does not split data itself.
    tested
        Samples behind the scores.
    interval
    """

    alone: float | None
    together: float | None
    attacker: bool
    samples: int | None = None
    tested: int | None = None
    interval: GainInterval | None = None
