"""What is told of an experiment before it runs, held against what then happens."""

import json

import pytest

from p2pfl.cli.planning.explain import explain
from p2pfl.experiment import plan, read
from p2pfl.simulation.memory_estimate import estimate

CASES = {
    "complete": [],
    "ring": ["topology.kind=ring", "topology.peers=5", "gossip.steps=2"],
    "consensus": ["topology.kind=ring", "topology.peers=5", "gossip.steps=2", "learning.consensus=true"],
    "schedule": ["topology.kind=one_peer_exponential", "topology.peers=4", "gossip.steps=3"],
}


def sets(changes):
    return [part for change in changes for part in ("--set", change)]


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_it_costs_what_was_said(p2pfl, changes):
    told = json.loads(p2pfl("explain", "small.toml", "--json", *sets(changes)).out)
    ran = json.loads(p2pfl("simulate", "small.toml", "--json", "--no-baselines", *sets(changes)).out)
    cost = told["cost"]
    assert cost["bytes_sent"] == ran["bytes_sent"]
    assert cost["totals_after"] == 2 * ("learning.consensus=true" in changes)
    assert (cost["rounds"], cost["gossip_steps_per_round"]) == (ran["rounds"], ran["steps"])


def test_bytes_of_a_round_are_those_of_models_and_the_text_says_so(p2pfl):
    shown = " ".join(p2pfl("explain", "small.toml").out.split())
    assert "the protocol adds messages, which simulate --network counts a peer sends" in shown


def test_a_fraction_says_who_trains_and_who_sends(p2pfl):
    changes = sets(["topology.kind=complete", "topology.peers=6", "learning.fraction=0.34"])
    assert json.loads(p2pfl("explain", "small.toml", "--json", *changes).out)["cost"]["participants"] == 2
    assert "2 of 6 train in a round and count; the others send" in p2pfl("explain", "small.toml", *changes).out
    assert json.loads(p2pfl("explain", "small.toml", "--json").out)["cost"]["participants"] is None


def test_devices_say_how_many_are_invited_and_count_in_all_rounds(p2pfl):
    drawn = ["topology.kind=complete", "topology.peers=6", "learning.fraction=0.34", "rounds=3"]
    late = sets([*drawn, "simulation.devices={ seconds = 4.0, spread = 0.7, invited = 1.5, deadline = 4.0 }"])
    told = json.loads(p2pfl("explain", "small.toml", "--json", *late).out)["cost"]
    assert told["participants"] is None
    assert told["clients"]["wanted"] == 2
    assert told["clients"]["invited"] == {"least": 3, "median": 3, "most": 3}
    never = sets([*drawn, "simulation.devices={ seconds = 4.0, deadline = 1.0 }"])
    shown = " ".join(p2pfl("explain", "small.toml", *never).out.split())
    assert "2 to 2 are invited (median 2), 0 to 0 count (median 0)" in shown
    assert "in 3 of 3 rounds nobody counts" in shown


def test_a_topology_is_told_in_the_measures_of_its_weights(p2pfl):
    told = json.loads(p2pfl("explain", "small.toml", "--json", *sets(CASES["ring"])).out)["topology"]
    assert (told["edges"], told["degree"], told["diameter"]) == (5, [2, 2], 2)
    assert told["effective_neighbours"] == pytest.approx(2.0)  # three equal weights
    assert told["left"] == pytest.approx((1 - told["spectral_gap"]) ** 2)


@pytest.mark.parametrize("baselines", [True, False])
def test_a_complete_graph_is_explained_without_its_edges_and_weights(baselines):
    table = {
        "topology": {"kind": "complete", "peers": 30},
        "data": {"name": "wine"},
        "model": {"name": "linear"},
        "learning": {"fraction": 0.1, "device": "cpu"},
    }
    planned = plan(read(table))
    told = explain(planned)["topology"]
    assert (told["edges"], told["effective_neighbours"], told["spectral_gap"], told["left"]) == (435, 29, 1, 0)
    estimate(planned, baselines=baselines)
    assert "edges" not in vars(planned.topology)
    assert not any("matrix" in vars(each) for each in planned.weights)


def test_a_base_graph_whose_degree_makes_it_complete_is_told(p2pfl):
    def shown(*changes):
        pairs = sets(["topology.kind=base", "topology.peers=4", *changes])
        return " ".join(p2pfl("explain", "small.toml", *pairs).out.split())

    assert "base (complete at this degree), 4 peers, 6 edges" in shown("topology.degree=9")
    assert "base, 4 peers, 4 edges" in shown("topology.degree=1")


def test_the_peers_data_are_told_one_by_one(p2pfl):
    changes = ["data.split=shards", "data.split_options.shards=1"]
    told = json.loads(p2pfl("explain", "small.toml", "--json", *sets(changes)).out)["data"]
    each = told["per_peer"].values()
    assert sum(own["share"] for own in each) == pytest.approx(1)
    assert told["label_distance"] == pytest.approx(sum(own["label_distance"] for own in each) / 3)
    assert all(sum(own["classes"]) == own["samples"] for own in each)


@pytest.mark.parametrize("changes", [[], ["data.name=diabetes"], ["learning.consensus=true", "data.scale=true"]])
def test_people_get_a_page(p2pfl, changes):
    said = p2pfl("explain", "small.toml", *sets(changes))
    assert said.status == 0
    assert "Who has what (split iid)" in said.out
    assert "the broker takes in" in said.out
    assert ("label distance" in said.out) == ("data.name=diabetes" not in changes)


MASKS = {
    "the default from public numbers": [],
    "as privacy.mask says": ["privacy.mask=0.5"],
    "as large as privacy.clip": ["privacy.noise=0.5", "privacy.clip=2", "topology.peers=5"],
}


@pytest.mark.parametrize("origin", MASKS)
def test_the_size_of_a_mask_is_told_and_where_it_comes_from(p2pfl, origin):
    arguments = ("explain", "small.toml", *sets(["privacy.mode=pairwise", "privacy.partners=1", *MASKS[origin]]))
    told = json.loads(p2pfl(*arguments, "--json").out)["mask"]
    assert told["origin"].startswith(origin)
    assert told["deviation"] == {"as privacy.mask says": 0.5, "as large as privacy.clip": 2}.get(
        origin, told["deviation"]
    )
    assert f"mask: deviation {told['deviation']:.3g} in each parameter, {origin}" in p2pfl(*arguments).out


def test_no_mask_is_told_where_there_is_none(p2pfl):
    assert json.loads(p2pfl("explain", "small.toml", "--json").out)["mask"] is None
    assert "mask:" not in p2pfl("explain", "small.toml").out


def test_a_bad_run_ends_with_advice(p2pfl):
    said = p2pfl("simulate", "small.toml", "--no-baselines", *sets(["rounds=8", "learning.rate=1e-6"]))
    assert "advice: the test loss went from" in said.err
    assert "raise learning.rate" in said.err


def test_rounds_without_an_end_cost_bytes_a_round_and_no_number_in_all(p2pfl):
    endless = sets([*CASES["ring"], "rounds=endless", "privacy.mode=none"])
    told = json.loads(p2pfl("explain", "small.toml", "--json", *endless).out)
    one = json.loads(p2pfl("explain", "small.toml", "--json", *sets([*CASES["ring"], "rounds=1"])).out)["cost"]
    assert (told["cost"]["rounds"], told["cost"]["bytes_sent"], told["memory"]) == (None, None, None)
    for name in ("bytes_per_peer_and_round", "bytes_received_per_peer_and_round"):
        assert told["cost"][name] == one[name] > 0
    shown = " ".join(p2pfl("explain", "small.toml", *endless).out.split())
    assert "rounds without an end of 2" in shown
    assert "in all" not in shown


@pytest.mark.slow
def test_the_budget_of_rounds_without_an_end_says_how_many_it_allows(p2pfl):
    noisy = sets(
        ["rounds=endless", "privacy.mode=independent", "privacy.epsilon=8", "privacy.clip=0.1", "privacy.noise=1"]
    )
    allowed = json.loads(p2pfl("explain", "small.toml", "--json", *noisy).out)["cost"]["rounds"]
    assert 100 < allowed < 1000
    assert f"without an end, of which epsilon 8 allows {allowed}" in p2pfl("privacy", "small.toml", *noisy).out
