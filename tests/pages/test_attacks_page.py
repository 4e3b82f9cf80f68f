"""The page about attacks says what its command measures."""

import re

import pytest

from benchmarks.attacks import ATTACKS, PAGE, RULES, SPLITS, accuracy, written


def test_tables_take_the_place_of_those_before_and_nothing_else():
    page = "a\n<!-- tables -->\nold\n<!-- end -->\nb\n"
    assert written(page, "new\n") == "a\n<!-- tables -->\nnew\n<!-- end -->\nb\n"


def test_the_page_has_a_number_for_each_attack_under_each_rule():
    page = PAGE.read_text("utf-8")
    for attack in ATTACKS:
        lines = re.findall(rf"^\| {re.escape(attack)} \|(.*)\|$", page, re.MULTILINE)
        assert [len(line.split("|")) for line in lines] == [len(RULES)] * len(SPLITS)


@pytest.mark.slow
def test_where_a_fifth_of_the_peers_lies_the_average_learns_nothing_and_rules_learn():
    found = {
        name: accuracy({"split": "iid"}, ATTACKS["sign flip, c = 4"], RULES[name], seed=0)
        for name in ("plain average", "Clipped-Gossip", "trimmed mean", "NNM, trimmed mean")
    }
    assert found.pop("plain average") < 0.5
    assert min(found.values()) > 0.8
