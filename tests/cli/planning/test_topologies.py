"""What ``p2pfl topology`` tells of a graph before anything runs."""

import json

import pytest

from p2pfl.topology import BUILDERS


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("kind", BUILDERS)
def test_every_kind_is_described_for_people_and_machines(p2pfl, kind):
    options = ("topology", kind, "--peers", 8, "--degree", 2, "--period", 6)
    said = p2pfl(*options)
    assert (said.status, said.err) == (0, "")
    assert "gossip steps to 1e-03" in said.out
    assert "effective neighbours" in said.out
    facts = json.loads(p2pfl(*options, "--json").out)
    assert facts["peers"] == 8
    assert facts["effective_neighbours"]["0.9"] <= facts["effective_neighbours"]["0.99"] <= 8 + 1e-9
    assert 1 <= facts["steps"]["1e-03"] <= facts["steps"]["1e-06"]
    assert facts["weights"] == ("edges" if kind in {"base", "epidemic_local"} else "metropolis")
    assert facts["keeps_mean"] == (kind != "epidemic_local")


def test_a_schedule_is_told_from_a_graph(p2pfl):
    said = p2pfl("topology", "base", "--peers", 25, "--degree", 1)
    lines = dict(line.split("  ", 1) for line in said.out.splitlines() if "  " in line.strip())
    assert lines["graphs in turn"].strip() == "9"
    assert lines["models received in a gossip step"].strip() == "0 to 1"
    assert lines["gossip steps to 1e-06"].strip() == "9"
    assert "spectral gap of a period" in lines


def test_weights_without_a_mean_are_told_and_so_is_who_must_push(p2pfl, place):
    assert "pairwise masks are not possible" in " ".join(p2pfl("topology", "epidemic_local").out.split())
    arcs = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")]
    table = {"directed": True, "graph": {}, "nodes": [{"id": peer} for peer in "abc"]}
    table["edges"] = [{"source": a, "target": b} for a, b in arcs]
    (place / "one_way.json").write_text(json.dumps(table), "utf-8")
    assert 'gossip.weights = "push"' in p2pfl("topology", "one_way.json").out
    facts = json.loads(p2pfl("topology", "one_way.json", "--json").out)
    assert (facts["weights"], facts["effective_neighbours"]["0.9"], facts["remainder"]) == ("push", None, None)
    assert facts["steps"]["1e-03"] > 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("epidemic_oracle", "--peers", 9, "--degree", 3), "it is 9 times 3; change one of them by one"),
        (("epidemic_oracle", "--degree", 1, "--period", 1), "that do not reach each other"),
    ],
)
def test_impossible_schedules_are_refused_in_one_sentence(p2pfl, options, sentence):
    said = p2pfl("topology", *options)
    assert said.status == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1


GRAPHS = """
import networkx
def paths(peers):
    return networkx.path_graph([f"peer{number}" for number in range(peers)])
"""


@pytest.mark.plugin("operate")
def test_commands_find_a_graph_of_the_users_own_in_the_present_folder(p2pfl, place):
    (place / "own_graphs_of_here.py").write_text(GRAPHS)
    said = p2pfl("topology", "own_graphs_of_here:paths", "--peers", 4)
    assert said.status == 0, said.err
    assert "diameter               3" in said.out
    (place / "graph.toml").write_text('[topology]\npeers = 4\nkind = "own_graphs_of_here:paths"\n')
    assert "--broker and --wheel are missing" in p2pfl("deploy", "graph.toml", "--out", "fleet", "--trust-code").err
