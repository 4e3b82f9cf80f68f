"""Masks of one live peer's releases: with which partners, under which names, and whether they hide the update."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from p2pfl.core.errors import PrivacyError
from p2pfl.experiment import Plan
from p2pfl.network.protocol.ledgers.mask_slots import START, Mask, MaskSlots, Slot, draw_masks
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers, heaviest
from p2pfl.privacy import Masks
from p2pfl.privacy.masks import check_partners
from p2pfl.privacy.normal_stream import Ints


def peer_ledgers_of(plan: Plan, peer: str, *, large: bool, until: Slot = START) -> PeerLedgers:
    """Return the ledgers of one peer: flows along edges that weigh alike at both ends, unless models are too large.

    Peers that wait for nobody mix nothing, and neither attacks nor robust rules keep a mean. Under acceleration a flow
    that comes late has another share in the model than one that came in time. Under masks no model comes late.

    Parameters
    ----------
    plan, peer
        The experiment, and the peer.
    large
        True if rows are so large that they come one at a time.
    until
        Slot before which all names of masks may have been used.
    """
    fair = plan.protection.sums is None and not large  # sums are not rows
    fair &= not plan.commits  # all models of a round arrive, or none count
    fair &= not plan.asynchronous
    fair &= all(weights.symmetric for weights in plan.weights)
    fair &= plan.rule is None and plan.attack is None
    fair &= all(omega == 1 for omega in plan.gossip.omegas)
    return PeerLedgers(
        peer,
        gossip=plan.topology.neighbours(peer) if fair else None,
        masks=plan.protection.graph.neighbours(peer) if plan.masked else (),
        until=until,
        heaviest=heaviest(len(plan.topology.peers)),
    )


class MaskCover:
    """Masks of one peer's releases, which cancel within an attempt; in place of :class:`p2pfl.privacy.Masks`.

    Parameters
    ----------
    masks
        Their secrets, deviation, grid and graph.
    slots
        Names of masks that this peer has used.
    least
        Number of partners that a release needs.
    charged
        Releases of earlier incarnations that count as hidden by their private noise alone.

    Attributes
    ----------
    attempt
        Number of the attempt, which the masks name.
    alone
        True if the update of the round counts as hidden by its private noise alone.
    charged
        Releases that count as hidden by their private noise alone.
    drawn
        Sum of the masks of the last release, grid points ``[1, P]``.
    """

    attempt = 0
    alone = False
    drawn: Ints

    def __init__(self, masks: Masks, slots: MaskSlots, *, least: int = 1, charged: Collection[Slot] = ()) -> None:
        self.masks, self.slots, self.least = masks, slots, least
        self.charged: set[Slot] = {*charged}
        self._terms: dict[Mask, int] | None = None  # of the next release

    @property
    def deviation(self) -> float:
        """Deviation of an edge's noise."""
        return self.masks.deviation

    @property
    def bits(self) -> int:
        """Fraction bits of the grid."""
        return self.masks.bits

    @property
    def _shared(self) -> set[str]:
        """Neighbours with which there is a secret."""
        return {peer for edge in self.masks.secrets for peer in edge}

    def _neighbours(self, round: int) -> frozenset[str]:
        return frozenset(self.masks.topology.at(round).neighbours(self.slots.peer))

    def strangers(self, round: int, *, members: frozenset[str]) -> frozenset[str]:
        """Return the mask partners among the members with which this peer shares no secret."""
        return (self._neighbours(round) & members) - self._shared

    def partners(self, round: int, *, members: frozenset[str]) -> frozenset[str]:
        """Return the partners with which to mask a release: all among the members.

        Raises
        ------
        CoverError
            Fewer partners are members than a release needs.
        """
        neighbours = self._neighbours(round)
        here = neighbours & members & self._shared
        if neighbours:
            check_partners(self.slots.peer, here, neighbours, least=self.least)
        return here

    def covers(self, round: int, *, members: frozenset[str]) -> bool:
        """Return whether the next release will have all masks of the graph; as :meth:`partners`."""
        return self.partners(round, members=members) == self._neighbours(round)

    def decide(self, round: int, *, members: frozenset[str]) -> frozenset[str]:
        """Choose the masks of the next release, and return the partners that share them; as :meth:`partners`."""
        here, slot = self.partners(round, members=members), Slot(self.attempt, round)
        self._terms = self.slots.take(slot, partners=here)
        if self.alone or here != self._neighbours(round):
            self.charged.add(slot)
        return here

    def sums(self, peers: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Ints:
        """Return the sum of the masks decided, grid points ``[1, P]``, and keep a copy of it.

        Raises
        ------
        PrivacyError
            None were decided.
        """
        del peers, round, attempt  # one peer, and the masks name the slot
        if self._terms is None:
            raise PrivacyError("no masks were decided for this release; decide them before they are drawn")
        terms, self._terms = self._terms, None
        drawn = draw_masks(terms, masks=self.masks, size=size)[np.newaxis]
        self.drawn = drawn.copy()
        return drawn
