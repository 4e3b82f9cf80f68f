r"""Ledger of masks: both ends of an edge apply the same masks, and nothing is revealed to repair a round.

The masks of a release are named by its **slot** (attempt, round) and, for each of its edges, by the **epoch** of that
edge: the incarnations of both ends and the nonces that both announced. Each edge gets the mask of that slot and epoch,
for the first and only time. What goes wrong (a partner that was away, skipped a round, died after sending, came back
from an old checkpoint) leaves the ends of an edge with different sets of masks. Both ends state in every message
which slots they masked freshly, and in which epoch. The end with the smaller name **leads**: its set L is the truth.
The other **follows**: with u the first slot of which it knows nothing and F its own set, it wants

.. math:: T = \{s \in L : s < u\} \cup \{s \in F : s \ge u\},

the truth as far as it is known and its own guess beyond. Whoever releases pays, next to its fresh masks, the
difference between what it wants (a leader: L) and what its row **carries**, for all slots before the release.

L, F and T are sets of masks; where they are cut at a slot, the slot of a mask counts. An end takes a slot once, so L
and F have one epoch for each slot. The ends know each other's announcement before they mask together, so that they
draw the same mask; where one does not know yet that the other restarted, their masks of the slot are two, of two
epochs, and each is paid as a mask that one end skipped.

Three things differ in what a crash does to them. The **journal** (slots used, what was received and paid) is durable
before a message leaves. The **carried** sets belong to the row, and go back with it to a checkpoint, however old.
The rest is forgotten. All three name the partner's public **key**: a slot under another one is another mask, and a
partner that has lost its keys starts again (:meth:`MaskLedger.meet`), also if a later incarnation notices that, or one
whose row goes back behind it.

*Slots grow.* A release takes a slot after all slots in the journal; where a round is run again, the attempt goes up.
So no key masks freshly twice, and two releases of one round differ by their attempt. A journal that is resumed twice,
from two copies, takes the same slots twice, in two epochs: no key masks freshly twice then either. Going back to a
round or on with the next is the caller's choice; the partners follow the largest attempt, so that keys meet again.

*Statements never contradict.* A statement covers the slots before the sender's next one. Fresh masks join L at
growing slots and never leave it, so two statements agree where both speak, and may be lost, doubled, late or out of
order. A release that was sent cannot be unsent: its masks stay in L although the sender's row went back behind them,
and the sender itself pays them again into its next release. (It could retract them too; but then an old statement
would contradict a new one.)

*Sum of masks zero.* Let the leader have released at or after slot s since its last restart: it carries L up to s. Let
the follower know of all slots before u, and since then and its last restart have settled, or released at u or
later: it carries L before u. Hence every slot before min(s, u) is carried by both ends or by none, with opposite
signs, and its sum over both rows is zero to the last bit. Only one end pays a difference, the follower after news
or the one that restarted, and paying again pays nothing: there is no oscillation. After the last round both say that
no slot will follow (u is infinite) and settle: the sum over all pairs that are alive is zero. ∎

*Relation to the sum of rows.* Mixing moves masks between rows and makes none, where the ledger of flows
conserves the sum of the rows. A row that goes back to a checkpoint takes its own releases back, and with it go the
carried sets: they are what this line of rows was given, whatever others saw.

*What stays.* :meth:`MaskLedger.list_uncancelled` lists the masks that are not known to be equal at both ends: at most
one for each edge and each slot since the partner's last confirmation.

*What it costs.* Nothing is revealed to repair a round. But a mask that only one end ever applied hides nothing once it
is undone, and a late half is one more row in which its mask is seen: the accountant's linear view takes both from
the terms of the payments. A settlement adds no fresh masks, so run one round
without training before it.

References
----------
The masks are those of GOPA and DECOR, see :mod:`p2pfl.privacy.masks`; statements that only grow are a state-based
replicated set: M. Shapiro, N. Preguiça, C. Baquero, M. Zawirski, "Conflict-free replicated data types", SSS 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.account_statements import MaskJournal, MaskNotes, MaskStatement
from p2pfl.network.protocol.ledgers.drawn_slots import NOTHING, DrawnSlots
from p2pfl.network.protocol.ledgers.payments import Mask, Payment
from p2pfl.network.protocol.ledgers.slots import END, START, Slot, Slots
from p2pfl.privacy.masks import Edge

__all__ = ["MAX_LATE_MASKS", "MaskJournal", "MaskLedger", "MaskNotes", "MaskStatement"]

MAX_LATE_MASKS = 2048
"""Masks of one partner that only one end has applied, at most: each is one more to draw in a later release."""

UNSEEN_MASKS = 64
"""Masks of a partner's restarts that this peer did not notice: it was away, or the partner ended at once."""

LEAP = 1 << 20
"""Attempts that a statement may be ahead of all that is known: a swarm restarts less often between two of them."""


class MaskLedger:
    """The masks of one peer, decided without a clock: which to add, which to pay late.

    Parameters
    ----------
    peer
        Its name.
    partners
        The other ends of its mask edges, in whichever round.
    journal
        The newest one, after a restart. An old one would use keys again.
    carried
        Of the checkpoint that the row comes from, see :meth:`applied_masks`; empty for a row that starts anew.
    under
        By partner, its key then; where the journal has another, what is carried cannot be cancelled any more.
    lost
        What could not be then.

    Examples
    --------
    Ada masks round 0 with Bob, who was away; Bob pays once it is known there.

    >>> ada, bob = MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])
    >>> mask = Mask(("ada", "bob"), Slot(0, 0))
    >>> ada.release(0).terms == {mask: 1}
    True
    >>> bob.receive("ada", ada.journal().statement("bob"))
    >>> payment = bob.release(1)
    >>> payment.slot, payment.terms[mask], len(payment.terms)
    (Slot(attempt=0, round=1), -1, 2)
    """

    def __init__(
        self,
        peer: str,
        *,
        partners: Collection[str],
        journal: MaskJournal | None = None,
        carried: Mapping[str, DrawnSlots] | None = None,
        under: Mapping[str, bytes] | None = None,
        lost: Mapping[str, DrawnSlots] | None = None,
    ) -> None:
        self.peer = peer
        self.until = START if journal is None else journal.until
        self._notes = {partner: MaskNotes() for partner in sorted(partners)}
        self._notes.update({} if journal is None else journal.notes)
        self._carried = dict.fromkeys(self._notes, NOTHING)
        self._carried.update(carried or {})
        self._least = 0
        self.lost = dict(lost or {})
        """By partner, masks in the row of which it has lost the keys, and its half of them with its row."""
        self.epochs: dict[str, bytes] = {}
        """By partner that was met in this incarnation, the epoch in which fresh masks are drawn."""
        self._met: dict[str, set[bytes]] = {}  # by partner, the epochs of its restarts in this incarnation
        self._skipped = {each: len(note.received - note.own) for each, note in self._notes.items()}  # in earlier ones
        for partner, key in (under or {}).items():
            if partner in self._notes and _differ(key, self._notes[partner].key):
                self._drop(partner, self._carried[partner])

    @property
    def attempt(self) -> int:
        """The largest attempt in use, here or at a partner: who restarts alone is followed, so that keys meet again."""
        received = [note.until.attempt for note in self._notes.values() if note.until != END]
        return max([self._least, self.until.attempt, *received])

    def agree(self, attempt: int) -> None:
        """Use this attempt, or a later one, from now on: what all choose who go back to a round together.

        That is a promise, too: partners need not allow for slots of an attempt before it any more.
        """
        self._least = max(self._least, attempt)
        self.until = max(self.until, Slot(attempt, 0))

    @property
    def keys(self) -> dict[str, bytes]:
        """Under which the masks are, by partner that was met, in this incarnation or before."""
        return {partner: note.key for partner, note in self._notes.items() if note.key}

    def meet(self, partner: str, key: bytes, *, epoch: bytes = b"") -> None:
        """Learn the key of a partner's present incarnation, and the epoch that began with it.

        Examples
        --------
        >>> ledger = MaskLedger("ada", partners=["bob"])
        >>> ledger.meet("bob", b"one")
        >>> payment = ledger.release(0)
        >>> ledger.meet("bob", b"two")
        >>> ledger.list_uncancelled() == [Mask(("ada", "bob"), Slot(0, 0))]
        True
        """
        if _differ(self._note(partner).key, key):
            self.renew(partner)
        self._notes[partner] = replace(self._notes[partner], key=key)
        self.epochs[partner] = epoch
        self._met.setdefault(partner, set()).add(epoch)

    def renew(self, partner: str) -> None:
        """Begin anew with a partner that lost its keys: what they shared before cannot be paid any more."""
        note = self._note(partner)
        self._drop(partner, note.own.since(note.confirmed))
        self._notes[partner] = MaskNotes()

    def _drop(self, partner: str, masks: DrawnSlots) -> None:
        self.lost[partner] = self.lost.get(partner, NOTHING) | masks
        self._carried[partner] = NOTHING

    def release(
        self,
        round: int,
        *,
        partners: Collection[str] | None = None,
        shared: Collection[str] | None = None,
        payable: Callable[[Slot], bool] = lambda _: True,
        most: int = MAX_LATE_MASKS,
    ) -> Payment:
        """Decide the masks of the next release. Make the journal durable before anything of it is sent.

        Parameters
        ----------
        round
            Of the release; may lie before one that was released, and takes a new attempt then.
        partners
            Mask partners; by default all.
        shared
            Partners with a shared secret, so that debts can be paid; by default all. Debts to a partner that this
            incarnation has never met remain.
        payable
            True if this release can pay the masks of an earlier slot; those of others are owed still.
        most
            Number of late masks of one partner that this release pays, the earliest first; the others are owed still.

        Raises
        ------
        PrivacyError
            The peer has finished, or a partner is unknown.
        """
        if self.until == END:
            raise PrivacyError(
                f'Expected no release of "{self.peer}" after its last, got round {round}; begin a new run.'
            )
        fresh = tuple(sorted(self._notes if partners is None else partners))
        own = {partner: self._note(partner).own for partner in fresh}
        slot = self._next(round)
        self.until = slot.after
        for partner, before in own.items():
            self._notes[partner] = replace(self._notes[partner], own=before | self._fresh(partner, slot))
        return self._pay(slot, fresh, shared, payable, most)

    def take(self, slot: Slot, *, partners: Collection[str]) -> Payment:
        """Return the fresh masks of a slot that count at both ends of each edge or at none, so that nothing is owed.

        Make the journal durable before anything of the release is sent.

        Raises
        ------
        PrivacyError
            The slot may have been used before.

        Examples
        --------
        >>> ledger = MaskLedger("ada", partners=["bob"])
        >>> ledger.take(Slot(2, 5), partners=["bob"]).terms == {Mask(("ada", "bob"), Slot(2, 5)): 1}
        True
        >>> ledger.list_uncancelled(), ledger.until
        ([], Slot(attempt=2, round=6))
        """
        if slot < self.until:
            raise PrivacyError(
                f'Expected masks of "{self.peer}" from slot {tuple(self.until)} on, got {tuple(slot)}; begin a new run.'
            )
        self.until = slot.after
        fresh = tuple(sorted(partners))
        terms = {
            Mask(self._edge(each), slot, self.epochs.get(each, b"")): 1 if self._leads(each) else -1 for each in fresh
        }
        return Payment(self.peer, slot, fresh, terms)

    def finish(self) -> None:
        """Promise that no fresh mask will follow; once all partners have received the promise, all peers settle."""
        self.until = END

    def settle(self, *, shared: Collection[str] | None = None, most: int = MAX_LATE_MASKS) -> Payment:
        """Pay all differences that are known, without fresh masks; a second time pays nothing.

        Parameters
        ----------
        shared, most
            As of :meth:`release`.

        Raises
        ------
        PrivacyError
            The peer has not finished: what it paid could meet its own fresh masks later.
        """
        if self.until != END:
            raise PrivacyError(
                f'Expected "{self.peer}" to finish before it settles, got one at slot {tuple(self.until)}; call finish.'
            )
        return self._pay(None, (), shared, lambda _: True, most)

    def receive(self, partner: str, statement: MaskStatement) -> None:
        """Learn what a partner stated; old, doubled and overtaken statements change nothing.

        Raises
        ------
        PrivacyError
            The partner knows of slots that the journal does not: the journal is too old and keys would be used again.
            Or the statement is not one.
        """
        note = self._note(partner)
        if statement.received > self.until or statement.since > note.until:
            raise PrivacyError(
                f'Expected a journal of "{self.peer}" with all its statements to "{partner}", got one that ends before '
                f"slot {tuple(max(statement.received, statement.since))}; restore the newest or start as a new peer."
            )
        reported = statement.reported
        if len(reported.slots) < len(reported):
            raise PrivacyError(f'"{partner}" states two masks of one slot; exclude the peer that sent it')
        received = note.received | reported.since(note.until).before(statement.until)
        named = [statement.until.attempt if statement.until != END else 0, *(run[0] for run in received.runs)]
        if len(received - note.own) > self._possible(partner, received) or max(named) > self.attempt + LEAP:
            raise PrivacyError(
                f'Expected a statement of "{partner}" on masks that can be shared, got another; ask its owner why.'
            )
        self._notes[partner] = replace(
            note,
            received=received,
            until=max(note.until, statement.until),
            known=max(note.known, statement.received),
            confirmed=max(note.confirmed, statement.paid),
        )

    def _possible(self, partner: str, received: DrawnSlots) -> int:
        """Return how many masks a partner can have applied without this peer: one a round between two of its restarts.

        An incarnation releases once in a round, and masks in its own epoch.
        """
        rounds = max((stop for _, _, stop in received.runs), default=0)
        seen = rounds * max(1, len(self._met.get(partner, ())))
        return min(MAX_LATE_MASKS, self._skipped.get(partner, 0) + seen + UNSEEN_MASKS)

    @property
    def partners(self) -> frozenset[str]:
        """The other ends."""
        return frozenset(self._notes)

    @property
    def finished(self) -> frozenset[str]:
        """The partners that will not release again."""
        return frozenset(partner for partner, note in self._notes.items() if note.until == END)

    def uncovered_slots(self, partner: str) -> frozenset[Slot]:
        """Return our slots whose mask the partner has said it does not apply: it hides our release no longer."""
        note = self._note(partner)
        return frozenset(slot for slot, _ in (note.own - note.received).before(note.until))

    def unmatched_partners(self, slot: Slot) -> frozenset[str]:
        """Return the partners that share a mask of this release and have not said that they applied their half."""
        return frozenset(each for each, note in self._notes.items() if slot in note.own - note.received)

    def list_uncancelled(self) -> list[Mask]:
        """Return the masks that may be applied at one end only, by edge and slot."""
        left = [Mask(self._edge(partner), *each) for partner, masks in self.lost.items() for each in masks]
        for partner, note in self._notes.items():
            doubtful = self._wanted_slots(partner) ^ self._carried[partner]
            if self._leads(partner):
                doubtful |= (note.own ^ note.received).since(note.confirmed)
            else:
                doubtful |= note.own.since(note.until)
            left += [Mask(self._edge(partner), *each) for each in doubtful]
        return sorted(left)

    def journal(self) -> MaskJournal:
        """Return what to make durable."""
        return MaskJournal(self.until, dict(self._notes))

    def statement(self, partner: str) -> MaskStatement:
        """Return the statement for a partner."""
        return self.journal().statement(partner)

    def applied_masks(self) -> dict[str, DrawnSlots]:
        """Return the masks in the row, by partner: saved and restored with the row."""
        return dict(self._carried)

    def _pay(
        self,
        slot: Slot | None,
        fresh: tuple[str, ...],
        shared: Collection[str] | None,
        payable: Callable[[Slot], bool],
        most: int,
    ) -> Payment:
        terms: dict[Mask, int] = {}
        now, limit = (END, END) if slot is None else (slot, slot.after)
        for partner in [each for each in self._notes if shared is None or each in shared]:
            note = self._notes[partner]
            # Slots to come are left alone: they will be fresh here, and a key is fresh once.
            wanted = self._wanted_slots(partner).before(limit)
            if slot is not None and partner in fresh:
                wanted |= self._fresh(partner, slot)  # even where the leader left it out: a release needs its cover
            sign = 1 if self._leads(partner) else -1
            carried = self._carried[partner]
            late = [each for each in wanted ^ carried if each[0] != slot]
            paid = {*[each for each in late if payable(each[0])][:most]}
            later = [each for each in late if each not in paid]
            wanted ^= DrawnSlots.of((epoch, Slots.of([each.run])) for each, epoch in later)
            for change, factor in ((wanted - carried, sign), (carried - wanted, -sign)):
                terms |= {Mask(self._edge(partner), *each): factor for each in change}
            self._carried[partner] = wanted
            self._notes[partner] = replace(
                note, paid=max(note.paid, min([note.until, now, *(each for each, _ in later)]))
            )
        return Payment(self.peer, slot, fresh, terms)

    def _next(self, round: int) -> Slot:
        """Return the slot that a release of a round takes."""
        slot = Slot(self.attempt, round)
        return slot if slot >= self.until else Slot(self.attempt + 1, round)

    def _fresh(self, partner: str, slot: Slot) -> DrawnSlots:
        return DrawnSlots.of([(self.epochs.get(partner, b""), Slots.of([slot.run]))])

    def _wanted_slots(self, partner: str) -> DrawnSlots:
        note = self._notes[partner]
        if self._leads(partner):
            return note.own
        return note.received | note.own.since(note.until)

    def _leads(self, partner: str) -> bool:
        return self.peer < partner

    def _edge(self, partner: str) -> Edge:
        return min(self.peer, partner), max(self.peer, partner)

    def _note(self, partner: str) -> MaskNotes:
        if partner not in self._notes:
            raise PrivacyError(
                f'Expected a mask partner of "{self.peer}", got "{partner}"; check the mask graph and the roster.'
            )
        return self._notes[partner]


def _differ(one: bytes, other: bytes) -> bool:
    """Return whether two keys are known and not the same."""
    return bool(one and other) and one != other
