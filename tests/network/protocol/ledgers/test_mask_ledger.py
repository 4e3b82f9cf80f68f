"""The ledger of masks, by cases and under any schedule of delay, loss, crash and restart."""

import numpy as np
import pytest

from covers import linear_view
from p2pfl.core.errors import PrivacyError
from p2pfl.network.protocol.ledgers.drawn_slots import DrawnSlots
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger, MaskStatement
from p2pfl.network.protocol.ledgers.payments import Mask, points, residual_variance
from p2pfl.network.protocol.ledgers.slots import START, Slot
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.topology import ring

EDGE = ("ada", "bob")


def pair():
    return MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])


def tell(sender, receiver):
    receiver.receive(sender.peer, sender.journal().statement(receiver.peer))


def restarted(ledger, *, carried):
    partners = list(ledger.journal().notes)
    return MaskLedger(ledger.peer, partners=partners, journal=ledger.journal(), carried=carried)


def announced(ledger, partner, epoch):
    ledger.meet(partner, b"", epoch=epoch)


def names(payment):
    return {(mask.slot.attempt, mask.slot.round): factor for mask, factor in payment.terms.items()}


def test_in_calm_weather_nothing_is_ever_paid_late():
    ada, bob = pair()
    for round in range(5):
        first, second = ada.release(round), bob.release(round)
        assert names(first) == {(0, round): 1}
        assert names(second) == {(0, round): -1}
        tell(ada, bob)
        tell(bob, ada)
    assert bob.list_uncancelled() == []


def test_the_follower_takes_back_a_mask_that_the_leader_skipped():
    ada, bob = pair()
    bob.release(0)
    ada.release(1)
    tell(ada, bob)
    assert names(bob.release(1)) == {(0, 0): 1, (0, 1): -1}
    assert names(bob.release(2)) == {(0, 2): -1}


def test_a_follower_that_hears_nothing_takes_the_leader_to_be_there():
    _, bob = pair()
    assert [names(bob.release(round)) for round in range(3)] == [{(0, 0): -1}, {(0, 1): -1}, {(0, 2): -1}]


def test_a_statement_that_contradicts_an_earlier_one_is_not_believed():
    ada, bob = pair()
    ada.release(1)
    tell(ada, bob)
    bob.receive("ada", MaskStatement(START, Slot(0, 4), DrawnSlots.read([(0, 0, 4)]), START, START))
    assert bob.journal().notes["ada"].received == DrawnSlots.read([(0, 1, 4)])


def test_a_release_has_its_fresh_mask_even_where_the_leader_is_known_to_have_left_it_out():
    ada, bob = pair()
    ada.release(1)
    tell(ada, bob)
    assert names(bob.release(0)) == {(0, 0): -1}
    assert names(bob.release(1)) == {(0, 0): 1, (0, 1): -1}


def test_the_leader_never_pays_for_the_follower():
    ada, bob = pair()
    ada.release(0)
    bob.release(1)
    tell(bob, ada)
    assert names(ada.release(1)) == {(0, 1): 1}


def test_a_follower_that_is_behind_leaves_the_masks_of_rounds_to_come_for_those_rounds():
    ada, bob = pair()
    for round in range(4):
        ada.release(round)
    tell(ada, bob)
    assert [names(bob.release(round)) for round in range(2)] == [{(0, 0): -1}, {(0, 1): -1}]


def test_a_leader_restored_from_an_old_checkpoint_pays_again_what_its_row_has_lost():
    ada, _ = pair()
    old = ada.applied_masks()
    ada.release(0)
    ada.release(1)
    assert names(restarted(ada, carried=old).release(2)) == {(0, 0): 1, (0, 1): 1, (0, 2): 1}


def test_a_round_that_is_run_again_takes_a_new_attempt_and_partners_follow():
    ada, bob = pair()
    old = ada.applied_masks()
    for round in range(3):
        ada.release(round)
        bob.release(round)
    tell(ada, bob)
    ada = restarted(ada, carried=old)
    assert ada.release(1).slot == Slot(1, 1)
    tell(ada, bob)
    assert bob.release(3).slot == Slot(1, 3)
    assert bob.release(4).slot == Slot(1, 4)


def test_a_crash_before_the_journal_is_durable_leaves_no_trace():
    ada, _ = pair()
    before, carried = ada.journal(), ada.applied_masks()
    ada.release(0)
    again = MaskLedger("ada", partners=["bob"], journal=before, carried=carried)
    assert again.release(0).slot == Slot(0, 0)


def test_a_statement_is_small_after_many_rounds():
    ada, _ = pair()
    for round in range(1000):
        ada.release(round)
    assert ada.journal().statement("bob").reported.runs == ((0, 0, 1000),)


def test_a_statement_starts_where_the_partner_has_heard_all():
    ada, bob = pair()
    ada.release(0)
    tell(ada, bob)
    tell(bob, ada)
    ada.release(1)
    assert ada.journal().statement("bob").reported.runs == ((0, 1, 2),)


def test_statements_may_come_twice_and_in_any_order():
    ada, bob = pair()
    ada.release(0)
    first = ada.journal().statement("bob")
    ada.release(2)
    second = ada.journal().statement("bob")
    bob.receive("ada", second)
    known = bob.journal()
    for statement in (first, second, first):
        bob.receive("ada", statement)
    assert bob.journal() == known


def test_a_journal_older_than_what_the_partner_heard_is_refused():
    ada, bob = pair()
    old = ada.journal()
    ada.release(0)
    tell(ada, bob)
    again = MaskLedger("ada", partners=["bob"], journal=old)
    with pytest.raises(PrivacyError, match="restore the newest"):
        tell(bob, again)


def test_a_journal_older_than_what_it_said_it_had_heard_is_refused():
    ada, bob = pair()
    ada.release(0)
    tell(ada, bob)
    tell(bob, ada)
    with pytest.raises(PrivacyError, match="restore the newest"):
        tell(ada, MaskLedger("bob", partners=["ada"]))


def test_a_partner_that_has_finished_changes_no_attempt():
    ada, bob = pair()
    ada.finish()
    tell(ada, bob)
    assert bob.release(0).slot == Slot(0, 0)


def test_what_the_checkpoint_carries_is_not_paid_again():
    ada, _ = pair()
    ada.release(0)
    assert names(restarted(ada, carried=ada.applied_masks()).release(1)) == {(0, 1): 1}


def test_what_is_owed_to_a_partner_that_this_life_never_met_stays_owed():
    """Found by the world: without the partner's key its masks cannot be drawn."""
    ada, _ = pair()
    ada.release(0)
    again = restarted(ada, carried={})
    assert names(again.release(1, partners=[], shared=[])) == {}
    assert [mask.slot for mask in again.list_uncancelled()] == [Slot(0, 0)]
    assert names(again.release(2, shared=["bob"])) == {(0, 0): 1, (0, 2): 1}


def test_masks_of_one_slot_in_two_epochs_are_two_masks_and_each_is_paid():
    ada, bob = pair()
    announced(ada, "bob", b"old")
    announced(bob, "ada", b"new")  # bob restarted, which ada has not heard yet
    assert ada.release(0).terms == {Mask(EDGE, Slot(0, 0), b"old"): 1}
    assert bob.release(0).terms == {Mask(EDGE, Slot(0, 0), b"new"): -1}
    tell(ada, bob)
    announced(ada, "bob", b"new")
    assert bob.release(1).terms == {
        Mask(EDGE, Slot(0, 0), b"old"): -1,
        Mask(EDGE, Slot(0, 0), b"new"): 1,
        Mask(EDGE, Slot(0, 1), b"new"): -1,
    }
    tell(bob, ada)
    assert ada.uncovered_slots("bob") == {Slot(0, 0)}  # its release was hidden by private noise alone
    assert ada.release(1).terms == {Mask(EDGE, Slot(0, 1), b"new"): 1}
    tell(ada, bob)
    assert bob.list_uncancelled() == []


def test_a_journal_that_is_resumed_twice_masks_the_same_slot_in_two_epochs():
    ada, _ = pair()
    ada.release(0)
    copies = [restarted(ada, carried=ada.applied_masks()) for _ in range(2)]
    masks = set()
    for copy, epoch in zip(copies, (b"one", b"two"), strict=True):
        announced(copy, "bob", epoch)
        masks |= set(copy.release(1).terms)
    assert masks == {Mask(EDGE, Slot(0, 1), b"one"), Mask(EDGE, Slot(0, 1), b"two")}


def test_a_late_mask_is_drawn_in_the_epoch_of_its_release():
    ada, bob = pair()
    announced(ada, "bob", b"first")
    ada.release(0)
    tell(ada, bob)
    announced(bob, "ada", b"second")
    assert bob.release(1).terms == {Mask(EDGE, Slot(0, 0), b"first"): -1, Mask(EDGE, Slot(0, 1), b"second"): -1}


def test_many_slots_of_an_epoch_are_stated_as_one_run():
    ada, _ = pair()
    for epoch, rounds in ((b"one", range(500)), (b"two", range(500, 1000))):
        announced(ada, "bob", epoch)
        for round in rounds:
            ada.release(round)
    told = ada.journal().statement("bob").reported
    assert told.runs == ((0, 0, 500), (0, 500, 1000))
    assert told.epochs == ((b"one", 1), (b"two", 1))


def test_a_statement_that_names_two_masks_of_one_slot_is_refused():
    _, bob = pair()
    twice = DrawnSlots.read([(0, 0, 2), (0, 1, 3)], ((b"one", 1), (b"two", 1)))
    with pytest.raises(PrivacyError, match="two masks of one slot"):
        bob.receive("ada", MaskStatement(START, Slot(0, 3), twice, START, START))


def test_strangers_early_settling_and_late_releases_are_refused():
    ada, _ = pair()
    with pytest.raises(PrivacyError, match='got "eve"'):
        ada.release(0, partners=["eve"])
    with pytest.raises(PrivacyError, match="call finish"):
        ada.settle()
    ada.finish()
    with pytest.raises(PrivacyError, match="begin a new run"):
        ada.release(7)


def test_settling_pays_the_last_difference_once():
    ada, bob = pair()
    bob.release(0)
    ada.finish()
    bob.finish()
    tell(ada, bob)
    assert names(bob.settle()) == {(0, 0): 1}
    assert names(bob.settle()) == {}


def test_a_mask_that_no_release_can_pay_stays_owed_until_all_settle():
    ada, bob = pair()
    bob.release(0)
    tell(ada, bob)
    ada.release(1)
    tell(ada, bob)
    payment = bob.release(2, payable=lambda slot: slot.round == 2)
    assert names(payment) == {(0, 2): -1}
    tell(bob, ada)
    assert bob.journal().statement("ada").paid == Slot(0, 0)
    assert Mask(("ada", "bob"), Slot(0, 0)) in bob.list_uncancelled()
    for sender, receiver in ((ada, bob), (bob, ada)):
        sender.finish()
        tell(sender, receiver)
    tell(ada, bob)
    assert names(bob.settle()) == {(0, 0): 1, (0, 1): -1, (0, 2): 1}


def test_what_a_vanished_partner_leaves_is_listed_and_bounded():
    ada, bob = pair()
    for round in range(3):
        ada.release(round)
        bob.release(round)
    tell(ada, bob)
    bob.release(3)
    assert bob.list_uncancelled() == [Mask(EDGE, Slot(0, 3))]
    assert residual_variance(bob.list_uncancelled(), deviation=3.0) == 9.0
    assert [mask.slot.round for mask in ada.list_uncancelled()] == [0, 1, 2]


def noise_matrix(payments):
    """Return the masks of many releases, and the factor of each in each, ``[R, D]``."""
    order = sorted({mask for payment in payments for mask in payment.terms})
    return order, np.array([[payment.terms.get(mask, 0) for mask in order] for payment in payments])


def test_points_without_late_terms_are_the_masks_of_the_round():
    swarm = ring(5)
    masks = Masks(swarm_secrets(swarm, source=SeededSource(7), run="test"), deviation=10.0, topology=swarm)
    for number, peer in enumerate(swarm.peers):
        payment = MaskLedger(peer, partners=swarm.neighbours(peer)).release(3)
        assert (points(payment, masks=masks, size=100) == masks.sums(swarm.peers, round=3, size=100)[number]).all()


def test_points_of_late_terms_cancel_to_the_last_bit():
    swarm = ring(3)
    masks = Masks(swarm_secrets(swarm, source=SeededSource(7), run="test"), deviation=10.0, topology=swarm)
    ledgers = [MaskLedger(peer, partners=swarm.neighbours(peer)) for peer in swarm.peers]
    payments = [ledgers[0].release(0), ledgers[1].release(1), ledgers[2].release(2)]
    for ledger in ledgers:
        ledger.finish()
    for ledger in ledgers:
        for other in ledgers:
            if other is not ledger:
                tell(other, ledger)
        payments.append(ledger.settle())
    assert sum(points(payment, masks=masks, size=100) for payment in payments).any() == np.False_
    assert not noise_matrix(payments)[1].sum(axis=0).any()


def leak(payments, *, private):
    """Of the first release, to whoever sees all; ``private`` of the releases carry data and private noise."""
    own = np.eye(len(payments), private)
    order, factors = noise_matrix(payments)
    variances = [1.0] * private + [100.0] * len(order)
    return linear_view(own, np.hstack([own, factors]), variances=variances, sensitivity=1.0)[0]


def test_a_late_half_still_covers_what_it_masked_and_a_bare_settlement_uncovers_it():
    ada, bob = pair()
    first = ada.release(0)
    tell(ada, bob)
    late = [first, ada.release(1), bob.release(1)]
    ada, bob = pair()
    ada.release(0)
    ada.finish()
    bob.finish()
    tell(ada, bob)
    assert leak(late, private=3) < 0.8  # two peers cover each other to sqrt(1/2) at best
    assert leak([first, bob.settle()], private=1) == pytest.approx(1.0)  # private noise alone


def test_an_edge_without_secret_is_refused():
    swarm = ring(3)
    payment = MaskLedger(swarm.peers[0], partners=swarm.neighbours(swarm.peers[0])).release(0)
    with pytest.raises(PrivacyError, match="exchange public keys"):
        points(payment, masks=Masks({}, deviation=10.0, topology=swarm), size=4)


def test_who_goes_back_with_others_that_had_not_released_yet_owes_nothing_of_that_release():
    ada, bob = MaskLedger("ada", partners=["bob"]), MaskLedger("bob", partners=["ada"])
    bob.release(0)  # ada, whose word counts, was killed before she did
    again = [MaskLedger(each.peer, partners=each.partners, journal=each.journal()) for each in (ada, bob)]
    for each in again:
        each.agree(1)
    ada, bob = again
    bob.receive("ada", ada.journal().statement("bob"))
    ada.receive("bob", bob.journal().statement("ada"))
    mask = Mask(("ada", "bob"), Slot(attempt=1, round=0))
    assert ada.release(0).terms == {mask: 1}
    assert bob.release(0).terms == {mask: -1}


@pytest.mark.parametrize("slot", [Slot(2, 5), Slot(2, 4), Slot(1, 9)])
def test_no_slot_that_may_have_been_used_gives_masks_again(slot):
    ledger = MaskLedger("ada", partners=["bob"])
    ledger.take(Slot(2, 5), partners=["bob"])
    resumed = MaskLedger("ada", partners=["bob"], journal=ledger.journal())
    for each in (ledger, resumed):
        with pytest.raises(PrivacyError, match="from slot"):
            each.take(slot, partners=["bob"])
    assert resumed.take(Slot(2, 6), partners=["bob"]).slot == Slot(2, 6)
