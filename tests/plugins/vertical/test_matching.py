"""Rows of the same people: one to one, in the order of keys, and nobody wrong in untidy tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import untidy
from p2pfl.plugins.vertical.keys import identify_rows, read_keys
from p2pfl.plugins.vertical.matching import match_rows

TABLES = st.lists(st.lists(st.integers(0, 8), unique=True, max_size=8), min_size=2, max_size=5)


@given(TABLES)
def test_one_key_matches_the_intersection_of_all_tables(tables):
    common = match_rows([[table] for table in tables]).common
    values = [[table[row] for row in common[:, party]] for party, table in enumerate(tables)]
    assert {*values[0]} == set.intersection(*map(set, tables))
    assert all(each == values[0] for each in values)
    assert values[0] == [value for value in tables[0] if value in {*values[0]}]  # in the order of the first party


@given(TABLES, st.data())
def test_each_row_belongs_to_one_person_whatever_the_keys_say(tables, data):
    keys = data.draw(st.integers(1, 3))
    tokens = [[data.draw(st.permutations([*range(6), None, None]))[: len(t)] for _ in range(keys)] for t in tables]
    matches = match_rows(tokens)
    for party, table in enumerate(tables):
        known = matches.rows[:, party]
        assert sorted(known[known >= 0].tolist()) == [*range(len(table))]
    complete = (matches.rows >= 0).all(1)
    np.testing.assert_array_equal(complete, matches.key >= 0)
    assert sum(matches.by_key(keys)) == complete.sum()


def test_an_earlier_key_decides_and_its_rows_take_no_part_in_later_ones():
    ada, bob = [["1", "2"], ["zoe", "bo"]], [["2", "3"], ["zoe", "bo"]]
    matches = match_rows([ada, bob])
    assert matches.common.tolist() == [[1, 0]]  # "zoe" and "bo" of one party each are matched already
    assert matches.by_key(2) == (1, 0)


def test_nobody_has_two_rows_of_one_party():
    ada, bob, eve = [["1"], ["zoe"]], [["1", "2"], [None, "zoe"]], [["3"], ["cy"]]
    assert match_rows([ada, bob, eve]).rows.tolist() == [[0, 0, -1], [-1, 1, -1], [-1, -1, 0]]


def test_two_keys_find_one_person_of_three_parties():
    ada, bob, eve = [["1"], ["zoe"]], [["1"], [None]], [[None], ["zoe"]]
    matches = match_rows([ada, bob, eve])
    assert matches.common.tolist() == [[0, 0, 0]]
    assert matches.by_key(2) == (0, 1)


def test_a_value_that_a_party_repeats_against_the_protocol_matches_nobody():
    assert match_rows([[["1", "1", "2"]], [["1", "2"]]]).common.tolist() == [[2, 1]]


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("owners", [("ada", "bob"), ("ada", "bob", "eve")])
@pytest.mark.parametrize("seed", range(3))
def test_untidy_tables_have_their_people_found_by_four_keys_and_nobody_wrong(owners, seed):
    drawn = untidy.tables(owners, seed=seed)
    recalls = []
    for count in (1, 2, 4):
        keys = read_keys(untidy.KEYS[:count])
        common = match_rows([identify_rows(drawn.tables[owner], keys)[0] for owner in owners]).common
        who = np.stack([drawn.people[owner][common[:, party]] for party, owner in enumerate(owners)])
        right = (who == who[0]).all(0)
        assert (~right).sum() <= 1
        recalls.append(right.sum() / 750)
    assert 0.5 <= recalls[0] < 0.75
    assert recalls[1] >= 0.9
    assert recalls[2] >= 0.99
