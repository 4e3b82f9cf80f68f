"""Memory of a simulation: estimated before it starts, refused if it is too much, one sentence if it runs out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from p2pfl.cli import main
from p2pfl.core import process
from p2pfl.core.errors import InputError, RunError, is_out_of_memory
from p2pfl.core.process import FreeMemory
from p2pfl.experiment import plan, read
from p2pfl.experiment.catalogue import ALGORITHMS, STATES
from p2pfl.simulation import cohort, memory_estimate, simulate

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")

LIMITED = """
import resource, sys
from p2pfl.cli import main
resource.setrlimit(resource.RLIMIT_AS, (3_000_000 * 1024, 3_000_000 * 1024))
sys.exit(main(sys.argv[1:]))
"""
"""A command under ``ulimit -v 3000000``."""


def planned(*, peers=8, hidden=(16,), rounds=2, **more):
    table = {"rounds": rounds, "topology": {"peers": peers}, "model": {"name": "mlp", "hidden": list(hidden)}}
    return plan(read(table | {"privacy": {"mode": "none"}, "learning": {"algorithm": "dpsgd"}} | more))


def test_the_estimate_follows_from_shapes():
    small, large = (memory_estimate.estimate(planned(hidden=[width]), baselines=False) for width in (64, 640))
    models = 8 * (64 * 640 + 640 + 640 * 10 + 10) * 4
    assert large.models == int(models * memory_estimate.FEWEST_COPIES)
    assert large.models > 9 * small.models
    assert (large.records, large.edges) == (small.records, small.edges)
    longer = memory_estimate.estimate(planned(rounds=1000), baselines=False)
    assert longer.records - small.records == 8 * 998 * memory_estimate.RECORD


def test_optimisers_algorithms_masks_and_best_models_take_memory():
    usual = memory_estimate.copies(planned(), baselines=False)
    adam = memory_estimate.copies(planned(learning={"algorithm": "dpsgd", "optimizer": "adam"}), baselines=False)
    momentum = {"algorithm": "dpsgd", "options": {"momentum": 0.9}}
    assert adam - usual == pytest.approx(2 * memory_estimate.COPIES_PER_STATE)
    assert (
        memory_estimate.copies(planned(learning=momentum), baselines=False) - usual == memory_estimate.COPIES_PER_STATE
    )
    averaged = memory_estimate.copies(planned(learning={"algorithm": "fedavg"}), baselines=False)
    assert memory_estimate.copies(planned(learning={"algorithm": "scaffold"}), baselines=False) > averaged > usual
    masked = planned(learning={"algorithm": "fedavg"}, privacy={"mode": "pairwise"})
    assert memory_estimate.copies(masked, baselines=False) == averaged + memory_estimate.MASKED_COPIES


def test_personal_models_of_very_many_clients_take_the_memory_of_those_that_took_part(monkeypatch):
    monkeypatch.setattr(cohort, "MAX_LISTED", 100)

    def models(peers):
        learning = {"algorithm": "ditto", "fraction": 10 / peers}
        wanted = planned(learning=learning, topology={"kind": "complete", "peers": peers})
        return memory_estimate.estimate(wanted, baselines=False).models

    assert models(800) == models(400) < models(100) / 4  # 11 in each of two rounds


def test_models_that_an_algorithm_keeps_for_each_neighbour_take_memory():
    graph = {"topology": {"kind": "star", "peers": 5}, "learning": {"algorithm": "relay_sgd"}}
    found = memory_estimate.copies(planned(**graph), baselines=False)
    assert found == pytest.approx(memory_estimate.COPIES + 2 * 1.6 * memory_estimate.COPIES_PER_STATE)


def test_differences_take_two_models_for_each_further_graph_of_a_schedule():
    pairs = {"topology": {"kind": "base", "degree": 1, "peers": 8}}
    plain = memory_estimate.copies(planned(**pairs), baselines=False)
    assert memory_estimate.copies(planned(**pairs, compression={"name": "quantise"}), baselines=False) == plain + 4


def test_every_algorithm_with_further_states_is_in_the_catalogue():
    assert {*STATES, *memory_estimate.PER_NEIGHBOUR} <= set(ALGORITHMS.places)


@pytest.mark.parametrize("limit", ["machine", "control group", "process"])
def test_a_simulation_that_cannot_fit_is_refused_before_the_first_round(monkeypatch, tmp_path, limit):
    monkeypatch.setattr(memory_estimate, "free_memory", lambda: FreeMemory(10**6, limit))
    expected = (
        f"the simulation needs about .* of memory .* but the limit of the {limit}.* leaves 1.0 MB; simulate fewer"
    )
    with pytest.raises(InputError, match=expected) as caught:
        simulate(planned(hidden=[640]), folder=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_error_says_how_many_peers_fit(monkeypatch):
    made = planned(peers=100, learning={"algorithm": "dpsgd", "dtype": "float64"}, hidden=[640])
    needed = memory_estimate.estimate(made).further
    monkeypatch.setattr(memory_estimate, "free_memory", lambda: FreeMemory(needed // 2, "machine"))
    with pytest.raises(InputError, match=r"simulate fewer peers \(about 45 fit\) or a smaller model"):
        memory_estimate.check_memory(made)


def test_workers_share_the_machine_but_not_the_limit_of_a_process(monkeypatch):
    made = planned(hidden=[640])
    needed = memory_estimate.estimate(made, peers=4).further
    monkeypatch.setattr(memory_estimate, "free_memory", lambda: FreeMemory(needed + 1, "process"))
    memory_estimate.check_memory(made, workers=2, peers=4)
    monkeypatch.setattr(memory_estimate, "free_memory", lambda: FreeMemory(needed + 1, "machine"))
    with pytest.raises(InputError, match="the simulation needs"):
        memory_estimate.check_memory(made, workers=2, peers=4)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("can't start new thread"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)
def test_memory_that_runs_out_ends_in_one_sentence(error):
    assert is_out_of_memory(error)
    with pytest.raises(RunError, match="memory ran out: the process holds") as caught, memory_estimate.memory_errors():
        raise error
    assert "\n" not in str(caught.value)


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match="shapes differ"), memory_estimate.memory_errors():
        raise RuntimeError("shapes differ")


@LINUX
def test_a_real_allocation_that_is_too_large_is_recognised():
    with pytest.raises(RunError, match="memory ran out"), memory_estimate.memory_errors():
        torch.empty(2**46)


@LINUX
@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        ("0::/a/b\n", {"a/memory.max": "1000", "a/memory.current": "400", "a/b/memory.max": "max"}, 600),
        ("0::/a\n", {"a/memory.max": "1000", "a/memory.current": "900", "a/memory.stat": "inactive_file 50\n"}, 150),
        (
            "4:memory:/x\n",
            {"memory/x/memory.limit_in_bytes": "1000", "memory/x/memory.usage_in_bytes": "100"},
            900,
        ),
        ("4:memory:/host\n", {"memory/memory.limit_in_bytes": "80", "memory/memory.usage_in_bytes": "30"}, 50),
    ],
)
def test_the_limit_of_a_control_group_bounds_the_memory(tmp_path, monkeypatch, own, files, free):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *how: own if path == Path("/proc/self/cgroup") else read_text(path, *how)
    )
    assert process.free_memory(tmp_path) == FreeMemory(free, "control group")


@LINUX
def test_explain_states_the_memory_in_a_line(capsys):
    assert main(["explain", "digits", "--set", "topology.peers=6"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("memory ")]
    assert line.startswith("memory to simulate")
    assert line.rstrip().endswith("free")
    assert main(["explain", "digits", "--json", "--set", "topology.peers=6"]) == 0
    found = json.loads(capsys.readouterr().out)["memory"]
    parts = [found[key] for key in ("models", "edges", "records", "work", "held")]
    assert sum(parts) == found["total"]


@LINUX
@pytest.mark.slow
def test_too_many_models_under_a_limit_of_the_address_space_are_refused_in_one_line(tmp_path):
    keys = ["topology.kind=random_regular", "topology.degree=4", "topology.peers=1200", "model.hidden=[4096]"]
    keys += ["privacy.mode=none", "learning.algorithm=dpsgd", "gossip.steps=1"]
    changes = [part for key in keys for part in ("--set", key)]
    command = [sys.executable, "-c", LIMITED, "simulate", "digits", *changes, "--runs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "the limit of the process (ulimit -v) leaves" in done.stderr
    assert "--workers" in done.stderr


MEASURED = """
import json, sys
from p2pfl.experiment import plan, read
from p2pfl.core.process import peak_memory
from p2pfl.simulation import simulate
from p2pfl.simulation.memory_estimate import estimate
made = plan(read(json.loads(sys.argv[1])))
needed = estimate(made, baselines=False).total
simulate(made, baselines=False)
print(json.dumps([needed, peak_memory()]))
"""


@LINUX
@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("learning", [{"algorithm": "dpsgd", "optimizer": "adam"}, {"algorithm": "dpsgd"}, {}], ids=str)
def test_the_estimate_is_near_the_largest_memory_of_a_real_run(learning):
    table = {"rounds": 2, "topology": {"kind": "ring", "peers": 600}, "model": {"name": "mlp", "hidden": [512]}}
    table |= {"learning": {"steps": 1, "batch": 16} | learning, "privacy": {"mode": "none"}, "gossip": {"steps": 1}}
    command = [sys.executable, "-c", MEASURED, json.dumps(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    needed, measured = json.loads(done.stdout)
    assert 1 / 1.5 < needed / measured < 1.5
