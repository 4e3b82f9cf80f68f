"""A mask partner that states what cannot be."""

import contextlib
from collections import Counter

import pytest

from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots
from p2pfl.network.protocol.ledgers.mask_ledger import LEAP, MAX_LATE_MASKS, UNSEEN_MASKS, MaskLedger, MaskStatement
from p2pfl.network.protocol.ledgers.slots import END, START, Slot


def stated(until, *runs):
    return MaskStatement(START, until, DrawnSlots.read(runs), START, START)


@pytest.mark.parametrize(
    "statement",
    [
        stated(Slot(0, 2**20), (0, 0, 2**20)),
        stated(Slot(1, 0), (0, 0, 2**20)),
        stated(END, (0, 0, MAX_LATE_MASKS + 2)),
        stated(Slot(5, 0), *((attempt, 0, 20) for attempt in range(5))),
        stated(Slot(2**62, 0)),
        stated(Slot(2**63 - 1, 1)),
        stated(END, (2**62, 0, 1)),
        stated(Slot(LEAP + 1, 0)),
    ],
    ids=[
        "slots",
        "until a later attempt",
        "before the end",
        "attempts",
        "attempt",
        "after the end",
        "attempt of a run",
        "leap",
    ],
)
def test_a_statement_that_cannot_be_changes_nothing_and_costs_no_mask(statement):
    bob = MaskLedger("bob", partners=["ada"])
    bob.release(0)
    before = bob.journal()
    with pytest.raises(PrivacyError, match="masks that can be shared"):
        bob.receive("ada", statement)
    assert bob.journal() == before
    assert bob.attempt == 0
    assert len(bob.release(1).terms) == 1


def test_statements_that_name_more_and_more_slots_cost_no_more_masks_than_one_may():
    bob = MaskLedger("bob", partners=["ada"])
    for many in range(500, 6 * MAX_LATE_MASKS, 500):
        with contextlib.suppress(PrivacyError):
            bob.receive("ada", stated(Slot(0, many), (0, 0, many)))
    bob.release(6 * MAX_LATE_MASKS - 1)
    assert len(bob.applied_masks()["ada"]) <= MAX_LATE_MASKS + 1


@pytest.mark.slow
def test_a_partner_that_was_followed_through_many_rounds_may_name_them_all():
    ada, bob = MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])
    for round in range(2 * MAX_LATE_MASKS):
        ada.release(round)
        bob.release(round)
    bob.receive("ada", ada.journal().statement("bob"))
    assert len(bob.release(2 * MAX_LATE_MASKS).terms) == 1


def test_a_partner_may_end_and_be_some_attempts_ahead():
    bob = MaskLedger("bob", partners=["ada"])
    bob.receive("ada", stated(Slot(LEAP, 3), (0, 0, 2), (LEAP, 2, 3)))
    assert bob.attempt == LEAP
    bob.receive("ada", stated(END, (0, 0, 2), (LEAP, 2, 3)))
    assert bob.finished == {"ada"}


ROUNDS, LIVES = 20, 6


def test_a_partner_cannot_name_every_round_in_every_attempt():
    """Its incarnation releases once in a round, so the masks that it can have alone are counted by its restarts."""
    bob = MaskLedger("bob", partners=["ada"])
    bob.meet("ada", b"key", epoch=b"one")
    runs = ()
    for attempt in range(100):
        with contextlib.suppress(PrivacyError):
            bob.receive("ada", stated(Slot(attempt + 1, 0), *runs, (attempt, 0, ROUNDS)))
            runs = (*runs, (attempt, 0, ROUNDS))
    assert len(runs) * ROUNDS <= ROUNDS + UNSEEN_MASKS
    assert len(bob.release(0).terms) <= 1 + ROUNDS + UNSEEN_MASKS


def test_a_partner_that_restarted_often_is_believed_as_often_as_its_restarts_were_noticed():
    ada, bob = (MaskLedger(peer, partners=[other]) for peer, other in (("ada", "bob"), ("bob", "ada")))
    for life in range(LIVES):
        ada.meet("bob", b"bob", epoch=str(life).encode())
        bob.meet("ada", b"ada", epoch=str(life).encode())
        for round in range(ROUNDS):
            ada.release(round)
            bob.release(round, partners=[])
        bob.receive("ada", ada.statement("bob"))
    bob.release(ROUNDS)
    assert len(bob.applied_masks()["ada"]) == LIVES * ROUNDS + 1
    again = MaskLedger("bob", partners=["ada"], journal=bob.journal(), carried=bob.applied_masks())
    again.meet("ada", b"ada", epoch=b"after a restart")
    for round in range(ROUNDS, 2 * ROUNDS):
        ada.release(round)
    again.receive("ada", ada.statement("bob"))
    assert len(again.release(2 * ROUNDS).terms) == ROUNDS  # one of them fresh; round 20 has its mask already


def test_late_masks_of_many_rounds_are_paid_over_several_releases_and_all_cancel():
    ada, bob = (MaskLedger(peer, partners=[other]) for peer, other in (("ada", "bob"), ("bob", "ada")))
    total = Counter()
    for round in range(9):
        total.update(ada.release(round).terms)
    bob.receive("ada", ada.statement("bob"))
    for round in (9, 10, 11):
        payment = bob.release(round, partners=[], most=2)
        assert sorted(mask.slot.round for mask in payment.terms) == [2 * (round - 9), 2 * (round - 9) + 1]
        assert bob.statement("ada").paid == Slot(0, 2 * (round - 8))
        total.update(payment.terms)
    bob.finish()
    total.update(bob.settle(most=2).terms)
    assert [mask.slot.round for mask in bob.list_uncancelled()] == [8]
    total.update(bob.settle().terms)
    assert bob.list_uncancelled() == []
    assert not any(total.values())
