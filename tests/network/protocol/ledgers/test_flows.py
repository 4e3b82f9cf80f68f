"""The ledger of flows, by cases; and masked rows, conserved under any schedule of delay, loss, crash and restart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.ledgers.flows import END, FlowLedger, flow

ROWS = {"ada": np.array([8, -4]), "bob": np.array([0, 0])}
FIRST, SECOND, THIRD = (0, 0, 0), (0, 1, 0), (0, 2, 0)


def pair(*, window=1, room=4):
    return FlowLedger(["bob"], window=window, room=room), FlowLedger(["ada"], window=window, room=room)


def begin(ada, bob, gossip_step):
    ada.open(gossip_step, ROWS["ada"], weights={"bob": 0.25})
    bob.open(gossip_step, ROWS["bob"], weights={"ada": 0.25})


def saved(ledger):
    checkpoint = ledger.checkpoint()
    ledger.note_checkpoint(checkpoint)
    return checkpoint


def restarted(ledger, partner, *, checkpoint):
    return FlowLedger([partner], window=1, room=4, closed=ledger._next, checkpoint=checkpoint)


def taken(back):
    """The sum of what was taken back."""
    return sum(back.values()).tolist()


@given(st.lists(st.integers(-(2**51), 2**51), min_size=2, max_size=2), st.floats(0, 1))
def test_what_one_end_gets_the_other_gives_to_the_last_bit(values, weight):
    a, b = np.array(values[:1]), np.array(values[1:])
    assert (flow(a, b, weight=weight) == -flow(b, a, weight=weight)).all()
    assert flow(a, b, weight=weight).dtype == np.int64
    assert (flow(a / 3, b / 3, weight=weight) == -flow(b / 3, a / 3, weight=weight)).all()


def test_a_row_that_comes_late_is_applied_with_the_rows_of_its_own_exchange():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.open(SECOND, np.array([100, 100]), weights={"ada": 0.5})
    assert bob.deliver("ada", FIRST, ROWS["ada"]).tolist() == [2, -1]


def test_a_row_is_applied_once():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None


def test_a_row_outside_the_window_or_of_no_edge_moves_nothing():
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    begin(ada, bob, SECOND)
    bob.open(THIRD, ROWS["bob"], weights={})
    for gossip_step in (FIRST, SECOND, THIRD, (0, 3, 0)):
        assert bob.deliver("ada", gossip_step, ROWS["ada"]) is None


def test_what_the_partner_will_never_apply_is_taken_back_once():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.receive("ada", ada.statement("bob"))  # in the window: it may still come
    ada.open(THIRD, ROWS["ada"], weights={"bob": 0.25})
    never = ada.statement("bob")
    assert taken(bob.receive("ada", never)) == [-2, 1]
    assert not bob.receive("ada", never)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None
    assert bob.list_unsettled() == []


def test_what_was_confirmed_before_it_was_applied_is_taken_back_as_well():
    """Bob plays again a round in which ada had applied his row, and says so until she hears that he lives again."""
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    ada.deliver("bob", FIRST, ROWS["bob"])
    saved(ada)
    ada.finish()
    again = FlowLedger(["ada"], window=0, room=4)
    again.receive("ada", ada.statement("bob"))
    again.open(FIRST, ROWS["bob"], weights={"ada": 0.25})
    assert again.deliver("ada", FIRST, ROWS["ada"]).tolist() == [2, -1]
    assert taken(ada.revive("bob", FIRST)) == [2, -1]
    saved(ada)
    assert taken(again.receive("ada", ada.statement("bob"))) == [-2, 1]


def test_all_that_one_statement_excludes_is_taken_back_together():
    ada, bob = pair(window=2)
    for gossip_step in (FIRST, SECOND):
        begin(ada, bob, gossip_step)
        bob.deliver("ada", gossip_step, ROWS["ada"])
    ada.finish()
    assert taken(bob.receive("ada", ada.statement("bob"))) == [-4, 2]


def test_what_the_partner_applied_but_could_lose_is_neither_confirmed_nor_taken_back():
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.receive("ada", ada.statement("bob"))
    assert bob.list_unsettled() == [("ada", FIRST)]


def test_after_the_end_nothing_is_applied_any_more():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.finish()
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None


def test_a_flow_is_held_until_the_partner_has_it_in_a_checkpoint():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    bob.receive("ada", ada.statement("bob"))
    assert bob.list_unsettled() == [("ada", FIRST)]
    saved(ada)
    bob.receive("ada", ada.statement("bob"))
    assert bob.list_unsettled() == []


def test_a_peer_that_restarts_counts_as_one_that_heard_nothing():
    ada, bob = pair()
    checkpoint = saved(ada)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    ada = restarted(ada, "bob", checkpoint=checkpoint)
    assert taken(bob.receive("ada", ada.statement("bob"))) == [-2, 1]
    assert ada.lost == []


def both(*, window=0):
    """Two ends of which each has applied the flow and holds it."""
    ada, bob = pair(window=window)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    return ada, bob


def test_the_partner_repeats_what_a_crash_would_make_unheard():
    ada, bob = both()
    checkpoint = saved(ada)
    saved(bob)
    ada.receive("bob", bob.statement("ada"))
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    bob.receive("ada", ada.statement("bob"))
    ada = restarted(ada, "bob", checkpoint=checkpoint)
    assert ada.list_unsettled() == [("bob", FIRST)]
    ada.receive("bob", bob.statement("ada"))
    assert ada.list_unsettled() == []


def test_the_partner_is_asked_about_a_flow_as_long_as_it_is_held():
    ada, bob = both()
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    saved(ada)
    bob.receive("ada", ada.statement("bob"))
    saved(bob)
    ada.receive("bob", bob.statement("ada"))
    assert ada.list_unsettled() == []


def test_a_flow_is_taken_back_after_a_restart_too():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    bob = restarted(bob, "ada", checkpoint=saved(bob))
    ada.finish()
    assert taken(bob.receive("ada", ada.statement("bob"))) == [-2, 1]


def test_a_statement_that_starts_later_says_nothing_of_what_was_before():
    ada, bob = both()
    old = saved(ada)
    saved(bob)
    ada.receive("bob", bob.statement("ada"))
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    saved(ada)
    bob.receive("ada", ada.statement("bob"))
    bob.finish()
    ada = restarted(ada, "bob", checkpoint=old)
    assert not ada.receive("bob", bob.statement("ada"))
    assert ada.list_unsettled() == [("bob", FIRST)]


def test_what_was_applied_of_an_earlier_life_is_taken_back_and_the_next_one_applied_instead():
    """Found by the world: the next incarnation had other rows, so its row of the same gossip step was another one."""
    ada, bob = both(window=2)
    saved(ada)
    bob.receive("ada", ada.statement("bob"))
    assert bob.list_unsettled() == []  # confirmed, and kept all the same
    assert taken(bob.revive("ada", FIRST)) == [-2, 1]
    assert bob.deliver("ada", FIRST, np.array([4, 0])).tolist() == [1, 0]


def test_what_cannot_be_taken_back_any_more_is_counted():
    ada, bob = both()
    saved(ada)
    bob.receive("ada", ada.statement("bob"))
    bob.open(SECOND, ROWS["bob"], weights={"ada": 0.25})
    bob.prune()
    assert bob.revive("ada", SECOND) == {}
    assert bob.lost == []
    assert bob.revive("ada", FIRST) == {}
    assert bob.lost == [("ada", FIRST)]


def test_an_exchange_is_not_opened_again_after_a_restart():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    ada = restarted(ada, "bob", checkpoint={})
    with pytest.raises(PeerError, match="count the attempt up"):
        ada.open(FIRST, ROWS["ada"], weights={"bob": 0.25})
    ada.open((1, 0, 0), ROWS["ada"], weights={"bob": 0.25})


def test_without_room_a_row_is_not_applied():
    ada, bob = pair(window=3, room=1)
    begin(ada, bob, FIRST)
    begin(ada, bob, SECOND)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is not None
    assert bob.deliver("ada", SECOND, ROWS["ada"]) is None


def test_where_nothing_is_held_nothing_is_conserved_but_counted():
    ada, bob = pair(window=0, room=0)
    begin(ada, bob, FIRST)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is not None
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.receive("ada", ada.statement("bob"))
    assert bob.lost == [("ada", FIRST)]


def test_in_calm_weather_one_flow_is_held_and_statements_are_short():
    ada, bob = pair()
    for round in range(20):
        begin(ada, bob, (0, round, 0))
        for one, name, other, partner in ((ada, "ada", bob, "bob"), (bob, "bob", ada, "ada")):
            other.receive(name, one.statement(partner))
            other.deliver(name, (0, round, 0), ROWS[name])
        saved(ada)
        saved(bob)
        assert len(bob.list_unsettled()) == 1
        statement = ada.statement("bob")
        assert len(statement.applied + statement.pending) <= 4


def test_a_stranger_is_refused():
    ada, _ = pair()
    with pytest.raises(PeerError, match='got "eve"'):
        ada.deliver("eve", FIRST, ROWS["bob"])


def test_after_the_end_nothing_is_opened():
    ada, _ = pair()
    ada.finish()
    assert ada.statement("bob").closed == END
    with pytest.raises(PeerError, match="count the attempt up"):
        ada.open(FIRST, ROWS["ada"], weights={})
