"""Statements that the ledger of masks sends to partners, and writes to disk before (:mod:`.masks`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from p2pfl.network.protocol.ledgers.drawn_slots import NOTHING, DrawnSlots
from p2pfl.network.protocol.ledgers.slots import START, Slot


@dataclass(frozen=True)
class MaskStatement:
    """Statement of a peer for one partner, in every header.

    Attributes
    ----------
    since, until
        All fresh masks from slot ``since`` to before ``until`` are in ``reported``, and no other will join them.
    reported
        Those masks.
    received
        The partner's ``until``, as far as the sender has received it.
    paid
        Before this slot, the sender's releases agree with all that the partner leads.
    key
        Of the partner: it speaks of masks under this one and of no other.
    """

    since: Slot
    until: Slot
    reported: DrawnSlots
    received: Slot
    paid: Slot
    key: bytes = b""


@dataclass(frozen=True)
class MaskNotes:
    """Of one partner, in the journal: the fresh masks of both ends and how far which end knows and has paid."""

    own: DrawnSlots = NOTHING
    received: DrawnSlots = NOTHING
    until: Slot = START  # of the partner
    paid: Slot = START  # by this end
    known: Slot = START  # to the partner, of this end
    confirmed: Slot = START  # as paid by the partner
    key: bytes = b""  # of the partner, under which all these are; none before it was met


@dataclass(frozen=True)
class MaskJournal:
    """State that is durable before a message leaves: used slots, received statements, and payments."""

    until: Slot
    notes: Mapping[str, MaskNotes]

    def statement(self, partner: str) -> MaskStatement:
        """Return the statement for a partner, from the journal, so that no crash can make it untrue.

        Examples
        --------
        >>> from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
        >>> ledger = MaskLedger("ada", partners=["bob"])
        >>> payment = ledger.release(0)
        >>> ledger.journal().statement("bob").reported.runs
        ((0, 0, 1),)
        """
        note = self.notes[partner]
        reported = note.own.since(note.known)
        return MaskStatement(note.known, self.until, reported, note.until, note.paid, note.key)
