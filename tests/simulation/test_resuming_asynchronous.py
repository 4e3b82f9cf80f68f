"""A simulation whose peers do not wait goes on from its checkpoint, with the models that were on their way."""

import json
from itertools import count

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from p2pfl.algorithms import gossip_learning
from p2pfl.core.errors import InputError
from p2pfl.experiment import plan, read
from p2pfl.results import Run
from p2pfl.simulation import simulate
from p2pfl.simulation.asynchronous import edges_of
from p2pfl.simulation.resuming import simulation_checkpoint
from p2pfl.simulation.resuming.simulation_checkpoint import FILE, CheckpointKeeper, SimulationCheckpoint
from sourcing import shared_source

TABLE = {
    "rounds": 5,
    "topology": {"kind": "small_world", "peers": 8},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"algorithm": "gossip_learning", "optimizer": "adam", "rate": 0.01},
}
LATE = {"loss": 0.2, "absence": 0.2, "delay": 1.5, "slow": {"share": 0.4, "pace": 2}}
CASES = {
    "late, lost and slow": {"simulation": LATE},
    "on time": {},
    "private": {
        "simulation": LATE,
        "privacy": {"mode": "independent", "epsilon": 200.0},
    },
    "schedule": {"simulation": LATE, "topology": {"kind": "one_peer_exponential", "peers": 8}},
    "few scores": {"simulation": LATE, "evaluation": {"every": 2, "peers": 3}},
}
SOURCE = shared_source()
"""Source of runs that are compared; by default each run draws private noise of its own."""

TIMES = {"start_s", "wall_s", "total_s", "training_s", "began", "folder"}


def interrupted(table, folder, *, after):
    """Simulate a table and interrupt it when so many rounds have been recorded; return whether there were as many."""
    seen = count()

    def observe(_records):
        if next(seen) == after:
            raise KeyboardInterrupt

    try:
        simulate(table, folder=folder, observe=observe, baselines=False, source=SOURCE)
    except KeyboardInterrupt:
        return True
    return False


def check_same(one, other):
    """Check that two run directories have the same files, which differ in times alone."""
    files = [
        sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()) for folder in (one, other)
    ]
    assert files[0] == files[1]
    for path in files[0]:
        assert content(one / path) == content(other / path), path


def content(path):
    """Return what a file says, without times and without the order of keys."""
    if path.suffix == ".safetensors":
        tensors, about = saved(path)
        return {name: (value.dtype, value.tolist()) for name, value in tensors.items()}, about
    if path.suffix == ".json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key not in TIMES}
    return path.read_bytes()


def saved(path):
    """Return the tensors in a file, and what it says about them."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(each, id=name, marks=[pytest.mark.slow] * (name != "late, lost and slow"))
        for name, each in CASES.items()
    ],
)
def test_a_resumed_simulation_leaves_the_directory_of_one_that_was_never_interrupted(tmp_path, changes):
    table = TABLE | changes
    whole = simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    for after in count():
        folder = tmp_path / f"run {after}"
        if not interrupted(table, folder, after=after):
            break
        assert (folder / FILE).exists()
        run = simulate(table, folder=folder, resume=True, baselines=False, source=SOURCE)
        assert run.metrics == whole.metrics == Run.load(folder).metrics
        check_same(tmp_path / "whole", folder)
    assert after >= 5


@pytest.mark.slow
def test_a_simulation_that_is_interrupted_within_a_cycle_goes_on_from_the_one_before(tmp_path, monkeypatch):
    table = TABLE | CASES["late, lost and slow"]
    simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    calls, merged = count(), gossip_learning.merge_models

    def stop(received, own):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return merged(received, own)

    with monkeypatch.context() as patch:
        patch.setattr(gossip_learning, "merge_models", stop)
        with pytest.raises(KeyboardInterrupt):
            simulate(table, folder=tmp_path / "run", baselines=False, source=SOURCE)
    assert loaded(tmp_path / "run", table).facts.round == 3
    simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    check_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_a_simulation_whose_slow_peers_have_made_all_their_cycles_plays_no_other(tmp_path, monkeypatch):
    table = TABLE | CASES["late, lost and slow"]
    simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)

    def stop(*_given, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("p2pfl.simulation.engine.summarise", stop)
        with pytest.raises(KeyboardInterrupt):
            simulate(table, folder=tmp_path / "run", baselines=False, source=SOURCE)
    left = loaded(tmp_path / "run", table).facts
    assert (left.round, left.ended) == (9, True)
    simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    check_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_a_budget_that_permits_fewer_cycles_permits_as_many_to_slow_peers_after_an_interruption(tmp_path):
    privacy = {"mode": "independent", "noise": 2.0, "clip": 1.0, "epsilon": 8.0}
    table = TABLE | {"simulation": LATE | {"absence": 0.0}, "privacy": privacy, "rounds": 40}
    whole = simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    cycles = 1 + max(record.round for record in whole.metrics)
    assert 2 < cycles < 40
    assert interrupted(table, tmp_path / "run", after=cycles)  # slow peers are the only ones that have cycles left
    assert loaded(tmp_path / "run", table).facts.round >= cycles
    simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    check_same(tmp_path / "whole", tmp_path / "run")


def test_models_on_their_way_count_as_memory_that_a_checkpoint_holds(tmp_path, monkeypatch):
    table = TABLE | CASES["late, lost and slow"]
    assert interrupted(table, tmp_path / "run", after=3)
    found = loaded(tmp_path / "run", table)
    assert found.travelling is not None
    models = found.travelling.rows
    assert len(models) > 0
    assert found.bytes >= found.state.rows.nbytes + models.nbytes
    monkeypatch.setattr(simulation_checkpoint, "HELD", 0)
    assert interrupted(table, tmp_path / "other", after=3)
    assert not (tmp_path / "other" / FILE).exists()


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("written", [0, 3])
def test_records_of_cycles_that_are_played_again_are_dropped_by_each_peers_own_count(tmp_path, monkeypatch, written):
    table = TABLE | CASES["late, lost and slow"]
    simulate(table, folder=tmp_path / "whole", baselines=False, source=SOURCE)
    monkeypatch.setattr(simulation_checkpoint, "HELD", 0)
    keep = CheckpointKeeper.keep

    def only(self, newest):
        if newest.facts.round == written:
            newest.save(self.path)
        keep(self, newest)

    monkeypatch.setattr(CheckpointKeeper, "keep", only)
    assert interrupted(table, tmp_path / "run", after=5)
    assert loaded(tmp_path / "run", table).facts.round == written
    assert max(record.round for record in Run.load(tmp_path / "run").metrics) > written
    simulate(table, folder=tmp_path / "run", resume=True, baselines=False, source=SOURCE)
    check_same(tmp_path / "whole", tmp_path / "run")


def loaded(folder, table):
    """Return the checkpoint in a folder."""
    resolved = plan(read(table))
    size, edges = resolved.learner.layout.size, edges_of(resolved.weights)
    return SimulationCheckpoint.load(folder / FILE, peers=len(resolved.topology.peers), size=size, edges=edges)


def changed(path, **tensors):
    """Write a checkpoint again with other tensors; without those that are ``None``."""
    found, about = saved(path)
    found |= {name.replace("__", "."): value for name, value in tensors.items()}
    save_file({name: value for name, value in found.items() if value is not None}, path, about)


DAMAGES = {
    "no models": {"travelling__rows": None},
    "too few models": {"travelling__rows": torch.zeros(1, 43)},
    "models of another size": {"travelling__rows": torch.zeros(0, 7)},
    "no edges": {"travelling__edge": None},
    "too few edges": {"travelling__edge": torch.zeros(1, dtype=torch.int64)},
    "edges that are none": {
        "travelling__edge": torch.full((3,), 10**6),
        "travelling__sent": torch.zeros(3, dtype=torch.int64),
    },
    "a matrix": {"travelling__newest": torch.zeros(4, 4, dtype=torch.int64)},
    "numbers of another type": {"travelling__newest": torch.zeros(32)},
    "models from the future": {"travelling__step": torch.zeros(1, dtype=torch.int64)},
}


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Return the folder of a run that was interrupted."""
    folder = tmp_path_factory.mktemp("left") / "run"
    assert interrupted(TABLE | CASES["late, lost and slow"], folder, after=3)
    return folder


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_a_sentence(left, damage):
    kept = (left / FILE).read_bytes()
    changed(left / FILE, **damage)
    with pytest.raises(InputError, match=r"is damaged \(.*\); start the simulation again$"):
        simulate(TABLE | CASES["late, lost and slow"], folder=left, resume=True)
    (left / FILE).write_bytes(kept)


def test_a_torn_checkpoint_is_refused_with_a_sentence(left):
    kept = (left / FILE).read_bytes()
    (left / FILE).write_bytes(kept[: len(kept) // 2])
    with pytest.raises(InputError, match=r"is damaged \(.*\); start the simulation again$"):
        simulate(TABLE | CASES["late, lost and slow"], folder=left, resume=True)
    (left / FILE).write_bytes(kept)


def test_the_checkpoint_of_another_experiment_is_refused_with_a_sentence(left):
    table = TABLE | CASES["late, lost and slow"]
    other = "resume the experiment that the run began with$"
    with pytest.raises(InputError, match=f"models of shape .*; {other}"):
        simulate(table | {"topology": {"kind": "small_world", "peers": 9}}, folder=left, resume=True)
    with pytest.raises(InputError, match=f"belongs to another topology; {other}"):
        simulate(table | {"topology": {"kind": "ring", "peers": 8}}, folder=left, resume=True)
    with pytest.raises(InputError, match=f"belongs to another algorithm; {other}"):
        simulate({**TABLE, "learning": {"algorithm": "dpsgd"}}, folder=left, resume=True)
    with pytest.raises(InputError, match="holds another experiment"):
        simulate(table | {"rounds": 7}, folder=left, resume=True)
