"""Notices that repeat each other are one group, and no notice is lost or counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.results.notices.kinds import (
    CheckpointDamaged,
    ClockBehind,
    KeyTrusted,
    LossRose,
    ModelsRefused,
    PeerFailed,
)
from p2pfl.results.notices.notice_groups import describe_repeats, group_alike

PEERS = st.sampled_from(["ada", "bob", "cy", "dan"])


def refused(peer, round, neighbour):
    return ModelsRefused(peer=peer, round=round, neighbour=neighbour)


notices = st.lists(
    st.one_of(
        st.builds(LossRose, peer=PEERS, round=st.integers(0, 9), now=st.just({})),
        st.builds(refused, PEERS, st.integers(0, 9), PEERS),
        st.builds(ClockBehind, peer=PEERS, seconds=st.integers(1, 99)),
        st.builds(KeyTrusted, peer=PEERS, neighbour=PEERS, key=st.sampled_from(["k1", "k2"])),
    ),
    max_size=30,
)


def test_notices_about_one_neighbour_are_one_group_whoever_reports_them():
    found = [refused(peer, round, "dan") for round in (11, 12) for peer in ("ada", "bob", "cy")]
    assert group_alike(found) == [[0, 1, 2, 3, 4, 5]]
    assert describe_repeats(found) == "; and 5 more like it from ada and bob"


def test_notices_about_different_neighbours_stay_apart():
    assert group_alike([refused("ada", 3, "bob"), refused("ada", 3, "cy"), refused("ada", 4, "bob")]) == [
        [1],
        [0, 2],
    ]


def test_a_neighbour_with_two_keys_is_never_one_group():
    met = [KeyTrusted(peer=peer, neighbour="eve", key=key) for peer, key in (("ada", "k1"), ("bob", "k2"))]
    assert group_alike(met) == [[0], [1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            PeerFailed(peer="ada", error="StorageError", message="the disk is full", status=1),
            PeerFailed(peer="ada", error="StorageError", message="the disk is gone", status=1),
        ),
        (
            CheckpointDamaged(peer="ada", file="a.state", message="it is empty", previous=True),
            CheckpointDamaged(peer="ada", file="b.state", message="it is empty", previous=True),
        ),
        (LossRose(peer="ada", round=1, now={}), LossRose(peer="bob", round=1, now={})),
    ],
)
def test_notices_that_say_something_else_stay_apart(one, other):
    assert group_alike([one, other]) == [[0], [1]]


def test_a_single_notice_says_nothing_of_others():
    assert describe_repeats([LossRose(peer="ada", round=1, now={})]) == ""


def test_one_round_is_named_once():
    found = [LossRose(peer=peer, round=3, now={}) for peer in ("ada", "bob")]
    assert describe_repeats(found) == "; and 1 more like it from ada, round 4"


@given(notices)
def test_every_notice_is_in_one_group_and_groups_are_in_the_order_of_their_last_notice(found):
    groups = group_alike(found)
    assert sorted(place for places in groups for place in places) == list(range(len(found)))
    assert all(places == sorted(places) for places in groups)
    assert [places[-1] for places in groups] == sorted(places[-1] for places in groups)
    assert all(len({type(found[place]) for place in places}) == 1 for places in groups)


@given(notices, notices)
def test_more_notices_never_tear_a_group_apart(before, after):
    groups, more = group_alike(before), group_alike([*before, *after])
    assert all(any({*places} <= {*larger} for larger in more) for places in groups)
