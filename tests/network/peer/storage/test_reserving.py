"""A journal with a reservation stays true of the releases that it reserves, and of nothing else."""

from collections import Counter

from msgspec.structs import replace

from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.peer.storage.reserving import covers, reserved
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.accounting.spending import Cost

COST, TRAINING = Cost(0.5), SampledSteps(1.0, 0.1, 3)


def after(rounds, *, ledger=None, skipped=(), alone=()):
    """The journal of Ada, who masks with Bob and Cyd, after so many rounds."""
    ledger = ledger or MaskLedger("ada", partners=["bob", "cyd"])
    for round in range(rounds):
        if round not in skipped:
            ledger.release(round)
    spent, sampled = Counter({COST: rounds}), Counter({TRAINING: rounds})
    return Journal(7, b"key").after(round=rounds - 1, masks=ledger.journal(), spent=spent, sampled=sampled, alone=alone)


def block(releases, *, rounds=100, affords=lambda _: True):
    return reserved(after(3), after(2), releases=releases, rounds=rounds, affords=affords)


def test_a_reservation_is_the_journal_after_as_many_releases():
    assert block(5) == after(7)
    assert all(covers(block(5), after(rounds)) for rounds in range(3, 8))
    assert not covers(block(5), after(8))


def test_a_release_that_differs_from_the_reserved_ones_is_written():
    dear, fewer = after(4), MaskLedger("ada", partners=["bob", "cyd"])
    for round in range(3):
        fewer.release(round)
    fewer.release(3, partners=["bob"])
    gone = MaskLedger("ada", partners=["bob", "cyd"])
    gone.meet("bob", b"one")
    for now in (
        replace(after(4), notes=after(4, ledger=gone).notes),
        after(4).after(round=3, masks=fewer.journal(), spent=dear.spent, sampled=dear.sampled),
        after(5, skipped=[3]),
        after(4, alone=[Slot(0, 1)]),
        replace(dear, costs=(*dear.costs, (0.7, 1.0, 1))),
        replace(dear, samplings=(*dear.samplings, (0.5, 0.1, 3, 1))),
        replace(dear, ended=4),
    ):
        assert not covers(block(5), now)
    assert covers(block(5), after(4))


def test_what_partners_state_is_written_with_the_next_reservation():
    ledger, bob = MaskLedger("ada", partners=["bob", "cyd"]), MaskLedger("bob", partners=["ada"])
    bob.release(0)
    ledger.receive("bob", bob.statement("ada"))
    assert covers(block(5), after(4, ledger=ledger))


def test_a_block_is_cut_to_what_the_budget_permits():
    assert block(8, affords=lambda costs: costs[COST] <= 6) == after(6)
    assert block(8, affords=lambda costs: costs[COST] <= 3) == after(3)


def test_a_block_ends_with_the_last_round_of_the_run():
    assert block(8, rounds=6) == after(6)
    assert block(8, rounds=3) == after(3)


def test_nothing_is_reserved_before_the_second_round_or_after_the_last():
    assert reserved(after(1), Journal(7, b"key"), releases=5, rounds=100, affords=lambda _: True) == after(1)
    ledger = MaskLedger("ada", partners=["bob", "cyd"])
    over = after(3, ledger=ledger)
    ledger.finish()
    over = over.after(round=2, masks=ledger.journal(), spent=over.spent)
    assert reserved(over, after(2), releases=5, rounds=100, affords=lambda _: True) == over
    assert covers(over, over)
    assert not covers(block(5), over)


def test_a_partner_repeats_what_was_not_on_the_disk_when_the_power_went():
    ada, bob = MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])
    ada.durable = kept = dict(ada.journal().notes)
    ada.release(0, partners=[])
    bob.release(0)
    ada.receive("bob", bob.statement("ada"))
    assert ada.statement("bob").received == Slot(0, 0)
    bob.receive("ada", ada.statement("bob"))
    ada = MaskLedger("ada", partners=["bob"], journal=replace_until(ada.journal(), kept))
    ada.receive("bob", bob.statement("ada"))  # it does not begin after what Ada has lost
    assert ada.journal().notes["bob"].received.slots == bob.journal().notes["ada"].own.slots


def replace_until(journal, notes):
    """The journal that a crash leaves: the slots of now, and older facts about partners."""
    return type(journal)(journal.until, notes)
