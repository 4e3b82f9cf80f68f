"""State that stays open at the end of a run: masks that did not cancel, and flows that moved one model only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from p2pfl.network.protocol.ledgers.payments import residual_variance
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.results.content import Unsettled
from p2pfl.results.notices.kinds import MasksUnsettled, Notice, RestartUnsettled, StepsUnsettled, SumsUnsettled


def unsettled(ledgers: PeerLedgers, *, deviation: float, peers: int, missed: Mapping[str, int]) -> Unsettled:
    """Return what stays open at the end of a run.

    Parameters
    ----------
    ledgers
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
    masks = ledgers.masks.uncancelled()
    ends = Counter(end for mask in masks for end in mask.edge if end != ledgers.peer)
    spread = residual_variance(masks, deviation=deviation) ** 0.5 / peers if masks else 0.0
    steps = Counter(partner for partner, _ in {*ledgers.flows.unsettled(), *ledgers.flows.lost})
    return Unsettled(
        dict(sorted(ends.items())),
        spread,
        dict(sorted(steps.items())),
        dict(sorted(missed.items())),
        tuple(sorted(ledgers.unaware)),
    )


def left_open(peer: str, found: Unsettled) -> list[Notice]:
    """Return a notice of each kind of what a peer could not settle; none if nothing is open."""
    said: list[Notice] = []
    if found.masks:
        said.append(MasksUnsettled(peer=peer, masks=found.masks, deviation=found.deviation))
    if found.steps:
        said.append(StepsUnsettled(peer=peer, steps=found.steps))
    if found.sums:
        said.append(SumsUnsettled(peer=peer, sums=found.sums))
    if found.earlier:
        said.append(RestartUnsettled(peer=peer, neighbours=found.earlier))
    return said
