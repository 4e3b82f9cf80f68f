"""``p2pfl simulate --workers`` and torchrun: real processes, their end, and what they leave."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch
from safetensors.torch import load_file

from p2pfl.core.errors import InputError
from p2pfl.results import Run
from ports import reserved_port
from processes import command_line

pytestmark = pytest.mark.nightly

SETTINGS = ["data.name=wine", "model.name=linear", "topology.kind=ring", "topology.peers=6", "learning.device=cpu"]
LONG = ["rounds=1000000"]
DEADLINE = 240.0
"""Seconds in which a busy machine has started all processes."""


def command(*arguments, changes=(), runs):
    """Return the command that simulates the shipped experiment with changes."""
    changed = [f"--set={each}" for each in (*SETTINGS, *changes)]
    return ["p2pfl", "simulate", "digits", *changed, "--no-baselines", "--runs", str(runs), *arguments]


def finished(*arguments, **how):
    """Run a simulation to its end; return its summary and the models of all peers."""
    launcher = how.pop("launcher", [])
    line = [sys.executable, "-m", *launcher, *command(*arguments, "--json", **how)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=DEADLINE)
    summary = json.loads(done.stdout)
    peers = [f"{summary['folder']}/peers/peer{number}.safetensors" for number in range(6)]
    return summary, [load_file(each) for each in peers]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return finished(changes=["rounds=3"], runs=tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("arguments", "launcher"),
    [
        (["--workers", "2"], []),
        ([], ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]),
    ],
    ids=["workers", "torchrun"],
)
def test_processes_end_as_one(tmp_path, whole, arguments, launcher):
    summary, models = finished(*arguments, changes=["rounds=3"], runs=tmp_path, launcher=launcher)
    assert [each["peers"] for each in summary["workers"]] == [3, 3]
    assert summary["together"] == pytest.approx(whole[0]["together"])
    for model, expected in zip(models, whole[1], strict=True):
        assert all(torch.allclose(model[name], value, atol=1e-6) for name, value in expected.items())


@pytest.mark.parametrize(
    ("arguments", "launcher"),
    [
        (["--workers", "2"], []),
        ([], ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]),
    ],
    ids=["workers", "torchrun"],
)
def test_processes_share_one_secret_key_under_a_claim(tmp_path, arguments, launcher):
    """Masks of deviation 1,000 cancel in both processes, so they have the same keys; noise differs from run to run."""
    private = ["mode=pairwise", "mask=1000.0", "noise=0.5", "clip=1.0"]
    changes = [
        "rounds=1",
        "topology.kind=complete",
        "learning.weighted=false",
        *(f"privacy.{each}" for each in private),
    ]
    found = [finished(*arguments, changes=changes, runs=tmp_path / each, launcher=launcher) for each in "ab"]
    for summary, models in found:
        assert summary["privacy"]["epsilon"] > 0
        assert all(float(value.abs().max()) < 10 for model in models for value in model.values())
    (first, *_), (second, *_) = (models for _, models in found)
    assert not any(torch.equal(first[name], value) for name, value in second.items())


def test_machines_that_torchrun_joins_end_as_one(tmp_path, whole):
    """Two agents of torchrun, each with one process, are two machines."""
    with reserved_port() as port, ThreadPoolExecutor(2) as agents:
        joined = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "p2pfl"]
        launcher = ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *joined, "-m"]
        line = [sys.executable, "-m", *launcher, *command("--json", changes=["rounds=3"], runs=tmp_path)]
        how = {"capture_output": True, "text": True, "check": True, "timeout": DEADLINE}
        ends = [agents.submit(subprocess.run, line, **how) for _ in range(2)]
    (summary,) = [json.loads(end.result().stdout) for end in ends if end.result().stdout]
    assert [each["peers"] for each in summary["workers"]] == [3, 3]
    for number, expected in enumerate(whole[1]):
        model = load_file(f"{summary['folder']}/peers/peer{number}.safetensors")
        assert all(torch.allclose(model[name], value, atol=1e-6) for name, value in expected.items())


@pytest.mark.parametrize("command", [["simulate", "digits", "--network", "wan"], ["sweep", "digits"]])
def test_commands_that_have_processes_or_a_clock_of_their_own_refuse_torchrun(tmp_path, command):
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    line = [sys.executable, "-m", *launcher, "p2pfl", *command, "--runs", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert done.returncode
    assert "does not work with torchrun" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_simulation_that_still_runs_cannot_be_resumed(running, tmp_path):
    folder = next(tmp_path.glob("*/simulation.state")).parent
    line = [sys.executable, "-m", "p2pfl", "simulate", "--resume", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert f"is in use by process {running.pid}" in done.stderr
    assert done.returncode == InputError.status


@pytest.fixture
def running(request, tmp_path):
    """Start a long run of two workers; return its process when it has a checkpoint."""
    changes = getattr(request, "param", LONG)
    line = [sys.executable, "-m", *command("--workers", "2", changes=changes, runs=tmp_path)]
    process = psutil.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"})
    end = time.monotonic() + DEADLINE
    while not list(tmp_path.glob("*/simulation.state")):
        assert time.monotonic() < end
        assert process.poll() is None
        psutil.wait_procs([process], timeout=0.2)
    yield process
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, as it should
        process.kill()
        process.wait()
    process.stderr.close()


def said(process):
    """Return the last line of standard error of a process that ends, and its status."""
    _, text = process.communicate(timeout=DEADLINE)
    return text.splitlines()[-1], process.returncode


def check_left(runs):
    """Check that the directory can be read and holds a checkpoint."""
    folder = next(runs.glob("*/simulation.state")).parent
    assert Run.load(folder).metrics
    assert not (folder / "summary.json").exists()


def test_a_worker_that_is_killed_ends_the_run_with_its_name(running, tmp_path):
    children = [each for each in running.children() if "spawn_main" in command_line(each)]
    children[0].kill()
    line, status = said(running)
    assert "worker 1 of 2 was killed by signal 9; what was recorded so far can be read" in line
    assert status == 1
    check_left(tmp_path)


def test_ctrl_c_ends_all_workers(running, tmp_path):
    children = running.children()
    running.send_signal(signal.SIGINT)
    line, status = said(running)
    assert "p2pfl: interrupted" in line
    assert "go on with p2pfl simulate --resume" in line
    assert line.endswith("--workers 2")
    assert status == 130
    check_left(tmp_path)
    _, alive = psutil.wait_procs(children, timeout=DEADLINE)
    assert not alive
