"""Ledgers of a peer: which models of its partners it has applied, and which names of masks it has used.

This module connects :mod:`p2pfl.network.protocol.ledgers.flows` with the messages of one incarnation. A checkpoint
holds the :class:`Page` that belongs to its model, and a later incarnation continues from it. The slots of masks
(:mod:`p2pfl.network.protocol.ledgers.mask_slots`) must not go back with the model, so the journal keeps them.

A flow that is found late belongs to the models of an earlier gossip step. In plain gossip it would by now be part of
them unchanged, so it enters with the next gossip step of the same release, in the next round if necessary. It does not
enter what is released, which other peers have already received. Accelerated gossip has no such rule: there flows are
not conserved. Under masks there are none, because a round counts once all its models have arrived.

*Weights* begin anew in each round, and a model is divided by the weight of its sum. A flow of an earlier gossip step
waits while it would leave less than half of that weight, so whatever was lost, the divisor is at least half of the
weight of what has arrived in time, which is positive. Later flows of the same release wait with it. What waits to the
end is reported as unsettled.

*Late peers.* A peer that enters late begins with the average of the others, and leaves its former model behind. What
partners have applied of that model stays applied, and what was owed to it goes with it: in a first round, in which the
own weight is 0, it would be divided by the small share of the others.

*Room.* Flows are held until the partner reports that it has applied them. A peer reports at once when it, or a partner,
comes back: two that meet for fewer gossip steps than lie between two reports, again and again, would never confirm
anything, fill their room, and refuse each other's models at one end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from p2pfl.core.errors import DecodeError, P2PFLError
from p2pfl.core.neighbourhood import Released
from p2pfl.core.tensors import torch
from p2pfl.network.protocol.ledgers.flows import FlowLedger, FlowNotes, GossipStep, Row
from p2pfl.network.protocol.ledgers.mask_slots import START, MaskSlots, Slot
from p2pfl.network.protocol.ledgers.page import Page, Partner, Rows
from p2pfl.network.protocol.wire.messages import Account, FlowStatement
from p2pfl.network.protocol.wire.wire_rows import Delivery

WINDOW = 4
"""Gossip steps back for which a late model is still applied."""

ROOM = 16
"""Flows held for each partner until it has confirmed them."""

STEPS_BETWEEN_REPORTS = 4
"""Gossip steps between two reports to partners if nothing went wrong."""


def heaviest(peers: int) -> float:
    """Return an upper bound on the weight of a model.

    The sample weights of all peers add up to at most the number of peers, and mixing raises none far above that.
    """
    return 2.0 * peers


def leaves_half(weight: float, late: float) -> bool:
    """Return whether a late flow leaves at least half of a weight, by which the model is divided.

    Examples
    --------
    >>> leaves_half(0.5, -0.25), leaves_half(0.5, -0.3), leaves_half(0.5, 1.0), leaves_half(0.0, 0.0)
    (True, False, True, True)
    """
    return weight + late >= 0.5 * weight


def vector(rows: Released | Delivery) -> Row:
    """One row in homogeneous coordinates: its numbers and, where there is one, its mass, ``[P]`` or ``[P + 1]``."""
    if isinstance(rows, Delivery):
        scale = 1.0 if rows.head.grid is None else 2.0**-rows.head.grid
        values = rows.row if rows.head.grid is None else rows.row.to(torch.float64) * scale
        mass = rows.head.mass
    else:
        values = rows.values[0]
        mass = None if rows.masses is None else float(rows.masses[0, 0])
    numbers: Row = values.detach().cpu().numpy()
    if mass is None:
        return numbers
    homogeneous: Row = np.empty(len(numbers) + 1, numbers.dtype)
    homogeneous[:-1], homogeneous[-1] = numbers, mass
    return homogeneous


class PeerLedgers:
    """Ledgers of one peer: what it owes to its partners, and they to it.

    Parameters
    ----------
    peer
        Whose.
    gossip, masks
        Partners of either kind; ``None`` where flows are not conserved: directed, asymmetric or accelerated mixing,
        masks, or models so large that none should be held.
    until
        Slot before which all names of masks may have been used.
    heaviest
        No row of a larger mass is applied.
    """

    def __init__(
        self,
        peer: str,
        *,
        gossip: Iterable[str] | None = None,
        masks: Iterable[str] = (),
        until: Slot = START,
        heaviest: float = 0.0,
    ) -> None:
        self.heaviest = heaviest
        self.peer = peer
        self.conserving = gossip is not None
        self.flows = FlowLedger(tuple(gossip or ()), window=WINDOW, room=ROOM)
        self.masks = MaskSlots(peer, partners=tuple(masks), until=until)
        self.over: set[str] = set()
        """Partners that have promised to release nothing more."""
        self.unaware: set[str] = set()
        """Partners that may have models of an earlier incarnation, and have not reported that they know this one."""
        self._owed: dict[int, Row] = {}
        """Flows that were found late, by the release to whose models they belong."""
        self._waiting: dict[int, set[tuple[str, GossipStep]]] = {}
        """Partners and gossip steps of these flows, at most ``ROOM`` of each partner."""
        self._chain_of: dict[GossipStep, int] = {}
        self._arrived: Row | None = None  # flows of the open gossip step that came late
        self._current: GossipStep | None = None
        self._last: dict[str, int] = {}  # number of a partner's last account
        self._incarnations: dict[str, int] = {}  # incarnation of a partner to which its flows belong
        self._next: dict[str, int] = {}  # incarnation that has begun, and has not reported its first round yet
        self.mass: float | None = None
        """Sample weight of the model of the first release, as last mixed."""
        self._number = 0
        self._silent = 0

    @property
    def kept(self) -> bool:
        """True if there is anything to report."""
        return bool(self.flows.partners | self.masks.partners)

    @property
    def reported(self) -> frozenset[str]:
        """Partners whose current incarnation has sent an account."""
        return frozenset(self._last)

    # ------------------------------------------------------------------ checkpoints

    def page(self) -> tuple[Page, Rows]:
        """Return what to save with the model, between two rounds."""
        rows: Rows = {}

        def kept(row: Row | None) -> str | None:
            if row is None:
                return None
            name = f"row{len(rows)}"
            rows[name] = row
            return name

        noted = self.flows.checkpoint()
        partners = {
            name: Partner(
                tuple(sorted(each.applied)),
                each.settled,
                each.known,
                {
                    saved: gossip_step
                    for gossip_step, row in sorted(each.held.items())
                    if (saved := kept(row)) is not None
                },
                self._incarnations.get(name, 0),
            )
            for name, each in noted.items()
        }
        owed = {chain: saved for chain, row in self._owed.items() if (saved := kept(row)) is not None}
        return Page(partners, owed, tuple(sorted(self._chain_of.items())), self.mass), rows

    def turn(self, page: Page, rows: Mapping[str, Row], *, round: int, late: bool = False) -> None:
        """Continue from the page of an earlier incarnation; what it lacks from before ``round`` is never applied.

        Parameters
        ----------
        page, rows
            Of a checkpoint; former partners are left out.
        round
            First round in which this incarnation takes part.
        late
            Whether others have played rounds since, so that it begins with their average instead of its own model.
        """
        partners = self.flows.partners
        notes = {
            name: FlowNotes(
                frozenset(each.applied),
                {gossip_step: rows[saved] for saved, gossip_step in each.held.items()},
                each.settled,
                each.known,
            )
            for name, each in page.flows.items()
            if name in partners
        }
        self._incarnations |= {name: page.flows[name].incarnation for name in notes if notes[name].applied}
        self.flows = FlowLedger(partners, window=WINDOW, room=ROOM, closed=(round, 0), checkpoint=notes)
        self._owed = {} if late else {chain: rows[name] for chain, name in page.owed.items()}
        self._waiting = {chain: {(partner, (round, 0)) for partner in partners} for chain in self._owed}  # any of them
        self._chain_of = {} if late else dict(page.gossip_steps)
        self.mass = page.mass
        self.unaware |= partners
        self._silent = STEPS_BETWEEN_REPORTS  # partners hold what they have not received a report about
        self._last.clear()  # reported before, and to be reported again

    def begin(self, partner: str, *, incarnation: int, epoch: bytes = b"") -> None:
        """Accept an incarnation of a partner, which masks in the epoch that begins with it."""
        self._last.pop(partner, None)  # its accounts are numbered from 1 again
        self._next[partner] = incarnation
        self._incarnations.setdefault(partner, incarnation)
        self.over.discard(partner)
        if partner in self.masks.partners:
            self.masks.epochs[partner] = epoch

    def behind(self, partner: str) -> bool:
        """Return whether the flows belong to an earlier incarnation of a partner than the current one."""
        return self._incarnations.get(partner) != self._next.get(partner)

    def revive(self, partner: str, first: int) -> None:
        """Undo the flows with a partner's earlier incarnation from the round on in which its current one continues."""
        if not self.behind(partner):
            return
        self._incarnations[partner] = self._next[partner]
        self._silent = STEPS_BETWEEN_REPORTS  # it may leave before the next report is due
        if partner in self.flows.partners:
            self._due_back(partner, self.flows.revive(partner, (first, 0)))

    # ------------------------------------------------------------------ flows

    def open(self, gossip_step: GossipStep, row: Row, *, weights: Mapping[str, float], chain: int) -> None:
        """Begin to mix the own model of a release; ``chain`` is the number of the release in its round."""
        self.flows.open(gossip_step, row, weights=weights)
        self._current = gossip_step
        self._chain_of[gossip_step] = chain

    def apply(self, partner: str, gossip_step: GossipStep, row: Row) -> Row | None:
        """Return the flow of a row that arrived in time; ``None`` if it is not applied."""
        return self.flows.deliver(partner, gossip_step, row)

    def late(self, partner: str, delivery: Delivery) -> bool:
        """Apply a model that arrived after its gossip step; return whether it was early enough."""
        own = self.flows.own(delivery.gossip_step)
        if own is None or delivery.head.codec:  # no peer has kept the reference that would decode it
            return False
        row = vector(delivery)
        if own.shape != row.shape or abs(delivery.head.mass or 0) > self.heaviest:
            return False
        moved = self.flows.deliver(partner, delivery.gossip_step, row.astype(own.dtype))
        if moved is not None and delivery.gossip_step == self._current:
            self._silent = STEPS_BETWEEN_REPORTS
            self._arrived = moved if self._arrived is None else self._arrived + moved
        elif moved is not None:
            self._owe(delivery.gossip_step, moved)
            self._wait(partner, delivery.gossip_step)
        return moved is not None

    def close(self, *, weight: float | None = None) -> Row | None:
        """End the gossip step; return what is to be added to its result: late flows of this and of earlier ones.

        Parameters
        ----------
        weight
            Of the result so far; ``None`` if models have no weights.
        """
        due, self._arrived = self._arrived, None
        chain = None if self._current is None else self._chain_of[self._current]
        owed = None if chain is None else self._owed.get(chain)
        if chain is not None and owed is not None:
            weight = weight if weight is None or due is None else weight + float(due[-1])
            if weight is None or leaves_half(weight, float(owed[-1])):
                due = owed if due is None else due + owed
                self._settle(chain)
        self._current = None
        oldest = self.flows.oldest
        self._chain_of = {each: number for each, number in self._chain_of.items() if each >= oldest}
        self.flows.note_checkpoint(self.flows.checkpoint())  # there is no other checkpoint
        self.flows.prune()
        return due

    def _due_back(self, partner: str, back: Mapping[GossipStep, Row]) -> None:
        for gossip_step, flow in back.items():
            if gossip_step in self._chain_of:
                self._owe(gossip_step, flow)
                self._wait(partner, gossip_step)

    def _wait(self, partner: str, gossip_step: GossipStep) -> None:
        waiting = self._waiting.setdefault(self._chain_of[gossip_step], set())
        if sum(other == partner for other, _ in waiting) < ROOM:
            waiting.add((partner, gossip_step))

    def _owe(self, gossip_step: GossipStep, flow: Row) -> None:
        self._silent = STEPS_BETWEEN_REPORTS  # partners wait for this report
        chain = self._chain_of[gossip_step]
        before = self._owed.get(chain)
        self._owed[chain] = flow if before is None else before + flow

    def _settle(self, chain: int) -> Row | None:
        self._waiting.pop(chain, None)
        return self._owed.pop(chain, None)

    def remainder(self) -> Row | None:
        """Return what the first release's model lacks after the last gossip step; ``None`` if that is too heavy."""
        owed = self._owed.get(0)
        if owed is not None and self.mass is not None:
            late = float(owed[-1])
            if self.mass + late <= 0 or not leaves_half(self.mass, late):
                return None
        return self._settle(0)

    def list_unsettled(self) -> set[tuple[str, GossipStep]]:
        """Return the partners and gossip steps whose flows may be at one end alone, in models of the first release."""
        return {*self.flows.list_unsettled(), *self.flows.lost, *self._waiting.get(0, ())}

    # ------------------------------------------------------------------ accounts

    def news(self) -> bool:
        """Return whether to report to partners now, with the model of a gossip step."""
        self._silent += 1
        return self.conserving and self._silent > STEPS_BETWEEN_REPORTS

    def note_missed_model(self) -> None:
        """Note that a model did not arrive, so that partners get a report soon."""
        self._silent = STEPS_BETWEEN_REPORTS

    def account(self, incarnation: int) -> Account:
        """Return the statements for all partners, each distinct statement once."""
        self._silent = 0
        self._number += 1
        moved: dict[FlowStatement, list[str]] = {}
        for partner in sorted(self.flows.partners):
            moved.setdefault(self.flows.statement(partner), []).append(partner)
        reported = sorted(moved.items(), key=lambda each: len(each[1]))
        if reported:
            reported[-1] = reported[-1][0], []  # all other partners
        incarnations = {
            name: incarnation for name, incarnation in sorted(self._incarnations.items()) if name in self.flows.partners
        }
        return Account(incarnation, self._number, reported, over=self.masks.over, incarnations=incarnations)

    def receive(self, partner: str, account: Account, *, incarnation: int) -> None:
        """Apply a partner's account; ``incarnation`` is that of this peer.

        Raises
        ------
        DecodeError
            The account is impossible.
        """
        if account.number <= self._last.get(partner, 0):
            return
        self._last[partner] = account.number
        try:
            self._receive(partner, account, incarnation)
        except (P2PFLError, ValueError) as error:
            raise DecodeError(f'the account of "{partner}" is impossible: {error}') from None

    def _receive(self, partner: str, account: Account, incarnation: int) -> None:
        me = self.peer
        if partner in self.flows.partners:
            statement = next((statement for statement, names in account.flows if me in names or not names), None)
            if statement is not None and _meant(statement, account.incarnations.get(me), incarnation=incarnation):
                self.unaware.discard(partner)
                self._due_back(partner, self.flows.receive(partner, statement))
        if account.over:
            self.over.add(partner)


def _meant(statement: FlowStatement, reported: int | None, *, incarnation: int) -> bool:
    """Return whether a statement refers to this incarnation.

    A partner that has never met it cannot have applied anything of it.
    """
    return reported == incarnation if reported is not None else not (statement.applied or statement.pending)
