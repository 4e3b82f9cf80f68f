"""What is still open between peers at the end of a run: masks that did not cancel, and what moved one model only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from p2pfl.protocol.ledgers.books import Books
from p2pfl.protocol.ledgers.payments import residual_variance


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
            found.append(
                f"{sum(self.masks.values())} masks shared with {', '.join(self.masks)} may not have cancelled: they "
                f"move a number of the mean by a deviation of at most {self.deviation:.2g}"
            )
        found += [
            f"{sum(each.values())} {what} {', '.join(sorted(each))} may have moved only one of two rows: "
            "the mean of the rows is not what it was"
            for what, each in (("exchanges with", self.steps), ("sums without", self.sums))
            if each
        ]
        if self.earlier:
            found.append(
                f"exchanges of an earlier life with {', '.join(self.earlier)} may have moved only one of two rows, as "
                "nobody said that they were taken back: the mean of the rows is not what it was"
            )
        return found


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
    return Unsettled(dict(sorted(ends.items())), spread, dict(steps), dict(missed), tuple(sorted(books.unaware)))
