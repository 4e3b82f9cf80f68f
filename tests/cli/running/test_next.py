"""A run that begins with the last models of another one."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from p2pfl.results.evidence import last_digest, read_chain

EXPERIMENT = """
name = "plant"
rounds = {rounds}
[topology]
kind = "ring"
peers = 4
[data]
name = "wine"
[model]
name = "linear"
[learning]
batch = "all"
device = "cpu"
"""
"""Training by whole batches draws nothing in a round, so that two runs of two rounds can equal one of four."""


@pytest.fixture(autouse=True)
def plant(place):
    """Write the experiment with two rounds."""
    (place / "plant.toml").write_text(EXPERIMENT.format(rounds=2))


def newest(runs="runs"):
    return max(Path(runs).glob("plant-*"), key=lambda path: (path / "experiment.toml").stat().st_mtime_ns)


def trained(p2pfl, *arguments):
    """Run a command that trains, and return the run directory."""
    said = p2pfl(*arguments, "--no-baselines", "--json")
    assert said.status == 0, said.err
    return newest()


def apart(one, other):
    """Return the largest difference between the models of two runs."""
    models = [
        {path.name: load_file(path) for path in (run / "peers").glob("peer?.safetensors")} for run in (one, other)
    ]
    assert len(models[0]) == len(models[1]) == 4
    return max(
        float((tensor - models[1][file][name]).abs().max())
        for file, tensors in models[0].items()
        for name, tensor in tensors.items()
    )


def refused(p2pfl, *arguments):
    said = p2pfl("next", *arguments)
    assert said.status == 2
    return said.err.splitlines()[-1]


def test_two_simulations_of_two_rounds_end_where_one_of_four_does(p2pfl):
    whole = trained(p2pfl, "simulate", "plant.toml", "--set", "rounds=4")
    first = trained(p2pfl, "simulate", "plant.toml")
    then = trained(p2pfl, "next", first)
    assert apart(whole, then) == 0
    assert f'pretrained = "{first.resolve()}/peers/{{peer}}.safetensors"' in (then / "experiment.toml").read_text()


def test_other_settings_may_differ_and_the_model_may_not(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    then = trained(p2pfl, "next", first, "--set", "rounds=1", "--set", "learning.rate=0.01")
    assert apart(first, then) > 0
    line = refused(p2pfl, first, "--set", "model.name=mlp")
    assert "is not of this model" in line
    assert "the next run may differ in its other settings only" in line


@pytest.mark.slow
def test_live_peers_go_on_as_in_a_simulation_and_their_evidence_names_the_former_run(p2pfl):
    whole = trained(p2pfl, "simulate", "plant.toml", "--set", "rounds=4")
    first = trained(p2pfl, "run", "plant.toml")
    then = trained(p2pfl, "next", first)
    assert apart(whole, then) < 1e-6
    chain = then / "peers" / "peer0.evidence.jsonl"
    assert read_chain(chain)[0][1].fact.follows == last_digest(first / "peers" / "peer0.evidence.jsonl")
    assert p2pfl("verify", then).status == 0
    (first / "peers" / "peer0.evidence.jsonl").write_bytes((first / "peers" / "peer1.evidence.jsonl").read_bytes())
    said = p2pfl("verify", then)
    assert said.status == 1
    assert "peer0: it went on from another run, or from other evidence, than the one" in said.err


def test_one_model_of_all_is_the_start_of_all_and_of_a_peer_that_joins(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml", "--set", "learning.consensus=true")
    said = p2pfl("next", first, "--no-baselines", "--set", "topology.peers=5")
    assert said.status == 0, said.err
    assert f'pretrained = "{first.resolve()}/peers/peer0.safetensors"' in (newest() / "experiment.toml").read_text()
    assert len([*(newest() / "peers").glob("peer?.safetensors")]) == 5


def test_a_peer_without_a_model_is_refused_in_one_sentence(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    assert '"peer4" has no model in' in refused(p2pfl, first, "--set", "topology.peers=5")
    (first / "peers" / "peer2.safetensors").unlink()
    assert '"peer2" has no model in' in refused(p2pfl, first)


def test_models_of_different_rounds_are_refused(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    shorter = trained(p2pfl, "simulate", "plant.toml", "--set", "rounds=1")
    (first / "peers" / "peer1.safetensors").write_bytes((shorter / "peers" / "peer1.safetensors").read_bytes())
    assert "ended after 1 rounds of peer1 and 2 of peer0" in refused(p2pfl, first)


def test_a_privacy_cost_that_nobody_would_add_up_is_refused(p2pfl):
    noisy = ("--set", "privacy.mode=pairwise", "--set", "privacy.noise=8", "--set", "privacy.clip=1")
    common = ("--set", "learning.consensus=true", "--set", "topology.kind=complete")
    first = trained(p2pfl, "simulate", "plant.toml", *noisy, *common)
    assert "spent epsilon of the same data without an account" in refused(p2pfl, first)
    kept = ("--set", "privacy.budget=spent.jsonl")
    first = trained(p2pfl, "simulate", "plant.toml", *noisy, *common, *kept)
    assert "privacy.budget is " in refused(p2pfl, first, "--set", "privacy.budget=other.jsonl")


def test_epsilon_of_both_runs_is_that_of_one_of_their_rounds(p2pfl):
    sections = ("topology.kind=complete", "learning.consensus=true", "privacy.mode=pairwise")
    changes = [*sections, "privacy.noise=8", "privacy.clip=1"]

    def settings(*more):
        return [part for change in (*changes, *more) for part in ("--set", change)]

    def epsilon(run):
        return json.loads((run / "summary.json").read_text())["privacy"]["epsilon"]

    whole = trained(p2pfl, "simulate", "plant.toml", *settings("privacy.budget=whole.jsonl", "rounds=4"))
    first = trained(p2pfl, "simulate", "plant.toml", *settings("privacy.budget=spent.jsonl"))
    then = trained(p2pfl, "next", first)
    assert epsilon(first) < epsilon(then) == pytest.approx(epsilon(whole))


def test_each_peer_cannot_begin_with_a_model_of_its_own_under_a_guarantee(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    line = refused(
        p2pfl, first, "--set", "privacy.mode=pairwise", "--set", "privacy.noise=8", "--set", "privacy.clip=1"
    )
    assert "need one start that all know" in line


TOP_K = ("--set", "compression.name=top_k", "--set", "compression.options.keep=0.5")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(("--broker", "mqtt://hub"), "--broker has no effect"), (TOP_K, "begin with one start that all know")],
)
def test_what_cannot_go_on_is_refused(p2pfl, arguments, sentence):
    first = trained(p2pfl, "simulate", "plant.toml")
    assert sentence in refused(p2pfl, first, *arguments)


def test_a_model_from_totals_is_computed_again_instead(p2pfl):
    exact = ("--set", "model.name=forest", "--set", "privacy.mode=none", "--set", "learning.batch=32")
    first = trained(p2pfl, "simulate", "plant.toml", *exact)
    assert "computes its model from totals of all data, so there is nothing to go on from" in refused(p2pfl, first)
