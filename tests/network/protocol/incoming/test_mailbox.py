import pytest
import torch

from p2pfl.network.protocol.incoming.mailbox import AHEAD, Mailbox
from p2pfl.network.protocol.wire.wire_rows import Head


def head(round, step=0):
    return Head(round, step, "float32", 1)


ROW = torch.ones(1)


@pytest.fixture
def mailbox():
    box = Mailbox()
    for sender in ("ada", "bob"):
        box.know(sender)
    box.open((3, 0), ["bob", "ada"])
    return box


def test_a_row_of_this_exchange_is_taken_once(mailbox):
    assert mailbox.deliver("ada", head(3), ROW) == "kept"
    assert mailbox.take("ada").row is ROW
    assert mailbox.take("ada") is None


def test_a_row_of_an_earlier_exchange_is_late(mailbox):
    assert mailbox.deliver("ada", head(2, 5), ROW) == "late"


def test_the_row_of_a_next_life_is_late_in_the_exchange_for_which_that_of_the_one_before_was_used(mailbox):
    mailbox.deliver("ada", head(3), ROW)
    mailbox.take("ada")
    assert mailbox.deliver("ada", head(3), ROW) == "duplicate"
    mailbox.forget("ada")
    mailbox.know("ada")
    assert mailbox.deliver("ada", head(3), ROW) == "late"


def test_a_row_of_a_later_exchange_waits_for_it(mailbox):
    assert mailbox.deliver("ada", head(3, 1), ROW) == "kept"
    assert mailbox.take("ada") is None
    mailbox.close()
    mailbox.open((3, 1), ["ada"])
    assert mailbox.take("ada").gossip_step == (3, 1)


def test_a_second_row_for_the_same_exchange_is_a_duplicate(mailbox):
    mailbox.deliver("ada", head(3), ROW)
    assert mailbox.deliver("ada", head(3), ROW) == "duplicate"
    mailbox.take("ada")
    assert mailbox.deliver("ada", head(3), ROW) == "duplicate"


def test_a_row_that_comes_after_patience_ran_out_is_not_used(mailbox):
    mailbox.give_up("ada")
    assert mailbox.deliver("ada", head(3), ROW) == "late"
    assert mailbox.missing() == ["bob"]


def test_a_row_of_a_stranger_is_refused(mailbox):
    assert mailbox.deliver("eve", head(3), ROW) == "stranger"


def test_a_neighbour_far_ahead_gets_no_more_credit_and_loses_nothing(mailbox):
    verdicts = [mailbox.deliver("ada", head(3 + ahead), ROW) for ahead in range(AHEAD + 2)]
    assert verdicts == ["kept"] * (AHEAD + 2)
    assert not mailbox.may_send("ada")
    assert mailbox.may_send("bob")


def test_rows_of_two_phases_may_come_in_any_order():
    mailbox = Mailbox(period=2)
    mailbox.know("ada")
    mailbox.open((3, 0), ["ada"])
    assert mailbox.deliver("ada", head(4), ROW) == "kept"
    assert not mailbox.overtaken("ada")
    assert mailbox.deliver("ada", head(3), ROW) == "kept"
    assert mailbox.take("ada").gossip_step == (3, 0)


def test_whoever_is_past_this_exchange_is_not_waited_for(mailbox):
    mailbox.deliver("ada", head(3, 1), ROW)
    assert mailbox.overtaken("ada")
    assert not mailbox.overtaken("bob")


def test_large_rows_come_one_at_a_time_and_in_turn(mailbox):
    mailbox.large = True
    assert [mailbox.may_send(sender) for sender in ("bob", "ada")] == [True, False]
    mailbox.deliver("bob", head(3), ROW)
    assert [mailbox.may_send(sender) for sender in ("bob", "ada")] == [False, False]
    mailbox.take("bob")
    assert [mailbox.may_send(sender) for sender in ("bob", "ada")] == [False, True]
    mailbox.give_up("ada")
    mailbox.open((3, 1), ["bob", "ada"])
    assert mailbox.may_send("bob")


def test_what_was_left_over_from_earlier_exchanges_is_dropped(mailbox):
    mailbox.deliver("ada", head(3), ROW)
    mailbox.open((4, 0), ["ada"])
    assert mailbox.take("ada") is None
    assert mailbox.deliver("ada", head(4), ROW) == "kept"
