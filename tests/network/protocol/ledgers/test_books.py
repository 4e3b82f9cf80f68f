"""Late flows, which enter the model of their release, and the page from which a later incarnation continues."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.network.peer.end import unsettled
from p2pfl.network.protocol.ledgers.page import Page
from p2pfl.network.protocol.ledgers.peer_ledgers import ROOM, PeerLedgers
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head

STEPS = 8


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
    ledgers.begin("bob", incarnation=1)
    ledgers.open((0, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    ledgers.apply("bob", (0, 0), np.ones(2))
    ledgers.close()
    page, rows = ledgers.page()
    later = PeerLedgers("ada", gossip=["bob"])
    later.begin("bob", incarnation=back)
    later.turn(page, rows, round=1)
    later.revive("bob", 0)  # whichever life it is in, it says that it plays round 0 again
    assert later.flows.list_unsettled() == [("bob", (0, 0))] * (back == 1)
    taken = later.remainder()
    assert (None if taken is None else taken.tolist()) == (None if back == 1 else [-0.5, -0.5])


@pytest.mark.parametrize("aware", [False, True])
def test_who_came_back_says_what_stays_open_with_partners_that_may_not_know(aware):
    later = PeerLedgers("ada", gossip=["bob"])
    later.turn(Page(), {}, round=0)
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.begin("ada", incarnation=1)
    bob.begin("ada", incarnation=2)
    if aware:
        bob.revive("ada", 0)
    later.receive("bob", bob.account(1), incarnation=2)
    assert unsettled(later, missed={}).earlier == (() if aware else ("bob",))


def behind(ledgers, row):
    """Ada's ledgers, which have applied bob's model of round 0, whose statement that it lacks hers comes later."""
    ledgers.begin("bob", incarnation=1)
    ledgers.open((0, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    ledgers.apply("bob", (0, 0), np.array(row))
    assert ledgers.close(weight=0.5 * row[-1]) is None
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.begin("ada", incarnation=1)
    bob.flows.finish()
    return bob.account(1)


@pytest.mark.parametrize("late", [False, True])
def test_what_was_owed_to_a_former_model_goes_with_it(late):
    before = PeerLedgers("ada", gossip=["bob"])
    refused = behind(before, [4.0, 2.0])
    page, rows = before.page()
    ada = PeerLedgers("ada", gossip=["bob"])
    ada.begin("bob", incarnation=1)
    ada.turn(page, rows, round=1, late=late)
    ada.receive("bob", refused, incarnation=1)
    ada.open((1, 0), np.zeros(2), weights={"bob": 0.5}, chain=0)
    due = ada.close(weight=2.0)
    assert (None if due is None else due.tolist()) == (None if late else [-2.0, -1.0])
    assert not ada.flows.list_unsettled()


def test_what_would_leave_less_than_half_of_the_weight_waits():
    ada = PeerLedgers("ada", gossip=["bob"])
    ada.receive("bob", behind(ada, [4.0, 2.0]), incarnation=1)  # a weight of 1 is to be taken back
    found = []
    for step, weight in enumerate([0.5, 1.9, 2.0, 2.0]):
        ada.open((1, step), np.zeros(2), weights={"bob": 0.5}, chain=0)
        found.append(ada.close(weight=weight))
    assert [None if due is None else due.tolist() for due in found] == [None, None, [-2.0, -1.0], None]


@pytest.mark.parametrize("weight", [0.5, 2.0])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_flow_that_is_too_heavy_to_the_end_is_counted_as_unsettled(weight, restarts):
    ada = PeerLedgers("ada", gossip=["bob"])
    ada.receive("bob", behind(ada, [4.0, 2.0]), incarnation=1)  # a weight of 1 is to be taken back
    if restarts:
        (page, rows), ada = ada.page(), PeerLedgers("ada", gossip=["bob"])
        ada.turn(page, rows, round=1)
        ada.unaware.clear()
    ada.mass = weight
    rest = ada.remainder()
    assert (None if rest is None else rest.tolist()) == (None if weight == 0.5 else [-2.0, -1.0])
    assert unsettled(ada, missed={}).steps == ({"bob": 1} if weight == 0.5 else {})


def test_of_the_flows_that_wait_a_bounded_number_of_each_partner_is_counted():
    ada, bob = PeerLedgers("ada", gossip=["bob"], heaviest=2.0), PeerLedgers("bob", gossip=["ada"])
    ada.receive("bob", behind(ada, [4.0, 2.0]), incarnation=1)  # too heavy for the weights below
    for each, other in ((ada, "bob"), (bob, "ada")):
        each.begin(other, incarnation=1)
    ada.receive("bob", bob.account(1), incarnation=1)
    for step in range(2 * ROOM):
        for each, other in ((ada, "bob"), (bob, "ada")):
            each.open((1, step), np.zeros(2), weights={other: 0.5}, chain=0)
        assert bob.apply("ada", (1, step), np.zeros(2)) is not None
        assert {str(each.close(weight=0.5)) for each in (ada, bob)} == {"None"}
        assert ada.late("bob", Delivery(Head(1, step, "float64", 1, mass=0.0), torch.zeros(1, dtype=torch.float64)))
        ada.receive("bob", bob.account(1), incarnation=1)
        bob.receive("ada", ada.account(1), incarnation=1)
    ada.mass = 0.5
    assert ada.remainder() is None
    assert not ada.flows.list_unsettled()
    assert unsettled(ada, missed={}).steps == {"bob": ROOM}


def test_a_model_found_late_is_unsettled_until_it_enters_the_model_of_its_release():
    ada = PeerLedgers("ada", gossip=["bob"])
    for step in range(2):
        ada.open((0, step), np.zeros(1), weights={"bob": 0.5}, chain=0)
        ada.close()
    assert ada.late("bob", delivered((0, 1), 1.0))
    bob = PeerLedgers("bob", gossip=["ada"])
    bob.open((0, 1), np.ones(1), weights={"ada": 0.5}, chain=0)
    bob.apply("ada", (0, 1), np.zeros(1))
    bob.close()
    bob.begin("ada", incarnation=1)
    ada.receive("bob", bob.account(1), incarnation=1)
    assert not ada.flows.list_unsettled()
    assert unsettled(ada, missed={}).steps == {"bob": 1}
    assert ada.remainder().tolist() == [0.5]
    assert not unsettled(ada, missed={})


def test_who_comes_back_and_whom_it_meets_again_report_at_once():
    ada = PeerLedgers("ada", gossip=["bob"])
    assert not ada.news()
    ada.begin("bob", incarnation=1)
    ada.begin("bob", incarnation=2)
    ada.revive("bob", 3)
    assert ada.news()
    later = PeerLedgers("ada", gossip=["bob"])
    later.turn(Page(), {}, round=0)
    assert later.news()
