"""A simulation that was interrupted goes on from its checkpoint, and ends as if nothing had happened."""

import json
import math

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from p2pfl.algorithms import State
from p2pfl.core.errors import InputError
from p2pfl.core.neighbourhood import Public
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.results import Run
from p2pfl.simulation import simulate, simulation_checkpoint
from p2pfl.simulation.simulation_checkpoint import FILE, PART, CheckpointKeeper, Facts, SimulationCheckpoint
from sourcing import shared_source

TABLE = {
    "rounds": 5,
    "topology": {"kind": "ring", "peers": 6},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
}
CASES = {
    "fedavg": {"data": {"name": "wine", "scale": True}},
    "adam": {"learning": {"algorithm": "dpsgd", "optimizer": "adam", "rate": 0.01}},
    "scaffold": {"learning": {"algorithm": "scaffold"}},
    "compressed": {"learning": {"algorithm": "dpsgd"}, "compression": {"name": "top_k", "options": {"share": 0.2}}},
    "compressed schedule": {
        "topology": {"kind": "base", "peers": 6, "degree": 1},
        "learning": {"algorithm": "diloco"},
        "compression": {"name": "top_k", "options": {"share": 0.2, "bits": 2}},
    },
    "faults": {"simulation": {"loss": 0.2, "absence": 0.3}},
    "private": {"privacy": {"mode": "pairwise", "epsilon": 50.0}},
    "samples": {"learning": {"algorithm": "fedavg", "example_noise": 1.0, "batch": 8}, "simulation": {"absence": 0.3}},
    "schedule": {"topology": {"kind": "one_peer_exponential", "peers": 8}, "learning": {"algorithm": "dpsgd"}},
}
SLOW = {"adam", "private", "compressed", "compressed schedule", "faults", "samples"}
SOURCE = shared_source()
"""Source of runs that are compared; by default each run draws private noise of its own."""

LEFT_OUT = {"start_s", "wall_s", "total_s", "training_s", "began"}


def interrupted(table, folder, *, after, error=KeyboardInterrupt):
    """Simulate a table and stop it when so many rounds have been recorded."""
    seen = []

    def observe(records):
        seen.append(records)
        if len(seen) > after:
            raise error

    with pytest.raises(error):
        simulate(table, folder=folder, observe=observe, baselines=False, source=SOURCE)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    "changes",
    [pytest.param(each, id=name, marks=[pytest.mark.slow] * (name in SLOW)) for name, each in CASES.items()],
)
def test_a_resumed_simulation_ends_as_one_that_was_never_interrupted(tmp_path, changes):
    table = TABLE | changes
    whole = simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    interrupted(table, tmp_path / "run", after=2)
    run = simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    assert run.metrics == whole.metrics == Run.load(tmp_path / "run").metrics
    for peer, model in whole.models.items():
        assert all(torch.equal(run.models[peer][name], value) for name, value in model.items())
    assert {k: v for k, v in run.summary.items() if k not in LEFT_OUT} == {
        k: v for k, v in whole.summary.items() if k not in LEFT_OUT
    }
    assert not (tmp_path / "run" / FILE).exists()


@pytest.mark.parametrize("changes", [CASES["fedavg"], pytest.param(CASES["private"], marks=pytest.mark.slow)])
def test_a_large_state_is_not_held_and_a_run_goes_on_from_the_last_one_that_was_written(tmp_path, monkeypatch, changes):
    whole = simulate(TABLE | changes, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    monkeypatch.setattr(simulation_checkpoint, "HELD", 0)
    monkeypatch.setattr(simulation_checkpoint, "SOONEST", 0.0)
    monkeypatch.setattr(simulation_checkpoint, "PART", 1e12)  # only the first round is written
    monkeypatch.setattr(simulation_checkpoint, "SPEED", math.inf)
    interrupted(TABLE | changes, tmp_path / "run", after=2)
    assert SimulationCheckpoint.load(tmp_path / "run" / FILE, peers=6, size=whole_size(whole)).facts.round == 0
    run = simulate(TABLE | changes, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    assert run.metrics == whole.metrics == Run.load(tmp_path / "run").metrics


def whole_size(run):
    """Return the number of parameters of a run's models."""
    return sum(value.numel() for value in next(iter(run.models.values())).values())


@pytest.mark.slow
def test_a_run_may_be_interrupted_again_and_by_an_error(tmp_path):
    whole = simulate(TABLE, baselines=False, source=SOURCE)
    interrupted(TABLE, tmp_path / "run", after=1)
    stops = iter(range(2))

    def stop(_records):
        if next(stops):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(TABLE, folder=tmp_path / "run", resume=True, observe=stop, baselines=False, source=SOURCE)
    run = simulate(TABLE, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    assert run.metrics == whole.metrics


def test_the_directory_of_an_interrupted_simulation_can_be_read(tmp_path):
    interrupted(TABLE, tmp_path / "run", after=2)
    run = Run.load(tmp_path / "run")
    assert {record.round for record in run.metrics} == {0, 1, 2}
    assert run.summary == {}


def test_a_run_that_is_interrupted_after_its_last_round_plays_no_other(tmp_path, monkeypatch):
    table = TABLE | {"learning": {"algorithm": "dpsgd", "rate": 1e-9, "stop": 1.0}}
    whole = simulate(table, baselines=False)

    def stop(*_given, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("p2pfl.simulation.engine.summarise", stop)
        with pytest.raises(KeyboardInterrupt):
            simulate(table, folder=tmp_path / "run", baselines=False)
    run = simulate(table, folder=tmp_path / "run", resume=True, baselines=False)
    assert run.metrics == whole.metrics
    assert run.summary["rounds"] == 2  # the rule is asked from the second round on


@pytest.mark.slow
@pytest.mark.parametrize("after", [None, 2], ids=["after the last round", "before"])
def test_a_run_that_has_spent_its_budget_file_can_be_resumed(tmp_path, monkeypatch, after):
    privacy = {"mode": "independent", "noise": 2.0, "clip": 1.0, "epsilon": 4.0, "budget": "budget.jsonl"}
    table = TABLE | {"rounds": 40, "privacy": privacy}

    def stop(*_given, **_more):
        raise KeyboardInterrupt

    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    whole = simulate(table, baselines=False, source=SOURCE)
    cycles = 1 + max(record.round for record in whole.metrics)
    assert 2 < cycles < 40
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    if after is None:
        with monkeypatch.context() as patch:
            patch.setattr("p2pfl.simulation.engine.summarise", stop)
            with pytest.raises(KeyboardInterrupt):
                simulate(table, folder=tmp_path / "run", baselines=False, source=SOURCE)
    else:
        interrupted(table, tmp_path / "run", after=cycles - after)
    run = simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    assert run.metrics == whole.metrics
    assert run.summary["privacy"] == whole.summary["privacy"]


def test_what_cannot_be_resumed_says_why(tmp_path):
    simulate(TABLE, folder=tmp_path / "ended", baselines=False)
    with pytest.raises(InputError, match="has no checkpoint of a simulation"):
        simulate(TABLE, folder=tmp_path / "ended", resume=True)
    with pytest.raises(InputError, match="kept in memory cannot be resumed"):
        simulate(TABLE, resume=True)
    interrupted(TABLE, tmp_path / "run", after=1)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="holds another experiment"):
        simulate(TABLE | {"rounds": 7}, folder=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    with pytest.raises(InputError, match="holds models of shape"):
        simulate(TABLE | {"topology": {"peers": 7}}, folder=tmp_path / "run", resume=True)
    (tmp_path / "run" / FILE).write_bytes(b"torn")
    with pytest.raises(InputError, match="is damaged"):
        simulate(TABLE, folder=tmp_path / "run", resume=True)


def example(round=3, **facts):
    rows = torch.arange(6.0).view(2, 3)
    state = State(rows, Public(rows), memory={"step": torch.ones(2)}, extra={"view": rows[:, 1:]})
    return SimulationCheckpoint(
        Facts(round, ended=False, stop=5, steps=7, seconds=0.5, **facts), state, torch.tensor([3, 4])
    )


def test_a_checkpoint_keeps_every_tensor_and_which_are_the_same(tmp_path):
    example(costs=((0.5, 1.0, 3),)).save(tmp_path / FILE)
    found = SimulationCheckpoint.load(tmp_path / FILE, peers=2, size=3)
    assert found.state.rows.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.state.public.rows is found.state.rows
    assert found.state.memory["step"].tolist() == [1, 1]
    assert found.state.extra["view"].tolist() == [[1, 2], [4, 5]]
    assert found.sent.tolist() == [3, 4]
    assert found.costs == {Cost(0.5): 3}
    assert (found.facts.round, found.facts.steps) == (3, 7)


@pytest.mark.parametrize("peers", [{"rows": -2}, [2]])
def test_a_checkpoint_with_impossible_facts_is_damaged(peers, tmp_path):
    example().save(tmp_path / FILE)
    with safe_open(tmp_path / FILE, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        facts = json.loads(file.metadata()["facts"])
    save_file(tensors, tmp_path / FILE, {"facts": json.dumps(facts | {"peers": peers})})
    with pytest.raises(InputError, match="is damaged"):
        SimulationCheckpoint.load(tmp_path / FILE, peers=2, size=3)


def test_checkpoints_are_written_when_a_multiple_of_their_own_time_has_passed(tmp_path, monkeypatch):
    now = [0.0]
    saved = []

    def save(self, _path):
        saved.append(self.facts.round)
        now[0] += 2.0

    monkeypatch.setattr(SimulationCheckpoint, "save", save)
    size = example().bytes
    monkeypatch.setattr(simulation_checkpoint, "SPEED", size)  # so that it should take a second
    keeper = CheckpointKeeper(tmp_path, clock=lambda: now[0])
    now[0] = PART - 0.5
    keeper.keep(example(0))
    now[0] = PART
    keeper.keep(example(1))
    now[0] += 2.0 * PART - 0.5
    keeper.keep(example(2))
    assert saved == [1]
    now[0] += 1.0
    keeper.keep(example(3))
    assert saved == [1, 3]
    with pytest.raises(KeyError), keeper:
        raise KeyError
    assert saved == [1, 3]
    keeper.keep(example(4))
    with pytest.raises(KeyError), keeper:
        raise KeyError
    assert saved == [1, 3, 4]


def test_peers_that_wait_for_nobody_keep_no_checkpoint(tmp_path):
    table = TABLE | {"learning": {"algorithm": "gossip_learning"}}
    interrupted(table, tmp_path / "run", after=1)
    assert not (tmp_path / "run" / "simulation.state").exists()
    with pytest.raises(InputError, match="gossip_learning keeps no checkpoints"):
        simulate(table, folder=tmp_path / "run", resume=True, baselines=False)
