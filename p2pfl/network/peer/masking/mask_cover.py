"""The end of a run: what partners owe each other is paid, and said where it cannot be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import torch

from p2pfl.algorithms import State
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import derived
from p2pfl.experiment import Plan
from p2pfl.network.protocol.ledgers.flows import Row
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.payments import Payment, points, scatter
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers, heaviest
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.privacy import Masks
from p2pfl.privacy.masks import check_partners
from p2pfl.privacy.normal_stream import Ints

RELEASED_NUMBERS = 2**25
"""Numbers of late masks that one release draws at most, about 8 s of one core; the others are paid later."""

SETTLED_NUMBERS = 2**28
"""Numbers of masks that a peer draws at most to settle, about a minute of one core; the others stay unsettled."""


def peer_ledgers_of(plan: Plan, peer: str, *, large: bool) -> PeerLedgers:
    """Return the ledgers of one peer: flows along edges that weigh alike at both ends, unless models are too large.

    Peers that wait for nobody mix nothing, and neither attacks nor robust rules keep a mean. Under acceleration a flow
    that comes late has another share in the model than one that came in time.

    Parameters
    ----------
    large
        True if rows are so large that they come one at a time.
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
        heaviest=heaviest(len(plan.topology.peers)),
    )


class Cover:
    """The masks of one peer's releases, as its ledger decides them; in place of :class:`p2pfl.privacy.Masks`.

    Parameters
    ----------
    masks
        Their secrets, deviation, grid and graph.
    ledger
        Decides.
    places
        The places of a row that a round releases, ``[Q]`` in the order of the release.
    least
        Number of partners that a release needs.
    charged
        Releases of earlier incarnations that count as hidden by their private noise alone.
    """

    def __init__(
        self,
        masks: Masks,
        ledger: MaskLedger,
        *,
        positions: Callable[[int], Ints],
        least: int = 1,
        charged: Collection[Slot] = (),
    ) -> None:
        self.masks = masks
        self.ledger = ledger
        self.places = positions
        self.least = least
        self.whole = True
        """True if the last release had all masks of the graph."""
        self.charged: set[Slot] = {*charged}
        """Releases that count as hidden by their private noise alone."""
        self.slot: Slot | None = None
        """Of the last release with fresh masks."""
        self._payment: Payment | None = None

    @property
    def deviation(self) -> float:
        """Of an edge's noise."""
        return self.masks.deviation

    @property
    def bits(self) -> int:
        """Of the grid."""
        return self.masks.bits

    @property
    def _shared(self) -> set[str]:
        """Neighbours with which there is a secret."""
        return {peer for edge in self.masks.secrets for peer in edge}

    def _neighbours(self, round: int) -> frozenset[str]:
        return frozenset(self.masks.topology.at(round).neighbours(self.ledger.peer))

    def _here(self, round: int, present: frozenset[str]) -> frozenset[str]:
        return self._neighbours(round) & present & self._shared

    def missing_partners(self, round: int, *, present: frozenset[str]) -> frozenset[str]:
        """Return the partners to wait for before a release of this round; none where enough are present."""
        neighbours, here = self._neighbours(round), self._here(round, present)
        return neighbours - here if len(here) < min(self.least, len(neighbours)) else frozenset()

    def partners(self, round: int, *, present: frozenset[str]) -> frozenset[str]:
        """Return the neighbours of the mask graph with which to mask a release.

        Parameters
        ----------
        round
            Round of the release.
        present
            Peers that take part in the round. Those of them that share a secret are partners, and must be enough.

        Raises
        ------
        CoverError
            Too few are there to share a mask with.
        """
        neighbours, here = self._neighbours(round), self._here(round, present)
        if neighbours:
            check_partners(self.ledger.peer, here, neighbours, least=self.least)
        return here

    def covers(self, round: int, *, present: frozenset[str]) -> bool:
        """Return whether the next release will have all masks of the graph, and take no slot yet.

        The parameters are those of :meth:`partners`.

        Raises
        ------
        CoverError
            Too few are there to share a mask with.
        """
        return self.partners(round, present=present) == self._neighbours(round)

    def decide(self, round: int, *, present: frozenset[str]) -> frozenset[str]:
        """Choose the masks of the next release: with its partners, and what is owed at the same places.

        The parameters are those of :meth:`partners`.

        Returns
        -------
        frozenset[str]
            Partners with which the release is masked.

        Raises
        ------
        CoverError
            Fewer partners are present than a release needs.
        """
        here = self.partners(round, present=present)
        there = self.places(round)

        def payable(slot: Slot) -> bool:
            return slot.round == round or np.array_equal(self.places(slot.round), there)

        most = self._affordable(RELEASED_NUMBERS, size=len(there))
        self._payment = self.ledger.release(round, partners=here, shared=self._shared, payable=payable, most=most)
        self.slot = self._payment.slot
        self.whole = here == self._neighbours(round)
        if not self.whole and self._payment.slot is not None:
            self.charged.add(self._payment.slot)
        return here

    def _affordable(self, numbers: int, *, size: int) -> int:
        """Return the late masks of each partner that so many numbers allow, so that none of them delays a round."""
        return max(1, numbers // max(1, size * len(self.ledger.partners)))

    def settle(self, where: Ints) -> Ints | None:
        """Return what is owed at places ``[Q]`` of a row, without fresh masks, ``[1, Q]``; ``None`` for nothing."""
        most = self._affordable(SETTLED_NUMBERS, size=len(where))
        payment = self.ledger.settle(shared=self._shared, most=most)
        if not payment.terms:
            return None
        return scatter(payment, masks=self.masks, positions=self.places, where=where)[np.newaxis]

    def find_uncovered(self, halves: set[tuple[str, Slot]]) -> list[Slot]:
        """Return the releases that turned out to lack a partner's half of a mask and are not charged for it yet."""
        return sorted({slot for _, slot in halves} - self.charged)

    def sums(self, peers: Sequence[str], *, round: int, size: int, attempt: int = 0) -> Ints:
        """Return the sum of the masks decided, grid points ``[1, P]``.

        Raises
        ------
        PrivacyError
            None were decided, or the release is not as long as the algorithm declares, so that nobody could tell later
            where its masks are to be paid.
        """
        del peers, round, attempt  # one peer, and the ledger knows the slot
        if self._payment is None:
            raise PrivacyError("no masks were decided for this release; decide them before they are drawn")
        payment, self._payment = self._payment, None
        if payment.slot is not None and size != (declared := len(self.places(payment.slot.round))):
            raise PrivacyError(
                f"the algorithm releases {size} numbers under masks and declares {declared}; give it a method "
                "places(size, *, round) that returns the places of the row that it releases"
            )
        drawn = points(payment, masks=self.masks, size=size)  # [P]
        return drawn[np.newaxis]


def shift(state: State, row: Row | None, *, mass: float | None) -> State:
    """Return the models with what arrived after the last gossip step; homogeneous if there is a weight."""
    if row is None:
        return state
    late = torch.from_numpy(row).to(state.public.rows)  # [P] or [P + 1]
    if mass is None:
        moved = late
    else:
        if mass + float(late[-1]) <= 0:
            return state
        moved = (late[:-1] - late[-1] * state.public.rows[0]) / (mass + late[-1])  # [P]
    return replace(state, rows=state.rows + moved, public=derived(lambda public: public + moved, state.public))
