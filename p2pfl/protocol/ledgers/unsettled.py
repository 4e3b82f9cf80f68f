"""What is still open between peers at the end of a run: masks that did not cancel, and what moved one model only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from p2pfl.protocol.ledgers.books import Books
from p2pfl.protocol.ledgers.payments import residual_variance

MOVED = "may have moved only one of two models, which changes the mean of all models"
"""Possible effect of a gossip step that was not settled."""


class Unsettled(msgspec.Struct, frozen=True):
    """What one peer could not settle with its neighbours.

    Attributes
    ----------
    masks
        By partner, how many masks may not have cancelled.
    deviation
        Standard deviation of what these leave in a parameter of the average.
    steps
        By neighbour, gossip steps that may have moved only one of the two models.
    sums
        By neighbour, sums that lacked its part.
    earlier
        Neighbours that nobody told what an earlier incarnation left open.
    """

    masks: dict[str, int] = {}
    deviation: float = 0.0
    steps: dict[str, int] = {}
    sums: dict[str, int] = {}
    earlier: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.masks or self.steps or self.sums or self.earlier)

    @property
    def facts(self) -> dict[str, Any]:
        """As a summary lists them."""
        return msgspec.structs.asdict(self)

    @property
    def sentences(self) -> list[str]:
        """Each kind in a sentence."""
        found = []
        if self.masks:
            count = counted(sum(self.masks.values()), "mask")
            found.append(
                f"{count} shared with {', '.join(self.masks)} may not have cancelled: noise of deviation "
                f"{self.deviation:.2g} or less may stay in each parameter of the mean model"
            )
        found += [
            f"{counted(sum(each.values()), *what)} {', '.join(sorted(each))} {MOVED}"
            for what, each in ((("gossip step", "with"), self.steps), (("sum", "without"), self.sums))
            if each
        ]
        if self.earlier:
            found.append(
                f"gossip steps of an earlier incarnation with {', '.join(self.earlier)} {MOVED}, because no neighbour "
                "confirmed that it reverted them"
            )
        return found


def counted(count: int, what: str, then: str = "") -> str:
    """Return a number of things in words.

    Examples
    --------
    >>> counted(1, "mask"), counted(2, "gossip step", "with")
    ('1 mask', '2 gossip steps with')
    """
    return f"{count} {what}{'' if count == 1 else 's'}" + (f" {then}" if then else "")


def unsettled(books: Books, *, deviation: float, peers: int, missed: Mapping[str, int]) -> Unsettled:
    """Return what stays open at the end of a run.

    Parameters
    ----------
    books
        What was moved along edges.
    deviation, peers
        Standard deviation of a mask, and how many models are averaged.
    missed
        By neighbour, how many sums lacked its part.

    Returns
    -------
    Unsettled
        False as a condition if nothing is open.
    """
    masks = books.masks.uncancelled()
    ends = Counter(end for mask in masks for end in mask.edge if end != books.peer)
    spread = residual_variance(masks, deviation=deviation) ** 0.5 / peers if masks else 0.0
    steps = Counter(partner for partner, _ in {*books.flows.unsettled(), *books.flows.lost})
    return Unsettled(
        dict(sorted(ends.items())),
        spread,
        dict(sorted(steps.items())),
        dict(sorted(missed.items())),
        tuple(sorted(books.unaware)),
    )
