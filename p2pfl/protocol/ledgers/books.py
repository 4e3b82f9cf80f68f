"""A peer's books: what it has applied of its partners' rows and masks, and what of that has not entered its row yet.

The two ledgers decide (:mod:`p2pfl.protocol.ledgers.flows`, :mod:`p2pfl.protocol.ledgers.masks`); here they meet the
messages of a life. A checkpoint holds the :class:`Page` that belongs to its row, and a later life opens its books
there. What must not go back with the row, the journal of masks, is kept beside it
(:mod:`p2pfl.peer.storage.checkpoint`).

A flow that is found late belongs to the models of an earlier gossip step. Where gossip is plain, it would by now have
come into them unchanged, so it enters with the next gossip step of the same release, in the next round if need be. It
does not enter what is released, which everybody sees already. Accelerated gossip has no such rule: there flows are not
conserved, and masks are refused (:mod:`p2pfl.experiment.rules.table`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from p2pfl.errors import DecodeError, P2PFLError
from p2pfl.neighbourhood import Released
from p2pfl.protocol.ledgers import flows
from p2pfl.protocol.ledgers import masks as ledger
from p2pfl.protocol.ledgers.drawn import Drawn
from p2pfl.protocol.ledgers.flows import Exchange, FlowLedger, Row
from p2pfl.protocol.ledgers.masks import MaskLedger
from p2pfl.protocol.ledgers.page import Page, Partner, Rows, read, written
from p2pfl.protocol.ledgers.slots import Slot
from p2pfl.protocol.mailbox import Delivery
from p2pfl.protocol.wire.messages import Account, Masked, Moved

WINDOW = 4
"""Exchanges back that a row that comes late is still applied."""

ROOM = 16
"""Flows held for each partner until it has confirmed them."""

EVERY = 4
"""Exchanges after which partners are told, where nothing went wrong."""


def heaviest(peers: int) -> float:
    """No row weighs more: all masses together are at most the number of peers, and mixing brings none far beyond."""
    return 2.0 * peers


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
    return numbers if mass is None else np.append(numbers, np.array(mass, numbers.dtype))


class Books:
    """What one peer owes to its partners and they to it.

    Parameters
    ----------
    peer
        Whose.
    gossip, masks
        Partners of either kind; ``None`` where flows are not conserved: directed, asymmetric or accelerated mixing, or
        models so large that none should be held.
    heaviest
        No row of a larger mass is applied.
    healing
        Whether there may be other partners for gossip later on: then statements are for somebody by name, each.
    """

    def __init__(
        self,
        peer: str,
        *,
        gossip: Iterable[str] | None = None,
        masks: Iterable[str] = (),
        heaviest: float = 0.0,
        healing: bool = False,
    ) -> None:
        self.healing = healing
        self.heaviest = heaviest
        self.peer = peer
        self.conserving = gossip is not None
        self.flows = FlowLedger(tuple(gossip or ()), window=WINDOW, room=ROOM)
        self.masks = MaskLedger(peer, partners=tuple(masks))
        self.halves: set[tuple[str, Slot]] = set()
        """Masks of our releases, by partner, that the partner turned out to lack."""
        self.unaware: set[str] = set()
        """Partners that may have exchanged rows with an earlier life, and have not said that they know of this one."""
        self._owed: dict[int, Row] = {}
        """Flows that were found late, by the release to whose models they belong."""
        self._chain_of: dict[Exchange, int] = {}
        self._arrived: Row | None = None  # flows of the open gossip step that came late
        self._current: Exchange | None = None
        self._last: dict[str, int] = {}  # number of a partner's last account
        self._lives: dict[str, int] = {}  # of which life of a partner the flows are
        self._next: dict[str, int] = {}  # which life of it has begun, and has not said yet where it goes on
        self.mass: float | None = None
        """Of the rows of the first release, as last mixed."""
        self._number = 0
        self._silent = 0

    @property
    def kept(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.flows.partners | self.masks.partners)

    @property
    def told(self) -> frozenset[str]:
        """Partners whose account has come, in their present life."""
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

        noted = self.flows.checkpoint().notes
        partners = {
            name: Partner(
                tuple(sorted(each.applied)),
                each.settled,
                each.known,
                {said: exchange for exchange, row in sorted(each.held.items()) if (said := kept(row)) is not None},
                self._lives.get(name, 0),
            )
            for name, each in noted.items()
        }
        owed = {chain: said for chain, row in self._owed.items() if (said := kept(row)) is not None}
        (masks, epochs), (lost, lost_epochs) = written(self.masks.carried()), written(self.masks.lost)
        exchanges = tuple(sorted(self._chain_of.items()))
        keys = self.masks.keys
        return Page(partners, owed, exchanges, masks, self.mass, keys, lost, epochs, lost_epochs), rows

    def turn(self, page: Page, rows: Mapping[str, Row], *, round: int, journal: ledger.Journal | None) -> None:
        """Go on, in a later life, from a page: what is not on it and before ``round`` will never be applied.

        Parameters
        ----------
        page, rows
            Of a checkpoint; of partners that are none any more nothing is taken.
        round
            The first that this life takes part in.
        journal
            The newest of the masks.
        """
        partners = self.flows.partners | (page.flows.keys() if self.healing and self.conserving else set())
        notes = {
            name: flows.Notes(
                frozenset(each.applied),
                {exchange: rows[said] for said, exchange in each.held.items()},
                each.settled,
                each.known,
            )
            for name, each in page.flows.items()
            if name in partners
        }
        self._lives |= {name: page.flows[name].life for name in notes if notes[name].applied}
        closed = flows.Journal((round, 0), {}, 0)
        self.flows = FlowLedger(partners, window=WINDOW, room=ROOM, journal=closed, checkpoint=flows.Checkpoint(notes))
        self._owed = {chain: rows[name] for chain, name in page.owed.items()}
        self._chain_of = dict(page.exchanges)
        self.mass = page.mass
        self._carry(page, journal)
        self.unaware |= partners
        self._last.clear()  # what was told before is to be told again

    def _carry(self, page: Page, journal: ledger.Journal | None) -> None:
        """Go on with the masks of a page and a journal."""
        met, epochs, partners = self.masks.keys, self.masks.epochs, self.masks.partners
        carried, lost = read(page.masks, page.epochs), read(page.lost, page.lost_epochs)
        self.masks = MaskLedger(
            self.peer, partners=partners, journal=journal, carried=carried, under=page.keys, lost=lost
        )
        for partner, key in met.items():
            self.masks.meet(partner, key, epoch=epochs[partner])

    def begin(self, partner: str, *, life: int, key: bytes, epoch: bytes = b"") -> None:
        """Begin to listen to an incarnation of a partner, which masks under a key in the epoch that begins with it."""
        self._last.pop(partner, None)  # it counts its accounts from the start
        self._next[partner] = life
        self._lives.setdefault(partner, life)
        if self.healing and self.conserving:
            self.flows.meet(partner)
        if partner in self.masks.partners:
            self.masks.meet(partner, key, epoch=epoch)

    def behind(self, partner: str) -> bool:
        """Return whether the flows are of an earlier incarnation of a partner than the one that it is met in."""
        return self._lives.get(partner) != self._next.get(partner)

    def revive(self, partner: str, first: int) -> None:
        """Hear where a partner's life goes on: what was exchanged from that round on with a life before is undone."""
        if not self.behind(partner):
            return
        self._lives[partner] = self._next[partner]
        if partner in self.flows.partners:
            self._due_back(self.flows.revive(partner, (first, 0)))

    # ------------------------------------------------------------------ flows

    def open(self, exchange: Exchange, row: Row, *, weights: Mapping[str, float], chain: int) -> None:
        """Begin to mix our model of a release, which is numbered in its round by ``chain``."""
        self.flows.open(exchange, row, weights=weights)
        self._current = exchange
        self._chain_of[exchange] = chain

    def apply(self, partner: str, exchange: Exchange, row: Row) -> Row | None:
        """Return the flow of a row that came in time; ``None`` where it is not to be applied."""
        return self.flows.deliver(partner, exchange, row)

    def late(self, partner: str, delivery: Delivery) -> bool:
        """Apply a row that came after its turn; return whether it was early enough for that."""
        own = self.flows.own(delivery.exchange)
        if own is None or delivery.head.codec:  # codes that nobody has kept the key to
            return False
        row = vector(delivery)
        if own.shape != row.shape or abs(delivery.head.mass or 0) > self.heaviest:
            return False
        moved = self.flows.deliver(partner, delivery.exchange, row.astype(own.dtype))
        if moved is not None and delivery.exchange == self._current:
            self._silent = EVERY
            self._arrived = moved if self._arrived is None else self._arrived + moved
        elif moved is not None:
            self._owe(delivery.exchange, moved)
        return moved is not None

    def arrived(self) -> Row | None:
        """Return the flows of the open gossip step that came late and are not in its result yet."""
        arrived, self._arrived = self._arrived, None
        return arrived

    def close(self) -> Row | None:
        """End the gossip step; return what is to be added to its result: late flows of this and of earlier ones."""
        arrived = self.arrived()
        if arrived is not None and self._current is not None:
            self._owe(self._current, arrived)
        due = None if self._current is None else self._owed.pop(self._chain_of[self._current], None)
        self._current = None
        oldest = self.flows.oldest
        self._chain_of = {each: number for each, number in self._chain_of.items() if each >= oldest}
        self.flows.saved(self.flows.checkpoint())  # there is no other
        self.flows.prune()
        return due

    def _due_back(self, back: Mapping[Exchange, Row]) -> None:
        for exchange, flow in back.items():
            if exchange in self._chain_of:
                self._owe(exchange, flow)

    def _owe(self, exchange: Exchange, flow: Row) -> None:
        self._silent = EVERY  # partners wait for this news
        chain = self._chain_of[exchange]
        before = self._owed.get(chain)
        self._owed[chain] = flow if before is None else before + flow

    def remainder(self) -> Row | None:
        """Return what is still missing from the model of the first release after the last gossip step."""
        return self._owed.pop(0, None)

    # ------------------------------------------------------------------ accounts

    def news(self, *, released: bool) -> bool:
        """Whether partners should be told now, with the row of an exchange."""
        self._silent += 1
        return self._silent > EVERY or (released and bool(self.masks.partners))

    def missed(self) -> None:
        """Note that a row did not come, so that partners are told soon."""
        self._silent = EVERY

    def account(self, incarnation: int) -> Account:
        """Return the statements for all partners, each distinct statement once."""
        self._silent = 0
        self._number += 1
        moved: dict[Moved, list[str]] = {}
        for partner in sorted(self.flows.partners):
            moved.setdefault(_moved(self.flows.statement(partner)), []).append(partner)
        told = sorted(moved.items(), key=lambda each: len(each[1]))
        if told and not self.healing:
            told[-1] = told[-1][0], []  # everybody else
        journal = self.masks.journal()
        masked = {name: _masked(journal.statement(name)) for name in journal.notes}
        lives = {name: life for name, life in sorted(self._lives.items()) if name in self.flows.partners}
        return Account(incarnation, self._number, told, masked, lives=lives)

    def hear(self, partner: str, account: Account, *, life: int, key: bytes = b"") -> None:
        """Learn from a partner's account, in this life of ours, which masks under a key.

        Raises
        ------
        DecodeError
            It contradicts what is possible.
        """
        if account.number <= self._last.get(partner, 0):
            return
        self._last[partner] = account.number
        try:
            self._hear(partner, account, life, key)
        except (P2PFLError, ValueError) as error:
            raise DecodeError(f'expected an account of "{partner}", got one that cannot be: {error}') from None

    def _hear(self, partner: str, account: Account, life: int, key: bytes) -> None:
        me = self.peer
        if partner in self.flows.partners:
            statement = next((said for said, names in account.flows if me in names or not names), None)
            if statement is not None and _meant(statement, account.lives.get(me), life=life):
                self.unaware.discard(partner)
                self._due_back(self.flows.hear(partner, _flows(statement)))
        if partner in self.masks.partners and me in account.masks and account.masks[me].key in (b"", key):
            self.masks.hear(partner, _masks(account.masks[me]))
            self.halves |= {(partner, slot) for slot in self.masks.alone(partner)}


def _meant(said: Moved, told: int | None, *, life: int) -> bool:
    """Whether a statement is of this life: who has met none of ours has applied nothing of it."""
    return told == life if told is not None else not (said.applied or said.pending)


def _moved(said: flows.Statement) -> Moved:
    return Moved(said.since, said.closed, tuple(sorted(said.applied)), tuple(sorted(said.pending)), said.settled)


def _flows(said: Moved) -> flows.Statement:
    return flows.Statement(said.since, said.closed, frozenset(said.applied), frozenset(said.pending), said.settled)


def _masked(said: ledger.Statement) -> Masked:
    return Masked(said.since, said.until, said.told.runs, said.heard, said.paid, said.key, said.told.epochs)


def _masks(said: Masked) -> ledger.Statement:
    slots = [Slot(*each) for each in (said.since, said.until, said.heard, said.paid)]
    return ledger.Statement(slots[0], slots[1], Drawn.read(said.runs, said.epochs), slots[2], slots[3], said.key)
