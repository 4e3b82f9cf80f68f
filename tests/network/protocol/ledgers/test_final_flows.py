"""Rows that are dropped, or counted for good, once all peers have agreed on them."""

import numpy as np

from p2pfl.network.protocol.ledgers.flows import FlowLedger
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.slots import Slot

NOW = (0, 0)


def ledger():
    made = FlowLedger(["bob", "eve"], window=2, room=4)
    made.open(NOW, np.array([8]), weights={"bob": 0.5, "eve": 0.25})
    return made


def test_a_dropped_row_is_taken_back_and_never_applied_again():
    ada = ledger()
    assert ada.deliver("bob", NOW, np.array([0])) == [-4]
    assert ada.applied_weights(NOW) == {"bob": 0.5}
    assert ada.refuse("bob", NOW) == [4]
    assert ada.deliver("bob", NOW, np.array([0])) is None
    assert ada.applied_weights(NOW) == {}


def test_a_dropped_row_that_never_came_is_refused_later():
    ada = ledger()
    assert ada.refuse("bob", NOW) is None
    assert ada.deliver("bob", NOW, np.array([0])) is None
    assert ada.deliver("eve", NOW, np.array([0])) == [-2]


def test_a_row_that_counts_for_good_is_not_taken_back_even_if_its_owner_comes_back_with_nothing():
    ada = ledger()
    ada.deliver("bob", NOW, np.array([0]))
    ada.final(NOW)
    empty = FlowLedger(["ada"], window=2, room=4)
    empty.open((1, 0), np.array([0]), weights={"ada": 0.5})
    empty.finish()
    assert ada.receive("bob", empty.statement("ada")) == {}
    assert ada.list_unsettled() == []


def test_nothing_is_applied_any_more_in_a_gossip_step_that_all_have_agreed_on():
    ada = ledger()
    ada.final(NOW)
    assert ada.deliver("eve", NOW, np.array([0])) is None
    ada.open((1, 0), np.array([8]), weights={"eve": 0.5})
    assert ada.deliver("eve", (1, 0), np.array([0])) == [-4]


def test_a_removed_mask_is_neither_owed_nor_reported():
    ada = MaskLedger("ada", partners=["bob", "eve"])
    slot = ada.release(0).slot
    ada.withdraw("eve", slot)
    assert ada.unmatched_partners(slot) == {"bob"}
    assert ada.list_uncancelled() == [Mask(("ada", "bob"), slot)]
    assert ada.release(1, partners=["bob"]).terms == {Mask(("ada", "bob"), Slot(0, 1)): 1}


def test_both_ends_of_a_removed_mask_add_it_again_once_the_partner_is_back_from_its_checkpoint():
    bob = MaskLedger("bob", partners=["ada"])
    ada = MaskLedger("ada", partners=["bob"])
    for one, other, name in ((ada, b"bob", "bob"), (bob, b"ada", "ada")):
        one.meet(name, other, epoch=b"first")
    carried, slot = bob.applied_masks(), ada.release(0).slot
    bob.release(0)
    ada.withdraw("bob", slot)
    bob = MaskLedger("bob", partners=["ada"], journal=bob.journal(), carried=carried)  # its row is that of before
    ada.meet("bob", b"bob", epoch=b"second")
    bob.meet("ada", b"ada", epoch=b"second")
    terms = [ledger.release(1).terms for ledger in (ada, bob)]
    assert terms[0] == {mask: -factor for mask, factor in terms[1].items()}
    assert {mask.slot.round for mask in terms[0]} == {0, 1}


def test_a_mask_is_removed_even_if_its_partner_has_lost_its_keys_meanwhile():
    ada = MaskLedger("ada", partners=["bob"])
    ada.meet("bob", b"one")
    slot = ada.release(0).slot
    ada.meet("bob", b"two")
    assert ada.list_uncancelled() != []
    assert ada.withdraw("bob", slot) == Mask(("ada", "bob"), slot)
    assert ada.list_uncancelled() == []
