"""The change that a peer holds while a neighbour or the broker replays, forges or withholds others."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import DecodeError
from p2pfl.experiment.swarm_change import MAX_BYTES, ChangeAnswer, SwarmChange
from p2pfl.network.protocol.membership.swarm_changes import MAX_ORDERS, HeldChange
from p2pfl.privacy.keys import Identity, Roster

OPERATOR, OTHER = Identity(bytes(range(32))), Identity(bytes([9] * 32))
RUN = "a" * 64


def change(number=1, *, last=None, operator=OPERATOR, rounds=9, **other):
    made = SwarmChange(swarm="plant", number=number, run=RUN, settings={"rounds": rounds}, roster="", last=last)
    return msgspec.structs.replace(made, **other).signed(operator)


def holding(*changes, least=0, round=0):
    held = HeldChange(OPERATOR.public, "plant", RUN, least, round=round)
    for each in changes:
        verdict, why, made = held.judge(each.encode())
        assert verdict == "new", why
        held.hold(made, reason="")
    return held


def why(held, made):
    before = copy.deepcopy(held)
    verdict, reason, _ = held.judge(made.encode())
    assert held == before  # judging keeps nothing
    return verdict, reason


def test_an_order_follows_its_proposal_and_is_final():
    held = holding(change(), change(last=5))
    assert held.last == 5
    assert why(held, change()) == ("known", "")  # the proposal again
    assert why(held, change(last=6))[0] == "refused"
    assert why(held, change(2, last=9)) == ("refused", "the run ends after round 5 already, by change 1")


def test_a_proposal_ends_nothing_and_gives_way_to_a_later_one_alone():
    held = holding(change(3))
    assert held.last is None
    assert why(held, change(2))[0] == "refused"
    assert why(held, change(2, last=7))[0] == "refused"
    assert why(held, change(3, rounds=10)) == ("refused", "the operator has proposed another change 3")
    assert why(held, change(4))[0] == "new"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (change(last=5, operator=OTHER), "has not signed it"),
        (msgspec.structs.replace(change(last=5), last=6), "has not signed it"),
        (msgspec.structs.replace(change(last=5), roster='operator = ""'), "has not signed it"),
        (change(last=5, swarm="ward"), "another swarm"),
        (change(last=5, run="b" * 64), "another run"),
    ],
)
def test_what_the_operator_did_not_sign_for_this_run_is_refused(made, reason):
    verdict, text = why(holding(), made)
    assert verdict == "refused"
    assert reason in text


def test_an_order_that_this_device_has_followed_in_an_earlier_run_of_the_same_settings_is_refused():
    assert why(holding(least=4), change(4, last=90)) == ("refused", "this device has followed change 4 already")
    assert why(holding(least=4), change(5, last=90))[0] == "new"


def test_an_order_for_a_round_that_the_peer_has_played_is_refused():
    assert why(holding(round=4), change(last=5))[0] == "new"
    assert "has played that round" in why(holding(round=5), change(last=5))[1]


def test_a_change_that_the_peer_cannot_follow_does_not_end_its_run():
    held = holding()
    held.hold(change(last=5), reason="its owner does not agree")
    assert held.last is None


def test_a_peer_leaves_its_run_once_most_neighbours_show_that_they_have_gone_on_by_a_signed_order():
    other, held = change(2, last=9, run="b" * 64), holding()
    for made in (other, change(3, run="b" * 64), change(4, last=9, operator=OTHER), change(5, last=9, swarm="ward")):
        held.collect(made.encode())
    held.collect(b"garbage")
    assert [*held.orders] == [other.start]
    shown = {"ada": other.start, "bob": "", "cyd": other.start, "dan": "the first model"}
    assert held.moved(shown) is None  # half of them are not most
    assert held.moved({**shown, "bob": other.start}) == other
    assert held.moved(dict.fromkeys(shown, change(4, last=9, operator=OTHER).start)) is None  # no operator signed it
    assert held.moved({}) is None
    assert held.last is None  # it ends nothing by itself


KEYS = {name: Identity(name.encode() * 8 + bytes(8)).public for name in ("ada", "bob", "cyd", "dan")}


def roster(*names, operator=OPERATOR, **keys):
    return Roster({name: KEYS[name] for name in names} | keys, operator=operator.public)


def new_device(*orders, installed, run=RUN, least=0):
    held = HeldChange(OPERATOR.public, "plant", run, least, peer="cyd", installed=installed)
    for order in orders:
        held.collect(order.encode())
    return held


def brings(number, given, *, run="b" * 64):
    return change(number, last=9, run=run, roster=given.text)


def test_a_new_device_follows_one_neighbour_by_an_order_that_names_it_among_the_keys_of_its_roster_alone():
    installed = roster("ada", "bob", "cyd", "dan").revoke(KEYS["dan"], reason="stolen")
    smaller = brings(3, roster("ada", "bob", "cyd"))  # its roster was copied before another device was taken out
    for order, enough in (
        (smaller, True),
        (brings(3, roster("ada", "bob", "cyd", "dan")), False),  # it would bring back a revoked key
        (brings(3, roster("ada", "cyd", bob=OTHER.public)), False),  # or one that was replaced
    ):
        held = new_device(order, installed=installed)
        assert held.moved({"ada": order.start, "bob": "", "dan": ""}) == (order if enough else None)
        assert held.moved({"ada": "", "bob": "", "dan": ""}) is None
        assert held.moved({"ada": order.start, "bob": order.start, "dan": ""}) == order  # most of them
        held.begun = True
        assert held.moved({"ada": order.start, "bob": "", "dan": ""}) is None
    held = HeldChange(OPERATOR.public, "plant", RUN, change=smaller, peer="cyd", installed=installed)  # from a file
    assert held.moved({"ada": smaller.start, "bob": "", "dan": ""}) == smaller


def test_a_new_device_obeys_no_order_that_does_not_name_it_with_its_key_whoever_shows_it():
    installed = roster("ada", "bob", "cyd")
    older = brings(4, roster("ada", "bob")), brings(5, roster("ada", "bob", cyd=OTHER.public))
    for order in (*older, brings(6, roster("ada", "bob"), run="c" * 64), change(7, last=9, run="b" * 64, roster="?")):
        assert new_device(order, installed=installed).moved({"ada": order.start, "bob": order.start}) is None
    own = brings(4, roster("ada", "bob"), run=RUN)  # by which the run of this device ends
    assert new_device(own, installed=installed).moved({"ada": own.start, "bob": own.start}) == own


def test_a_replayed_order_is_left_by_the_next_one_and_leads_nowhere_while_a_later_one_is_shown():
    installed = roster("ada", "bob", "cyd")
    older, later = brings(4, installed), brings(6, installed)
    both = new_device(older, later, installed=installed)
    assert both.moved({"ada": older.start, "bob": later.start, "dan": ""}) == later
    misled = new_device(older, later, installed=installed, run="d" * 64, least=4)
    assert misled.moved({"ada": older.start, "bob": later.start, "dan": ""}) == later
    assert misled.moved({"ada": older.start, "bob": older.start, "dan": ""}) is None


def test_one_neighbour_takes_no_device_out_of_the_run_in_which_it_is_expected():
    installed = roster("ada", "bob", "cyd")
    order = brings(3, installed, run=RUN)
    held = new_device(order, installed=installed)
    assert held.moved({"ada": order.start, "bob": ""}) is None
    held = new_device(brings(3, installed), installed=None)  # a device that has played
    assert held.moved({"ada": brings(3, installed).start, "bob": ""}) is None


def test_a_peer_that_plays_and_holds_the_order_itself_plays_to_the_last_round_whoever_has_gone_on():
    order = change(last=5)
    held = holding(order)
    assert held.moved({"ada": order.start}) is None  # nobody has collected it
    held.collect(order.encode())
    assert held.moved({"ada": order.start}) == order  # it was killed, and the others are gone
    held.begun = True
    assert held.moved({"ada": order.start}) is None


def test_an_order_of_another_run_that_a_peer_has_kept_ends_none_of_its_rounds():
    order = change(2, last=5, run="b" * 64)
    held = HeldChange(OPERATOR.public, "plant", RUN, 2, order)
    assert (held.change, held.last) == (None, None)
    assert held.moved({"ada": order.start}) == order


def test_orders_that_this_device_has_followed_before_and_a_flood_of_signed_ones_lead_nowhere_new():
    held = holding(least=4)
    held.collect(change(4, last=9).encode())
    assert not held.orders
    made = [change(number, last=9) for number in range(5, 5 + 2 * MAX_ORDERS)]
    for each in made:
        held.collect(each.encode())
    assert [*held.orders] == [each.start for each in made[-MAX_ORDERS:]]


def test_neighbours_count_as_holding_it_by_its_digest_alone():
    held = holding(change())
    held.confirm("ada", held.change.digest)
    assert held.lacking(["ada", "bob"]) == ["bob"]
    held.confirm("bob", bytes(32))
    held.hold(change(last=5), reason="")  # they may hold the proposal alone
    assert held.lacking(["ada", "bob"]) == ["ada", "bob"]


@given(data=st.binary(max_size=200) | st.just(b"[" * 5000) | st.just(b"x" * (MAX_BYTES + 1)))
def test_hostile_bytes_are_refused_with_a_reason(data):
    verdict, reason, made = holding(change()).judge(data)
    assert (verdict, made) == ("refused", None)
    assert reason
    with pytest.raises(DecodeError):
        ChangeAnswer.decode(data, swarm="plant", peer="ada", public=OTHER.public)


def test_an_answer_counts_for_the_peer_that_signed_it_alone():
    answer = ChangeAnswer(swarm="plant", peer="ada", content="0" * 64, last=None, round=3)
    data = answer.encode(OTHER)
    assert ChangeAnswer.decode(data, swarm="plant", peer="ada", public=OTHER.public).round == 3
    for swarm, peer, public in (("ward", "ada", OTHER), ("plant", "bob", OTHER), ("plant", "ada", OPERATOR)):
        with pytest.raises(DecodeError):
            ChangeAnswer.decode(data, swarm=swarm, peer=peer, public=public.public)
