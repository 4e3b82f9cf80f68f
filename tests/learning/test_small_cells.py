"""The check of small cells: the groups that it refuses, and what its totals show."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pfl.core.errors import PrivacyError
from p2pfl.learning.exact_model import Own, Part
from p2pfl.learning.small_cells import WORDS, CellCheck, Cells, _Check, _points
from p2pfl.privacy.commutative_powers import multiply
from p2pfl.privacy.keys import SecretSource

NAMES = ("ada", "bob", "cat", "dan")


def checking(counts, *, least=5, source=None):
    """Return the check of counts ``{peer: [C]}``, which stand for the samples of each peer."""
    return CellCheck(
        lambda peer: Own(*[Part(np.zeros((0, 0)), np.array(counts[peer], dtype=np.int64))] * 2),
        peers=list(counts),
        least=least if callable(least) else dict.fromkeys(counts, least).__getitem__,
        source=source,
    )


def answered(asked, counts, totals=None):
    """Return the result of questions that all peers answer, and keep the totals in a list."""
    total = None
    while True:
        try:
            question = asked.send(total)
        except StopIteration as stop:
            return stop.value
        total = sum(question.answer(peer) for peer in counts)
        assert total.shape == (question.size,)
        if totals is not None:
            totals.append(total)


def check(counts, group=None, *, least=5, totals=None, source=None):
    """Return the groups that a check of counts finds."""
    size = len(next(iter(counts.values())))
    group = np.arange(size) if group is None else np.array(group)
    cells = Cells(tuple(f"group {each}" for each in range(group.max(initial=-1) + 1)), group)
    agreed = answered(checking(counts, least=least, source=source or SecretSource()).agree(), counts, totals)
    return answered(agreed.find(cells, lambda own: own.train.targets), counts, totals)


def expected(counts, group, least):
    """Return the groups in which a cell has too few samples, or the others of some peer have one."""
    table = np.array(list(counts.values()))
    others = table.sum(0) - table  # [N, C]
    total = table.sum(0)
    small = (total > 0) & (total < least) | (others == 1).any(0)
    if len(table) == 2:  # each of two peers subtracts its own samples, and has the other's
        small = ((table > 0) & (table < least)).any(0)
    return tuple(sorted({each for each, few in zip(group, small.tolist(), strict=True) if few}))


@settings(max_examples=25)
@given(
    table=st.integers(2, 5).flatmap(
        lambda peers: st.integers(1, 4).flatmap(
            lambda cells: st.lists(
                st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 7, 900]), min_size=cells, max_size=cells),
                min_size=peers,
                max_size=peers,
            )
        )
    ),
    least=st.integers(2, 6),
)
def test_groups_are_small_where_a_cell_has_few_samples_or_the_others_of_some_peer_one_hidden_or_not(table, least):
    counts = dict(zip("abcde", table, strict=False))
    group = [cell // 2 for cell in range(len(table[0]))]
    assert check(counts, group, least=least) == expected(counts, group, least)
    agreed = answered(checking(counts, least=least).agree(), counts)
    cells = Cells(tuple(map(str, range(max(group) + 1))), np.array(group))
    assert answered(agreed.find(cells, lambda own: own.train.targets), counts) == expected(counts, group, least)


def test_one_person_among_three_hospitals_stops_the_group_of_the_level_and_no_other():
    counts = {"ada": [30, 1, 40], "bob": [20, 0, 50], "cat": [40, 0, 60]}
    assert check(counts) == (1,)


def test_a_hospital_cannot_subtract_its_own_samples_and_keep_one_person():
    assert check({"ada": [100], "bob": [1], "cat": [0]}) == (0,)
    assert check({"ada": [100], "bob": [1], "cat": [1]}) == ()


def test_the_strictest_hospital_decides_for_all():
    counts = {"ada": [9], "bob": [9], "cat": [9]}
    assert check(counts, least={"ada": 5, "bob": 5, "cat": 30}.__getitem__) == (0,)
    assert check(counts, least={"ada": 5, "bob": 1, "cat": 5}.__getitem__) == ()


def test_a_least_number_that_is_none_is_refused_by_the_name_of_its_peer():
    with pytest.raises(PrivacyError, match="bob asks for at least 0 people"):
        check({"ada": [9], "bob": [9], "cat": [9]}, least={"ada": 5, "bob": 0, "cat": 5}.__getitem__)


def test_totals_of_equal_verdicts_have_nothing_in_common_but_the_verdict():
    few, none = [], []
    check({"ada": [1], "bob": [0], "cat": [0], "dan": [0]}, totals=few)
    check({"ada": [0], "bob": [0], "cat": [4], "dan": [0]}, totals=none)
    assert [len(total) for total in few] == [len(total) for total in none]
    for one, other in zip(few[1:-1], none[1:-1], strict=True):
        assert not set(one.tolist()) & set(other.tolist())
    assert (few[-1] > 0).all()
    assert (none[-1] > 0).all()


def test_masked_counts_are_as_large_as_their_masks_whatever_they_count():
    """Each total has two secret numbers of at least 2^40 but for one in a million, so the counts do not show in it."""
    totals = []
    check({name: [1] * 50 for name in NAMES}, least=2, totals=totals)
    assert np.median(totals[1]) > 2**56
    assert len(set(totals[1].tolist())) == len(totals[1])


def test_the_place_of_the_small_cell_in_its_group_does_not_show():
    """The masker answers in an order of its own, so the judge finds an equal pair at a place that says nothing."""
    places = set()
    for _ in range(12):
        cells = Cells(("times",), np.zeros(8, np.int64))
        counts = {name: np.array([1, 9, 9, 9, 9, 9, 9, 9]) for name in NAMES}
        test = _Check(cells, counts.__getitem__, NAMES, 5, SecretSource())
        asked, total, totals = test.ask(), None, []
        while len(totals) < 3:
            question = asked.send(total)
            total = sum(question.answer(name) for name in NAMES)
            totals.append(total)
        points = _points(totals[2][: 8 * 5 * WORDS], "bob")
        twice, once = points[:8], multiply(test._scalar("bob", test.tests[0]), points[8:])
        places.add(next(place for place, point in enumerate(twice) if point in once))
    assert len(places) > 1


def test_a_peer_that_adds_what_the_protocol_does_not_is_noticed_or_makes_the_check_fail():
    cells = Cells(("times",), np.zeros(1, np.int64))
    counts = {name: [9] for name in NAMES}
    agreed = answered(checking(counts, source=SecretSource()).agree(), counts)
    asked = agreed.find(cells, lambda own: own.train.targets)
    total = None
    for _ in range(2):
        question = asked.send(total)
        total = sum(question.answer(peer) for peer in NAMES)
    question = asked.send(total)
    spoilt = sum(question.answer(peer) for peer in NAMES) - 2**62
    with pytest.raises(PrivacyError, match="no points in the check of small cells"):
        asked.send(spoilt).answer("cat")


def test_no_cells_and_a_least_number_of_one_ask_for_nothing_more():
    totals = []
    check({name: [3] for name in NAMES}, least=1, totals=totals)
    assert len(totals) == 1


def test_a_peer_that_takes_no_part_in_the_first_total_neither_masks_nor_judges():
    counts = {"ada": [9], "bob": [9], "cat": [9], "dan": [1]}
    present = {name: counts[name] for name in ("bob", "cat", "dan")}
    agreed = answered(checking(counts, source=SecretSource()).agree(), present)
    assert agreed.peers == ("bob", "cat", "dan")
    assert answered(agreed.find(Cells.of({"sex": 1}), lambda own: own.train.targets), present) == ()


def test_whether_a_fact_holds_at_any_peer_shows_and_not_at_how_many():
    counts = {"ada": [0, 1, 1], "bob": [0, 0, 1], "cat": [0, 0, 1]}
    agreed = answered(checking(counts, source=SecretSource()).agree(), counts)
    totals = []
    facts = answered(agreed.any_of(lambda own: own.train.targets > 0, size=3), counts, totals)
    assert facts.tolist() == [False, True, True]
    assert totals[0][1] > 2**20
