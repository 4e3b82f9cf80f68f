"""What goes with which algorithm is what the docs say, and every refusal says why."""

import re
from pathlib import Path

import pytest

from benchmarks import compositions
from p2pfl.experiment.algorithms import ALGORITHMS
from p2pfl.simulation import simulate

PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"


@pytest.fixture(scope="module")
def refusals():
    return {(name, column): compositions.refusal(name, column) for name in ALGORITHMS for column in compositions.WITH}


def test_the_docs_show_the_table(refusals, monkeypatch):
    monkeypatch.setattr(compositions, "refusal", lambda name, column: refusals[name, column])
    assert compositions.table() in PAGE.read_text("utf-8")


def test_every_refusal_is_one_sentence_with_what_to_do(refusals):
    for why in filter(None, refusals.values()):
        assert re.search(r"expected .*got .*: (take|leave|change|set) ", why), why
        assert "\n" not in why


@pytest.mark.parametrize("name", ["gossip_learning", "multitask", "robust_sgp"])
def test_who_weighs_what_it_hears_learns_over_one_way_edges(name, tmp_path):
    table = compositions.asked(name, compositions.WITH["one-way"])
    table |= {"rounds": 12, "topology": {"file": str(compositions.one_way(tmp_path))}}
    run = simulate(table, baselines=False)
    losses = [record.scores["loss"] for record in run.metrics if record.peer == "peer1"]
    assert losses[-1] < 0.9 * losses[0]
