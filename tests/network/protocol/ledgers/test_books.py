"""What is found late enters the model of its release, and what a later incarnation goes on from."""

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.peer.end import unsettled
from p2pfl.network.peer.storage.journal import Journal, decode_journal, encode_journal
from p2pfl.network.protocol.ledgers.page import Page
from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head

STEPS = 8
KEY, OTHER = bytes(32), bytes([1] * 32)
MASK = Mask(("ada", "bob"), Slot(0, 0))


def mixed(*, found):
    """The models of ada's two releases a round, over two rounds; bob's of step k is found in step ``found[k]``."""
    ada, models = PeerLedgers("ada", gossip=["bob"]), np.zeros((2, 1))
    for number in range(2 * STEPS):
        chain = number % 2
        ada.open((0, number), np.zeros(1), weights={"bob": 0.5}, chain=chain)
        for step, when in enumerate(found):
            if when == number and step == number:
                models[chain] += ada.apply("bob", (0, step), np.full(1, step + 1.0))
            elif when == number:
                assert ada.late("bob", delivered((0, step), step + 1.0))
        due = ada.close()
        models[chain] += 0.0 if due is None else due
    rest = ada.remainder()
    models[0] += 0.0 if rest is None else rest
    return models


def delivered(exchange, value):
    """A model of bob's that came."""
    return Delivery(Head(*exchange, "float64", 1), torch.full((1,), value, dtype=torch.float64))


@given(delays=st.lists(st.integers(0, 4), min_size=STEPS, max_size=STEPS))
def test_flows_found_late_end_in_the_model_of_their_release(delays):
    late = mixed(found=[step + delay for step, delay in enumerate(delays)])
    prompt = mixed(found=range(STEPS))
    assert late == pytest.approx(prompt)


@pytest.mark.parametrize("back", [1, 2])
def test_what_was_moved_with_a_life_that_ended_while_one_was_down_is_taken_back(back):
    ledgers = PeerLedgers("ada", gossip=["bob"])
    ledgers.begin("bob", incarnation=1, key=KEY)
    ledgers.open((0, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    ledgers.apply("bob", (0, 0), np.ones(2))
    ledgers.close()
    page, rows = ledgers.page()
    later = PeerLedgers("ada", gossip=["bob"])
    later.begin("bob", incarnation=back, key=KEY)
    later.turn(page, rows, round=1, journal=None)
    later.revive("bob", 0)  # whichever life it is in, it says that it plays round 0 again
    assert later.flows.list_unsettled() == [("bob", (0, 0))] * (back == 1)
    taken = later.remainder()
    assert (None if taken is None else taken.tolist()) == (None if back == 1 else [-0.5, -0.5])


def masked():
    """Ada's ledgers after a release that was masked with bob under his first key, and the page of that row."""
    ada = PeerLedgers("ada", masks=["bob"])
    ada.begin("bob", incarnation=1, key=KEY)
    ada.masks.release(0)
    return ada, through(ada.page()[0])


def through(page):
    """As it comes back from the disk."""
    return msgspec.json.decode(msgspec.json.encode(page), type=Page)


def test_a_life_that_knew_only_the_keys_that_a_partner_has_lost_pays_nothing_under_the_new_ones():
    ada, page = masked()
    journal = ada.masks.journal()  # of a life that ended before it had met bob again
    later = PeerLedgers("ada", masks=["bob"])
    later.begin("bob", incarnation=2, key=OTHER)
    later.turn(page, {}, round=1, journal=journal)
    assert later.masks.list_uncancelled() == [MASK]
    assert later.masks.release(1).terms.keys() == {MASK._replace(slot=Slot(0, 1))}


def test_a_row_that_goes_back_behind_the_loss_of_a_partners_keys_takes_its_old_masks_for_lost():
    ada, page = masked()
    ada.begin("bob", incarnation=2, key=OTHER)
    later = PeerLedgers("ada", masks=["bob"])
    later.turn(page, {}, round=1, journal=ada.masks.journal())
    assert later.masks.list_uncancelled() == [MASK]
    assert later.masks.release(1).terms.keys() == {MASK._replace(slot=Slot(0, 1))}


def test_masks_that_nobody_can_cancel_any_more_stay_so_in_later_lives():
    ada, _ = masked()
    ada.begin("bob", incarnation=2, key=OTHER)
    page = through(ada.page()[0])
    later = PeerLedgers("ada", masks=["bob"])
    later.turn(page, {}, round=1, journal=ada.masks.journal())
    assert later.masks.list_uncancelled() == [MASK]


def test_what_was_said_of_masks_under_keys_that_were_lost_is_not_for_who_has_new_ones():
    ada, _ = masked()
    account = ada.account(1)
    for key, owed in ((OTHER, 0), (KEY, 1)):
        bob = PeerLedgers("bob", masks=["ada"])
        bob.receive("ada", account, incarnation=2, key=key)
        assert len(bob.masks.list_uncancelled()) == owed


@pytest.mark.parametrize("aware", [False, True])
def test_who_came_back_says_what_stays_open_with_partners_that_may_not_know(aware):
    later = PeerLedgers("ada", gossip=["bob"])
    later.turn(Page(), {}, round=0, journal=None)
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.begin("ada", incarnation=1, key=KEY)
    bob.begin("ada", incarnation=2, key=KEY)
    if aware:
        bob.revive("ada", 0)
    later.receive("bob", bob.account(1), incarnation=2)
    assert unsettled(later, deviation=0.0, peers=2, missed={}).earlier == (() if aware else ("bob",))


def test_the_epoch_of_a_mask_survives_an_account_a_page_and_a_journal():
    first, second = b"1" * 16, b"2" * 16
    ada, bob = PeerLedgers("ada", masks=["bob"]), PeerLedgers("bob", masks=["ada"])
    ada.begin("bob", incarnation=1, key=KEY, epoch=first)
    bob.begin("ada", incarnation=1, key=KEY, epoch=second)
    mask = MASK._replace(epoch=first)
    assert ada.masks.release(0).terms == {mask: 1}
    bob.receive("ada", decode(encode(ada.account(1))), incarnation=1, key=KEY)
    assert bob.masks.release(1).terms == {mask: -1, Mask(MASK.edge, Slot(0, 1), second): -1}
    page = msgspec.json.decode(msgspec.json.encode(ada.page()[0]), type=Page)
    journal = decode_journal(encode_journal(Journal(1, KEY).after(round=0, masks=ada.masks.journal(), spent={})))
    later = PeerLedgers("ada", masks=["bob"])
    later.begin("bob", incarnation=1, key=KEY, epoch=second)
    later.turn(page, {}, round=1, journal=journal.masks)
    assert later.masks.applied_masks() == ada.masks.applied_masks()
    assert later.masks.journal() == ada.masks.journal()
    assert later.masks.release(1).terms == {Mask(MASK.edge, Slot(0, 1), second): 1}
