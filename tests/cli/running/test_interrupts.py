"""However a command ends, it ends soon, says why, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import version

import pytest

from p2pfl.cli.interrupts import terminate
from p2pfl.results import Run
from processes import command_line
from raw import Saved

pytestmark = pytest.mark.slow

DEADLINE = 300.0
"""Seconds in which a process must have ended."""

SOON = 25.0
"""Seconds that Ctrl-C may take, on a busy machine too: less than any timeout of a run."""

LONG = ("--set", "rounds=100000", "--set", "data.name=synthetic", "--set", "data.options={alpha=1.0, beta=1.0}")


def running(start, *more):
    """A run whose peers are learning, and all of its processes."""
    command = start("run", "small.toml", *LONG, *more)
    command.until("round 2/")
    family = command.family()
    assert sum("multiprocessing.forkserver" in command_line(process) for process in family) == 4
    return command, family


STOPS = {
    "SIGINT": (lambda it: it.ctrl_c(), 130, "interrupted"),
    "SIGTERM": (lambda it: it.process.terminate(), -signal.SIGTERM, "terminated"),
    "SIGTERM to peers as well": (
        lambda it: os.killpg(it.process.pid, signal.SIGTERM),
        -signal.SIGTERM,
        "terminated",
    ),
}


@pytest.fixture(params=STOPS.values(), ids=STOPS)
def stopping(request):
    """Ways to stop a command, the exit status of each, and what is said."""
    return request.param


@pytest.mark.sampled(fast=0, all=1)
def test_an_interrupted_run_ends_soon_and_leaves_a_directory_to_read_and_no_process(
    start, p2pfl, place, gone, stopping
):
    stop, status, word = stopping
    command, family = running(start)
    begun = time.monotonic()
    stop(command)
    assert gone(family)
    assert time.monotonic() - begun < SOON
    said = command.end()
    assert said.status == status
    [folder] = (place / "runs").iterdir()
    place = f"runs/{folder.name}"
    again = f"go on with p2pfl run --resume {place}"
    assert said.err.splitlines()[-1] == f"p2pfl: {word}; what was written is in {place}; {again}"
    assert "Traceback" not in said.err
    report = p2pfl("report", folder)
    assert report.status == 0
    assert "there is no summary" in report.out
    assert len(Run.load(folder).metrics) >= 6


def test_a_run_that_is_interrupted_while_it_starts_leaves_nothing_behind(start, gone):
    command = start("run", "small.toml", *LONG)
    while not any("forkserver" in command_line(process) for process in command.family()):
        assert command.process.is_running()
    family = command.family()
    command.ctrl_c()
    assert gone(family)
    said = command.end()
    assert said.status == 130
    assert "Traceback" not in said.err


@pytest.mark.fast
def test_an_interrupt_while_python_executes_a_string_ends_with_the_status_of_any_other(tmp_path):
    interrupted = """
        import p2pfl.cli
        def main():
            try:
                exec("raise KeyboardInterrupt")
            except KeyboardInterrupt:
                return 130
        p2pfl.cli.main = main
    """
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(interrupted))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-m", "p2pfl"], env=os.environ | {"PYTHONPATH": path}, check=False)
    assert done.returncode == 130


def test_a_peer_that_is_killed_ends_the_run_with_its_name_and_a_remedy(start, place, gone):
    command, family = running(start)
    victim = next(process for process in family[1:] if process.ppid() != command.process.pid)  # forked by the server
    victim.kill()
    said = command.end()
    assert said.status == 1
    last = said.err.splitlines()[-1]
    assert last.startswith("p2pfl: peer")
    assert "its process was ended by SIGKILL; the system may have run out of memory" in last
    [folder] = (place / "runs").iterdir()
    assert last.endswith(f"go on with p2pfl run --resume runs/{folder.name}")
    assert gone(family)


@pytest.mark.nightly
def test_a_killed_run_leaves_no_peer_and_no_broker(start, gone):
    command, family = running(start)
    command.process.kill()
    assert gone(family)


def test_a_broker_that_dies_ends_the_run_with_the_reason(start, gone):
    command, family = running(start)
    next(each for each in family if re.search("launch.py|mosquitto", command_line(each))).kill()
    said = command.end()
    assert said.status == 1
    assert " is lost (" in said.err.splitlines()[-1]
    assert gone(family)


@pytest.mark.sampled(fast=0, all=1)
def test_an_interrupted_simulation_leaves_a_directory_to_read(start, p2pfl, place, gone, stopping):
    stop, status, _ = stopping
    command = start("simulate", "small.toml", *LONG)
    command.until("round 2/")
    stop(command)
    assert gone([command.process])
    assert command.end().status == status
    [folder] = (place / "runs").iterdir()
    assert p2pfl("report", folder).status == 0


def test_a_terminated_peer_ends_by_the_signal_and_goes_on_from_its_checkpoint(start, fork, place):
    broker = start("broker", "--port", 0)
    url = broker.until("listens at").split(" at ")[1].split()[0]
    options = ("--broker", url, "--set", "topology.peers=2", *LONG)
    peers = [start("peer", "small.toml", "--name", name, *options) for name in ("peer0", "peer1")]
    for peer in peers:
        peer.until("round 2/")
    for peer in peers:
        peer.process.terminate()
    for name, peer in zip(("peer0", "peer1"), peers, strict=True):
        said = peer.end()
        assert said.status == -signal.SIGTERM
        [folder] = (place / "runs").glob(f"*-{name}")
        assert (
            said.err.splitlines()[-1]
            == f"p2pfl: terminated; what was written is in runs/{folder.name}; go on with --resume"
        )
        assert (folder / "peers" / f"{name}.state").exists()
    again = [fork("peer", "small.toml", "--name", name, *options, "--resume") for name in ("peer0", "peer1")]
    for peer in again:
        assert int(peer.until("round ").split("round ")[1].split("/")[0]) > 1
    assert len([*(place / "runs").iterdir()]) == 2


def test_a_thread_that_cannot_be_interrupted_does_not_keep_a_terminated_process_alive():
    code = (
        "import asyncio, threading\n"
        "from p2pfl.cli.interrupts import run_until_interrupted\n"
        "def train(): print('training', flush=True); threading.Event().wait()\n"
        "run_until_interrupted(asyncio.to_thread(train))\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "training\n"
        process.terminate()
        assert process.wait(DEADLINE) == -signal.SIGTERM


def test_a_process_that_its_own_signal_does_not_end_exits_with_the_status_of_shells(monkeypatch):
    monkeypatch.setattr("os.kill", lambda *_: None)  # as for process 1 of a container
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert terminate() == 143
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_broker_ends_with_ctrl_c_and_a_peer_without_neighbours_too(start, fork, place, gone):
    broker = start("broker", "--port", 0)
    url = broker.until("listens at").split(" at ")[1].split()[0]
    peer = start("peer", "small.toml", "--name", "peer1", "--broker", url)
    assert "peer0, peer2" in peer.until("waiting for")
    twin = fork("peer", "small.toml", "--name", "peer1", "--broker", url)
    said = twin.end()
    assert said.status == 2
    assert said.err.splitlines()[-1].endswith("stop the other peer or choose another --name")
    assert len([*(place / "runs").iterdir()]) == 1  # the twin has left nothing
    family = [*broker.family(), *peer.family()]
    peer.ctrl_c()
    broker.ctrl_c()
    assert gone(family)
    assert peer.end().status == 130
    assert broker.end().status == 0


def test_two_peers_that_meet_learn_together(start, fork, place):
    broker = start("broker", "--port", 0)
    url = broker.until("listens at").split(" at ")[1].split()[0]
    options = ("--broker", url, "--set", "topology.peers=2", "--set", "data.scale=true", "--json")
    peers = [fork("peer", "small.toml", "--name", name, *options) for name in ("peer0", "peer1")]
    for name, peer in zip(("peer0", "peer1"), peers, strict=True):
        said = peer.end()
        assert said.status == 0, said.err
        summary = json.loads(said.out)
        assert summary["peer"] == name
        assert summary["scores"]["accuracy"] > 0.5
        assert (summary["seed"], summary["algorithm"], summary["split"]) == (0, "fedavg", "iid")
        assert summary["versions"]["p2pfl"] == version("p2pfl-mqtt")
        assert summary["began"].endswith("+00:00")
        folder = place / summary["folder"]
        told = json.loads((folder / "model.json").read_text())
        assert Saved(folder / "peers" / f"{name}.safetensors").about == told
        assert told["inputs"]["columns"][0]["name"] == "alcohol"
    broker.process.send_signal(signal.SIGTERM)
    assert broker.end().status == 0
