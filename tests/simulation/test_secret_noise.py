"""A claim needs secret randomness: it does not follow from the file, and of noise from a seed nothing is claimed."""

import asyncio
import json
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import p2pfl
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.privacy.keys import KEY_BYTES, KeyedSource, SecretSource, SeededSource
from p2pfl.privacy.noise import NoiseSampler
from p2pfl.results import Run
from p2pfl.results.card import card
from p2pfl.results.pages.run_page import run_page
from p2pfl.simulation import simulate
from p2pfl.simulation.simulation_checkpoint import FILE, SimulationCheckpoint
from sourcing import shared_source

TABLE = {
    "rounds": 2,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
}
TOTALS = {
    "rounds": 1,
    "topology": {"kind": "complete", "peers": 4},
    "data": {"name": "wine"},
    "learning": {"algorithm": "exact"},
    "model": {
        "name": "random_boosting",
        "options": {"bounds": {name: [-3.0, 3.0] for name in load_wine().feature_names}, "max_depth": 2},
    },
    "privacy": {"mode": "pairwise", "mask_graph": "complete", "epsilon": 4.0},
}
BOUND = {"noise": 2.0, "clip": 1.0}
CLAIMS = {
    "masks": TABLE | {"privacy": {"mode": "pairwise", "mask": 10.0} | BOUND},
    "noise": TABLE | {"privacy": {"mode": "independent"} | BOUND},
    "secret participation": TABLE | {"privacy": {"mode": "independent", "participation": 0.5} | BOUND},
    "secure sums": TABLE | {"privacy": {"mode": "secagg", "colluders": 1} | BOUND},
    "samples": TABLE | {"learning": {"algorithm": "fedavg", "example_noise": 1.0, "batch": 8, "device": "cpu"}},
    "totals": TOTALS,
}
WHY = "no differential privacy is claimed, because the noise can be recomputed from the seed"


def flat(run):
    return torch.cat([tensor.flatten().double() for model in run.models.values() for tensor in model.values()])


MARKS = dict.fromkeys(CLAIMS, pytest.mark.slow) | {"noise": (), "totals": pytest.mark.plugin("exact")}
EACH = [pytest.param(each, id=name, marks=MARKS[name]) for name, each in CLAIMS.items()]


@pytest.mark.parametrize("table", EACH)
def test_two_simulations_of_one_file_differ_wherever_a_claim_is_made(table):
    first, second = (simulate(table, baselines=False) for _ in range(2))
    assert not torch.equal(flat(first), flat(second))
    privacy = first.summary["privacy"]
    assert (privacy["epsilon"] or privacy["examples"]["epsilon"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("table", EACH)
def test_with_a_seeded_source_everything_states_no_epsilon_and_why(table, tmp_path):
    folder = tmp_path / "run"
    run = simulate(table, folder=folder, baselines=False, source=SeededSource(0))
    assert torch.equal(flat(run), flat(simulate(table, baselines=False, source=SeededSource(0))))
    privacy = json.loads((folder / "summary.json").read_text())["privacy"]
    assert (privacy["epsilon"], privacy["examples"]) == (None, None)
    assert WHY in privacy["statement"]
    assert "delta" not in privacy
    assert not privacy.get("observers")
    assert [record.privacy_spent for record in run.metrics] == [None] * len(run.metrics)
    left = Run.load(folder)
    for text in (card(left), run_page(left)):
        assert WHY in text
        assert "differential privacy of each" not in text


def test_no_published_model_becomes_exact_by_subtracting_what_the_file_gives():
    """The attack of whoever has the file is exact where the noise follows from the seed, and fails by default."""
    table = CLAIMS["noise"] | {"rounds": 1, "learning": {"device": "cpu", "weighted": False}}
    exact = flat(simulate(table | {"privacy": {"mode": "independent", "clip": 1.0}}, baselines=False))[:42]
    sampler, noise = NoiseSampler(BOUND["noise"] * 2.0**20), np.zeros(42)
    for peer in plan(read(table)).topology.peers:
        key = SeededSource(0).bytes(KEY_BYTES, purpose="noise 0", peer=peer, round=0)
        noise += sampler.window([key], slice(0, 42))[0] * 2.0**-20 / 4
    seeded, secret = (
        flat(simulate(table, baselines=False, source=source))[:42] - torch.from_numpy(noise) - exact
        for source in (SeededSource(0), None)
    )
    assert seeded.abs().max() < 1e-5
    assert secret.std() == pytest.approx(math.sqrt(2) * BOUND["noise"] / 2, rel=0.5)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    "changes",
    [{}, {"privacy": {"mode": "pairwise"}}, {"privacy": {"mode": "independent", "clip": 1.0}}],
    ids=["plain", "masks", "a clip without noise"],
)
def test_simulations_without_a_claim_repeat_to_the_last_bit(changes):
    assert torch.equal(*(flat(simulate(TABLE | changes, baselines=False)) for _ in range(2)))


@pytest.mark.slow
def test_a_forecast_under_a_claim_draws_from_the_operating_system():
    experiment = read(CLAIMS["noise"] | {"rounds": 1})
    first, second = (forecast(experiment, network("wan"), baselines=False) for _ in range(2))
    assert not torch.equal(flat(first), flat(second))
    assert first.summary["privacy"]["epsilon"] > 0


def interrupted(table, folder, source):
    def stop(_records):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(table, folder=folder, observe=stop, baselines=False, source=source)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("first", "second", "claims"),
    [(None, None, True), (SeededSource(0), None, False), (None, SeededSource(0), False)],
    ids=["secret", "seeded, then secret", "secret, then seeded"],
)
def test_a_resumed_simulation_claims_only_what_all_of_its_rounds_support(tmp_path, first, second, claims):
    folder = tmp_path / "run"
    interrupted(CLAIMS["noise"], folder, first)
    run = simulate(CLAIMS["noise"], folder=folder, resume=True, baselines=False, source=second)
    assert (run.summary["privacy"]["epsilon"] is not None) == claims
    assert (WHY in run.summary["privacy"]["statement"]) != claims


def test_a_checkpoint_holds_no_key_of_the_noise_and_only_its_owner_can_read_it(tmp_path):
    source, folder = shared_source(), tmp_path / "run"
    interrupted(CLAIMS["masks"], folder, source)
    data = (folder / FILE).read_bytes()
    drawn = [
        source.bytes(KEY_BYTES, purpose=f"{purpose} 0", peer=f"peer{peer}", round=round)
        for purpose in ("noise", "total noise", "participation")
        for peer in range(4)
        for round in range(2)
    ]
    assert not [key for key in (source.key, *drawn) if key in data or key.hex().encode() in data]
    assert (folder / FILE).stat().st_mode & 0o077 == 0
    size = flat(simulate(TABLE, baselines=False)).numel() // 4
    assert SimulationCheckpoint.load(folder / FILE, peers=4, size=size).facts.secret


@pytest.mark.slow
def test_a_run_whose_noise_follows_from_a_seed_is_refused_by_an_account_and_counted_in_none(tmp_path):
    table = CLAIMS["noise"] | {"privacy": CLAIMS["noise"]["privacy"] | {"budget": str(tmp_path / "spent.jsonl")}}
    simulate(table, baselines=False, source=SeededSource(0))
    assert not (tmp_path / "spent.jsonl").exists()
    simulate(table | {"rounds": 1}, baselines=False)
    before = (tmp_path / "spent.jsonl").read_bytes()
    with pytest.raises(InputError, match="noise can be recomputed from the seed"):
        simulate(table, baselines=False, source=SeededSource(0))
    run = simulate(table, baselines=False, source=SeededSource(0), unaccounted=True)
    assert run.summary["accounted"] is False
    assert (tmp_path / "spent.jsonl").read_bytes() == before


def test_noise_that_cancels_in_the_difference_of_two_runs_claims_nothing():
    source = KeyedSource(bytes(range(KEY_BYTES)))
    strong = TABLE | {"rounds": 1, "privacy": {"mode": "independent", "noise": 1e4, "clip": 1.0}}
    first, second = (simulate(strong, baselines=False, source=source) for _ in range(2))
    assert (flat(first) - flat(second)).abs().max() < 1.0
    assert flat(first).abs().max() > 100.0
    assert first.summary["privacy"]["epsilon"] is None
    assert WHY in first.summary["privacy"]["statement"]


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", ["noise", "samples"])
def test_live_peers_with_a_seeded_source_state_no_epsilon(name):
    table = CLAIMS[name] | {"rounds": 1}
    run = asyncio.run(p2pfl.live(table, source=SeededSource(0), baselines=False))
    assert run.summary["privacy"]["epsilon"] is None
    assert WHY in run.summary["privacy"]["statement"]


def test_a_source_tells_whether_it_is_secret_and_does_not_print_its_key():
    assert SecretSource().secret
    assert not SeededSource(0).secret
    drawn = KeyedSource(bytes(range(KEY_BYTES)))
    assert not drawn.secret
    assert "01" not in repr(drawn)
    assert drawn.bytes(8, purpose="noise", peer="ada") != drawn.bytes(8, purpose="noise", peer="bob")
    with pytest.raises(ValueError, match="32"):
        KeyedSource(b"short")
