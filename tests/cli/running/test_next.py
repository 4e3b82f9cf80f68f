"""A run that begins with the last models of another one."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from p2pfl.experiment.accounts import uncounted_start
from p2pfl.experiment.file.reading import check, write
from p2pfl.privacy.keys import Identity, key_text
from p2pfl.results.evidence import Chain, PeerBegan, last_digest, read_chain

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


def test_the_next_run_of_a_moved_folder_reads_the_tables_that_moved_with_it(p2pfl, place):
    card = place / "card"
    card.mkdir()
    for number in range(4):
        rows = [f"{row},{(row * 7 + number) % 5},{row % 2}" for row in range(12)]
        (card / f"peer{number}.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    columns = '{ a = "number", b = "number", y = [0, 1] }'
    table = f'name = "table"\noptions = {{ path = "{{peer}}.csv", target = "y", columns = {columns} }}'
    (card / "plant.toml").write_text(EXPERIMENT.format(rounds=2).replace('name = "wine"', table))
    said = p2pfl("simulate", "card/plant.toml", "--runs", "card/runs", "--no-baselines", "--json")
    assert said.status == 0, said.err
    card.rename(place / "ssd")
    first = newest("ssd/runs")
    said = p2pfl("next", first, "--runs", "ssd/runs", "--no-baselines", "--json")
    assert said.status == 0, said.err
    assert len([*(place / "ssd" / "runs").glob("plant-*")]) == 2


@pytest.mark.slow
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
    assert next(read_chain(chain))[1].fact.follows == last_digest(first / "peers" / "peer0.evidence.jsonl")
    assert p2pfl("verify", then).status == 0
    (first / "peers" / "peer0.evidence.jsonl").write_bytes((first / "peers" / "peer1.evidence.jsonl").read_bytes())
    said = p2pfl("verify", then)
    assert said.status == 1
    assert "peer0: it went on from another run, or from other evidence, than the one" in said.err


def began(run, *, follows=""):
    """Write the first entry of the evidence of peer0 of a run, with what it says of the run before."""
    facts = {"peer": "peer0", "incarnation": 0, "swarm": "s", "experiment": "0" * 64, "statement": "", "roster": ""}
    identity, chain = Identity(bytes(range(32))), run / "peers" / "peer0.evidence.jsonl"
    chain.parent.mkdir(parents=True, exist_ok=True)
    more = {"key": key_text(identity.public), "versions": {}, "code": {}, "data": None, "charge": None}
    Chain(chain, identity).append(PeerBegan(**facts, **more, follows=follows))
    return chain


@pytest.mark.plugin("evidence")
def test_verify_names_a_peer_that_says_nothing_of_the_run_from_which_it_went_on(p2pfl, place):
    former = began(place / "first")
    (place / "first" / "experiment.toml").write_text(EXPERIMENT.format(rounds=2))
    then = place / "then"
    chain = began(then, follows=last_digest(former))
    start = f'[model]\npretrained = "{place}/first/peers/peer0.safetensors"\n'
    (then / "experiment.toml").write_text(EXPERIMENT.format(rounds=2).replace("[model]\n", start))
    went_on = "peer0: it went on from another run"
    assert went_on not in p2pfl("verify", then).err
    began(then)  # it begins again, and leaves the digest out
    said = p2pfl("verify", then)
    assert said.status == 1
    assert went_on in said.err
    chain.unlink()
    began(then)
    assert went_on in p2pfl("verify", then).err


def test_empty_evidence_of_a_former_run_is_no_evidence(tmp_path):
    (tmp_path / "ada.evidence.jsonl").touch()
    assert last_digest(tmp_path / "ada.evidence.jsonl") == ""


@pytest.mark.plugin("evidence")
def test_verify_refuses_settings_that_name_their_own_models(p2pfl, place):
    began(place / "then")
    start = f'[model]\npretrained = "{place}/then/peers/{{peer}}.safetensors"\n'
    (place / "then" / "experiment.toml").write_text(EXPERIMENT.format(rounds=2).replace("[model]\n", start))
    said = p2pfl("verify", place / "then")
    assert said.status == 2
    assert "begins with its own models" in said.err


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


NOISY = ("--set", "privacy.mode=pairwise", "--set", "privacy.noise=8", "--set", "privacy.clip=1")
COMMON = ("--set", "learning.consensus=true", "--set", "topology.kind=complete")


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NOISY, ("--set", "learning.example_noise=1", "--set", "learning.max_norm=1")])
def test_a_start_that_learned_without_a_guarantee_is_part_of_no_claim(p2pfl, noise):
    first = trained(p2pfl, "simulate", "plant.toml", *COMMON)
    noise = (*noise, "--set", "learning.batch=32")
    assert "used the same data without a guarantee" in refused(p2pfl, first, *noise)
    assert "used the same data without a guarantee" in refused(
        p2pfl, first, *noise, "--set", "privacy.budget=fresh.jsonl"
    )
    said = p2pfl("next", first, *noise, "--unaccounted", "--no-baselines")
    assert said.status == 0, said.err
    assert "UNACCOUNTED: epsilon is that of this run alone" in said.err
    assert "covers nothing that the model with which it begins" in said.err + said.out


@pytest.mark.slow
def test_no_account_is_left_by_naming_the_model_by_hand_or_by_a_run_between(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml", *NOISY, *COMMON, "--set", "privacy.budget=spent.jsonl")
    start = ("--set", f"model.pretrained={first}/peers/peer0.safetensors")
    other = ("--set", "privacy.budget=other.jsonl")
    said = p2pfl("simulate", "plant.toml", *NOISY, *COMMON, *start, *other)
    assert said.status == 2
    assert "privacy.budget is " in said.err
    plain = trained(p2pfl, "simulate", "plant.toml", *COMMON)
    between = trained(p2pfl, "next", plain, *NOISY, "--set", "privacy.budget=spent.jsonl", "--unaccounted")
    assert "used the same data without a guarantee" in refused(p2pfl, between)


def test_a_start_that_learned_other_data_costs_nothing(place):
    def made(path, start=None):
        data = {"name": "csv", "options": {"path": str(place / path), "target": "ill"}}
        return check({"data": data, "model": {} if start is None else {"pretrained": str(start)}})

    (place / "public" / "peers").mkdir(parents=True)
    (place / "public" / "experiment.toml").write_text(write(made("public.csv")))
    start = place / "public" / "peers" / "peer0.safetensors"
    assert uncounted_start(made("private.csv", start)) is None
    assert "without a guarantee" in (uncounted_start(made("public.csv", start)) or "")
    (place / "linked.csv").symlink_to(place / "public.csv")
    assert "without a guarantee" in (uncounted_start(made("linked.csv", start)) or "")


@pytest.mark.parametrize("algorithm", ["ditto", "fedper"])
def test_models_that_nobody_released_are_no_public_start(p2pfl, algorithm):
    first = trained(
        p2pfl, "simulate", "plant.toml", "--set", f"learning.algorithm={algorithm}", "--set", "model.name=mlp"
    )
    line = refused(p2pfl, first, "--set", "learning.algorithm=fedavg", "--set", "privacy.mode=pairwise")
    assert f"does not work with the models of a run of {algorithm}, in which" in line


def test_the_path_of_a_run_may_have_any_characters(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml", "--runs", "runs")
    moved = first.rename(first.with_name("plant-\U0001f33f\u00e4"))
    trained(p2pfl, "next", moved)


def test_a_run_that_would_begin_with_its_own_models_is_refused(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    file, own = first / "experiment.toml", f'[model]\npretrained = "{first.resolve()}/peers/{{peer}}.safetensors"\n'
    file.write_text(file.read_text().replace("[model]\n", own))
    assert "begins with its own models" in refused(p2pfl, first)
    said = p2pfl("run", file)
    assert said.status == 2
    assert "begins with its own models" in said.err


def test_live_peers_need_all_earlier_runs_before_any_of_them_starts(p2pfl):
    first = trained(p2pfl, "simulate", "plant.toml")
    then = trained(p2pfl, "next", first)
    first.rename(first.with_name("away"))
    start = f"model.pretrained={then.resolve()}/peers/{{peer}}.safetensors"
    said = p2pfl("run", "plant.toml", "--set", start, "--no-baselines")
    assert said.status == 2
    assert f"{first.resolve()}/experiment.toml is gone, from which {then.resolve()} went on" in said.err
    assert "bring it back, or name one model for all peers" in said.err
    assert p2pfl("simulate", "plant.toml", "--set", start, "--no-baselines").status == 0


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


@pytest.mark.slow
def test_a_model_from_totals_is_computed_again_instead(p2pfl):
    exact = ("--set", "model.name=forest", "--set", "privacy.mode=none", "--set", "learning.batch=32")
    first = trained(p2pfl, "simulate", "plant.toml", *exact)
    assert "computes its model from totals of all data, so there is nothing to go on from" in refused(p2pfl, first)
