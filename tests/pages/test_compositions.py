"""What goes with which algorithm is what the docs say, and every refusal says why."""

import re
from pathlib import Path

import pytest

from benchmarks.compositions import COLUMNS, asked, one_way, refusal
from graph_files import save_graph
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.simulation import simulate

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"


@pytest.fixture(scope="module")
def refusals():
    return {(name, column): refusal(name, column) for name in ALGORITHMS for column in COLUMNS}


@pytest.mark.slow
def test_the_docs_show_what_each_algorithm_does_not_go_with(refusals):
    shown = {}
    for names, cell in re.findall(r"^\| (`[^|]*`) \|(?: [^|]*\|){2} ([^|]*)\|$", PAGE.read_text("utf-8"), re.MULTILINE):
        excepted = cell.strip().removeprefix("all but ").removeprefix("all")
        columns = set(filter(None, excepted.split(", ")))
        shown |= dict.fromkeys(re.findall(r"`(\w+)`", names), set(COLUMNS) - columns if "all" in cell else columns)
    assert shown == {name: {column for column in COLUMNS if refusals[name, column]} for name in ALGORITHMS}


@pytest.mark.slow
def test_every_refusal_is_one_sentence_with_what_to_do(refusals):
    for why in filter(None, refusals.values()):
        assert re.search(
            r" (does not work (with|on|under)|has no effect, because) .*; (take|leave|change|set) ", why
        ), why
        assert "\n" not in why


@pytest.mark.slow
def test_what_the_rules_refuse_is_what_a_plan_refuses(refusals, tmp_path):
    """The table is read from the rules alone; here each of its cells is resolved."""
    save_graph(one_way(), tmp_path / "one_way.json")
    for (name, column), why in refusals.items():
        table = asked(name, COLUMNS[column])
        if column == "one-way":
            table["topology"] = {"kind": str(tmp_path / "one_way.json")}
        if name == "relay_sgd" and not why:
            continue  # it also needs a tree
        if traits_of(name).needs_local:
            table["model"] = {"name": "norming:Normed"}
        assert refused(table) == bool(why), (name, column, why)


def refused(table):
    """Return whether an experiment cannot be planned."""
    try:
        plan(read(table))
    except InputError:
        return True
    return False


@pytest.mark.parametrize("name", ["gossip_learning", "multitask"])
def test_who_weighs_what_it_hears_learns_over_one_way_edges(name, tmp_path):
    save_graph(one_way(), tmp_path / "one_way.json")
    table = asked(name, COLUMNS["one-way"]) | {"rounds": 12, "topology": {"kind": str(tmp_path / "one_way.json")}}
    run = simulate(table, baselines=False)
    losses = [record.scores["loss"] for record in run.metrics if record.peer == "peer1"]
    assert losses[-1] < 0.9 * losses[0]
