"""Reserve mask slots and charges in blocks, so that not every release waits for the disk.

A journal with a reservation is the one that the peer would have after some more releases like its last one: its slots
are taken, its masks are drawn with the same partners, its cost is charged. A peer that is restarted reads it as it
reads any journal. It releases under a later attempt, adds its halves of masks that it never applied and states them,
so that its partners add theirs and the masks cancel. What it charged and did not release stays charged.

A release needs no write as long as the reservation stays true of it: the same slots in the same order, the same
partners and epochs, no more cost. Everything else is written before the release, exactly. What was received of
partners is written with the next reservation; until then the peer does not confirm it, so that partners repeat it
after a power failure (:meth:`p2pfl.network.protocol.ledgers.mask_ledger.MaskLedger.statement`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from p2pfl.experiment import Plan
from p2pfl.network.peer.storage.checkpoint import rounds_apart
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots
from p2pfl.network.protocol.ledgers.mask_ledger import MaskJournal as Masks
from p2pfl.network.protocol.ledgers.mask_ledger import MaskNotes
from p2pfl.network.protocol.ledgers.slots import Slot, Slots
from p2pfl.privacy.accounting.spending import Cost

_T = TypeVar("_T")

MOST = 64
"""Releases in a block at most: after a crash a peer draws a mask for each of them and each partner."""


def block(plan: Plan) -> int:
    """Return how many releases a peer reserves at a time: as many as there are rounds between two checkpoints.

    Parameters
    ----------
    plan
        The experiment, resolved for this peer.
    """
    return 1 if plan.protection.sums is not None else min(MOST, rounds_apart(plan))


def covers(written: Journal, now: Journal) -> bool:
    """Return whether a journal on the disk stays true after what has happened since it was written.

    Parameters
    ----------
    written
        The journal on the disk, with its reservation.
    now
        The journal as it is without one.
    """
    if now.over or (written.until, written.released) <= (now.until, now.released):
        return now == written  # nothing is reserved
    return (
        now.until <= written.until
        and now.released <= written.released
        and Counter(now.spent) <= Counter(written.spent)
        and Counter(now.sampled) <= Counter(written.sampled)
        and _same_masks(written.masks, now.masks)
        and _exact(written) == _exact(now)
    )


def _same_masks(written: Masks, now: Masks) -> bool:
    """Return whether the reserved slots that are used have the reserved masks and no others."""
    if written.notes.keys() != now.notes.keys():
        return False
    return all(
        written.notes[name].key == note.key and written.notes[name].own.before(now.until) == note.own
        for name, note in now.notes.items()
    )


def _exact(journal: Journal) -> Journal:
    """Return what of a journal cannot be reserved."""
    return replace(journal, released=-1, until=(0, 0), notes={}, costs=(), samplings=())


def reserved(
    now: Journal, before: Journal, *, releases: int, rounds: int, affords: Callable[[Mapping[Cost, int]], bool]
) -> Journal:
    """Return a journal with further releases like the last one.

    Parameters
    ----------
    now, before
        The journal with the last release, and without it.
    releases
        How many to reserve, the last one included.
    rounds
        Rounds of the run: no later ones are reserved, since masks of a round that is never played would stay
        unsettled, and its cost charged, if the peer were restarted when its partners have ended.
    affords
        Whether a budget permits costs; fewer releases are reserved where it does not permit all.

    Returns
    -------
    Journal
        ``now`` itself where nothing can be reserved: before the second round, because a peer without a checkpoint
        restarts from the first one only if it has released no other; and after the last release.
    """
    if now.over or now.released < 1 or now.released == before.released or now.alone != before.alone:
        return now
    more = max(0, min(releases, rounds - now.released) - 1)
    cost, training = now.spent - before.spent, now.sampled - before.sampled
    while more and not affords(now.spent + _times(cost, more)):
        more //= 2
    if not more:
        return now
    return now.after(
        round=now.released + more,
        masks=_ahead(now.masks, slots=more) if now.until > before.until else now.masks,
        spent=now.spent + _times(cost, more),
        alone=now.uncovered,
        sampled=now.sampled + _times(training, more),
        verdicts=now.verdicts,
    )


def _ahead(masks: Masks, *, slots: int) -> Masks:
    """Return the journal of the mask ledger after so many further releases with the partners of the last one."""
    attempt, stop = masks.until
    last = Slot(attempt, stop - 1)
    coming = Slots.of([(attempt, stop, stop + slots)])

    def note(each: MaskNotes) -> MaskNotes:
        epochs = [epoch for slot, epoch in each.own.since(last) if slot == last]
        own = each.own | DrawnSlots.of((epoch, coming) for epoch in epochs)
        return MaskNotes(own, each.received, each.until, each.paid, each.known, each.confirmed, each.key)

    return Masks(Slot(attempt, stop + slots), {name: note(each) for name, each in masks.notes.items()})


def _times(counts: Counter[_T], factor: int) -> Counter[_T]:
    return Counter({key: count * factor for key, count in counts.items()})
