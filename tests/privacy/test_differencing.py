"""People and peers that totals of several runs show together, and none of them alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.privacy.accounting.differencing import Exposure, KnownSum, find_exposures

LEAST = 5


def total(people, *others, count=20, part="all"):
    """Return a sum over some of the owner's people, by number, and over other peers."""
    chosen = np.zeros(count, bool)
    chosen[list(people)] = True
    return KnownSum(chosen, frozenset((peer, part) for peer in others))


def exposures(earlier, new, *, colluders=1, least=LEAST):
    return [*find_exposures(earlier, [new], least=least, colluders=colluders)]


def test_a_repeated_sum_shows_nothing_new():
    assert exposures([total(range(20), "b", "c")], total(range(20), "b", "c")) == []


@pytest.mark.parametrize("few", [1, 4])
def test_sums_that_differ_in_few_people_show_them(few):
    assert exposures([total(range(20), "b", "c")], total(range(few, 20), "b", "c")) == [Exposure(people=few, run=0)]


def test_sums_that_differ_in_enough_people_show_nothing():
    assert exposures([total(range(20), "b", "c")], total(range(LEAST, 20), "b", "c")) == []


def test_a_person_who_replaces_another_is_shown_with_them():
    assert exposures([total(range(19), "b", "c")], total(range(1, 20), "b", "c")) == [Exposure(people=2, run=0)]


@pytest.mark.parametrize("colluders", [0, 1])
def test_a_peer_that_leaves_or_comes_is_shown(colluders):
    four, three = total(range(20), "b", "c", "d"), total(range(20), "b", "c")
    for earlier, new in ((four, three), (three, four)):
        assert exposures([earlier], new, colluders=colluders) == [Exposure(peer="d", run=0)]


def test_two_peers_that_leave_are_shown_to_each_other():
    four, two = total(range(20), "b", "c", "d"), total(range(20), "b")
    assert exposures([four], two, colluders=0) == []
    assert exposures([four], two) == [Exposure(peer="d", observer="c"), Exposure(peer="c", observer="d")]


def test_one_person_less_is_shown_to_the_peer_that_leaves_with_them():
    four, three = total(range(20), "b", "c", "d"), total(range(1, 20), "b", "c")
    assert exposures([four], three, colluders=0) == []
    assert exposures([four], three) == [Exposure(people=1, run=0, observer="d")]


def test_three_sums_show_the_person_whom_two_of_them_leave_out():
    all_, young, old = total(range(20), "b"), total(range(10), "b", part="young"), total(range(11, 20), "b", part="old")
    assert exposures([all_, young], old, colluders=0) == []  # the parts of the other peer hide the person
    assert exposures([all_, young], old) == [Exposure(people=1, observer="b")]


def test_three_pairs_of_three_peers_show_each_of_them():
    pairs = [total(range(20), "b"), total(range(20), "c")]
    found = exposures(pairs, total((), "b", "c"), colluders=0)
    assert {each.peer for each in found} == {"b", "c"}


def test_other_parts_of_a_peer_are_not_its_whole():
    described = total(range(20), "b", "c", part="all")
    assert exposures([described], total(range(15), "b", part="train")) == []
    assert exposures([described], total(range(16), "b", "c", part="train")) == [Exposure(people=4, run=0)]


@given(st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=5), st.sets(st.integers(0, 9)))
def test_what_is_shown_can_be_computed_from_the_sums_alone(earlier, new):
    """Oracle: a person of a group is shown exactly if their value solves the system of all sums."""
    sums = [total(each, count=10) for each in earlier]
    last = total(new, count=10)
    shown = any(find_exposures(sums, [last], least=2, colluders=0))
    matrix = np.array([each.people for each in [*sums, last]], float)

    def solvable(rows):
        rank = np.linalg.matrix_rank(rows) if len(rows) else 0
        return {
            person
            for person in range(10)
            if np.linalg.matrix_rank(np.vstack([rows, np.eye(10)[person]])) == rank and rank
        }

    alone = solvable(matrix[:-1]) | solvable(matrix[-1:])
    pairs = any((each.people != last.people).sum() == 1 for each in sums)
    assert shown == (bool(solvable(matrix) - alone) or pairs)
