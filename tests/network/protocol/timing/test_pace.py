"""For how long slow neighbours are waited for, and which rounds a slow peer plays."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.network.protocol.membership.neighbour_progress import NeighbourProgress
from p2pfl.network.protocol.timing.pace import ALONE, FACTOR, FLOOR, MAX_ROUNDS_AHEAD, MIN_MISSED_ROUNDS, ROUNDS, Pace
from p2pfl.network.protocol.wire.messages import Pulse

TIMES = st.lists(st.floats(0.0, 1e3), min_size=1, max_size=6)


def paced(times, *, quantile, own=0.0, rounds=MIN_MISSED_ROUNDS):
    """After some rounds in which neighbours took these times, and the peer itself another."""
    pace = Pace(quantile=quantile)
    for round in range(rounds):
        pace.begin(round, now=1e4 * round)
        for number, took in enumerate(times):
            pace.came(f"peer{number}", round, now=1e4 * round + took)
        pace.ready(now=1e4 * round + own)
        if round < rounds - 1:
            pace.next(rounds=[], apart=1)
    return pace


@given(TIMES, st.floats(0.01, 0.99))
def test_twice_the_quantile_is_waited(times, quantile):
    ordered = sorted(times)
    at = ordered[math.ceil(quantile * len(ordered) - 1e-9) - 1] if rounded(quantile, len(ordered)) else None
    found = paced(times, quantile=quantile, rounds=ROUNDS).bound
    if at is not None:
        assert found == pytest.approx(max(FLOOR, FACTOR * at), rel=1e-6)
    assert FLOOR <= found <= max(FLOOR, FACTOR * max(times)) + 1e-6


def rounded(quantile, count):
    """Return whether the quantile of equal rounds is that of one round, beyond rounding."""
    return abs(quantile * count - round(quantile * count)) > 1e-6


@given(TIMES, st.integers(1, ROUNDS))
def test_a_quantile_of_one_waits_for_all_and_leaves_nobody_behind(times, rounds):
    pace = paced(times, quantile=1.0, own=1e4, rounds=rounds)
    assert pace.bound == math.inf
    pace.give_up("peer0")
    assert not pace.is_left_behind("peer0", reached=0)
    assert pace.next(rounds=[rounds], apart=1) == rounds


@given(TIMES, st.floats(0.0, 0.99), st.integers(1, MIN_MISSED_ROUNDS - 1))
def test_as_long_as_little_is_known_all_are_waited_for(times, quantile, rounds):
    assert paced(times, quantile=quantile, rounds=rounds).bound == math.inf


@given(st.integers(0, 3), st.integers(0, 9))
def test_a_model_that_comes_after_its_round_has_ended_took_that_long(round, place):
    pace = Pace(quantile=0.5)
    pace.begin(round, now=10.0)
    pace.next(rounds=[place, place], apart=1)
    pace.came("ada", round, now=14.0)
    assert [took for _, took in pace._times["ada"]] == [4.0]


def test_when_more_than_the_share_are_late_all_are_waited_for_again():
    pace = paced([1.0, 1.0, 1.0, 1.0], quantile=0.5)
    for round in range(MIN_MISSED_ROUNDS, MIN_MISSED_ROUNDS + 2 * ROUNDS):
        pace.begin(round, now=1e4 * round)
        for slow in ("peer1", "peer2", "peer3"):
            if pace.bound < math.inf:
                pace.give_up(slow)
        pace.came("peer0", round, now=1e4 * round + 1.0)
        pace.next(rounds=[], apart=1)
    assert pace.bound == math.inf


def test_who_was_given_up_is_waited_for_again_where_the_others_are():
    pace = paced([1.0, 1.0, 50.0], quantile=0.5)
    pace.give_up("peer2")
    pace.next(rounds=[], apart=1)
    pace.begin(MIN_MISSED_ROUNDS, now=5e4)
    assert pace.is_left_behind("peer2", reached=MIN_MISSED_ROUNDS - 1)
    assert not pace.is_left_behind("peer2", reached=MIN_MISSED_ROUNDS)
    pace.give_up("peer2")
    pace.came("peer2", MIN_MISSED_ROUNDS, now=5e4 + 1.0)
    assert not pace.is_left_behind("peer2", reached=0)


@given(st.floats(0.5, 100.0), st.floats(0.0, 1e3))
def test_a_slow_peer_plays_every_so_many_rounds_as_it_is_slower(usual, own):
    step = paced([usual, usual, usual], quantile=0.5, own=own).next(rounds=[], apart=1) - (MIN_MISSED_ROUNDS - 1)
    slow = own > usual + max(FLOOR, FACTOR * usual)
    assert step >= 1
    if slow:
        assert (step - 1) * usual <= own * (1 + 1e-6)
        assert own <= step * usual * (1 + 1e-6) or step == MAX_ROUNDS_AHEAD
    else:
        assert step == 1


@pytest.mark.parametrize(
    ("places", "apart", "next"),
    [([3, 3, 3], 1, 3), ([9, 9, 2], 1, 10), ([9, 2, 2], 1, 3), ([10**9, 2], 1, 3), ([5, 5], 3, 3), ([6, 6], 3, 7)],
)
def test_who_finds_half_of_its_neighbours_further_than_can_be_goes_on_where_they_are(places, apart, next):
    assert paced([1.0], quantile=1.0).next(rounds=places, apart=apart) == next


def test_one_neighbour_alone_moves_nobody_by_more_than_a_few_rounds():
    assert paced([1.0], quantile=1.0).next(rounds=[10**6], apart=1) == MIN_MISSED_ROUNDS - 1 + 1 + ALONE + 1
    assert paced([1.0], quantile=1.0).next(rounds=[10**6, 2], apart=1) == MIN_MISSED_ROUNDS


def pulse(round, *, first=0):
    return Pulse(1, 0, 0, 0, round, 1, first=first)


def test_a_neighbour_that_says_it_is_far_ahead_counts_beside_those_that_have_not_moved():
    where = NeighbourProgress()
    where.receive("eve", pulse(10**6))
    for peer in ("ada", "bob"):
        where.receive(peer, Pulse(1, 0, 0, 0, 0, 0, first=0))
    assert sorted(where.reached_rounds(["ada", "bob", "eve"])) == [0, 0, 10**6]


def test_who_comes_late_begins_where_half_of_its_neighbours_are():
    where = NeighbourProgress()
    for peer, round in (("ada", 5), ("bob", 6), ("eve", 10**6)):
        where.receive(peer, pulse(round))
    assert where.supported_steps() == [(5, 1), (6, 1)]
    where.forget("ada")
    where.forget("bob")
    assert where.supported_steps() == [(10**6, 1)]  # there is nobody else to ask


def test_who_may_be_early_waits_for_everybody():
    pace = paced([1.0, 1.0], quantile=0.5, own=10.0)
    later = pace.next(rounds=[], apart=1)
    pace.begin(later, now=1e5)
    assert later > MIN_MISSED_ROUNDS
    assert pace.bound == math.inf
    pace.next(rounds=[], apart=1)
    pace.begin(later + 1, now=2e5)
    assert pace.bound < math.inf


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("privacy.mode=pairwise", "hides no other peer"),
        ("privacy.mode=secagg", "hides no other peer"),
        ("learning.stop=0.1", "decide together"),
        ("learning.algorithm=gossip_learning", "do not wait for each other"),
    ],
)
def test_nobody_is_hurried_where_a_missing_row_costs_more_than_its_weight(change, why):
    with pytest.raises(ExperimentError, match=f"transport.hurry = .* does not work with .*{why}"):
        plan(read({"topology": {"kind": "complete", "peers": 5}}, changes=[change, "transport.hurry=0.5"]))


def test_a_round_that_is_begun_again_is_one_round():
    """Found by the world, seed 1222."""
    pace = Pace()
    pace.begin(1, now=0.0)
    pace.begin(1, now=1.0)
    pace.came("bob", 1, now=3.0)
