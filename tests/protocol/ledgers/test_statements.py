"""A mask partner that states what cannot be."""

import contextlib

import pytest

from p2pfl.errors import PrivacyError
from p2pfl.protocol.ledgers.drawn import Drawn
from p2pfl.protocol.ledgers.masks import LEAP, MOST, MaskLedger, MaskStatement
from p2pfl.protocol.ledgers.slots import END, START, Slot


def stated(until, *runs):
    return MaskStatement(START, until, Drawn.read(runs), START, START)


@pytest.mark.parametrize(
    "statement",
    [
        stated(Slot(0, 2**20), (0, 0, 2**20)),
        stated(Slot(1, 0), (0, 0, 2**20)),
        stated(END, (0, 0, MOST + 2)),
        stated(Slot(2**62, 0)),
        stated(Slot(2**63 - 1, 1)),
        stated(END, (2**62, 0, 1)),
        stated(Slot(LEAP + 1, 0)),
    ],
    ids=["slots", "until a later attempt", "before the end", "attempt", "after the end", "attempt of a run", "leap"],
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
    for many in range(500, 6 * MOST, 500):
        with contextlib.suppress(PrivacyError):
            bob.receive("ada", stated(Slot(0, many), (0, 0, many)))
    bob.release(6 * MOST - 1)
    assert len(bob.carried()["ada"]) <= MOST + 1


@pytest.mark.slow
def test_a_partner_that_was_followed_through_many_rounds_may_name_them_all():
    ada, bob = MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])
    for round in range(2 * MOST):
        ada.release(round)
        bob.release(round)
    bob.receive("ada", ada.journal().statement("bob"))
    assert len(bob.release(2 * MOST).terms) == 1


def test_a_partner_may_end_and_be_some_attempts_ahead():
    bob = MaskLedger("bob", partners=["ada"])
    bob.receive("ada", stated(Slot(LEAP, 3), (0, 0, 2), (LEAP, 2, 3)))
    assert bob.attempt == LEAP
    bob.receive("ada", stated(END, (0, 0, 2), (LEAP, 2, 3)))
    assert bob.finished == {"ada"}
