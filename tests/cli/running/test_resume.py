"""``--resume``: every process of a run is killed in the middle, and it ends as if it had not been."""

import json
import re
from collections import Counter
from contextlib import contextmanager
from functools import partial

import pytest
from safetensors.torch import load_file

from p2pfl.cli.running import view
from p2pfl.experiment import read, write
from p2pfl.network.peer.launch import swarm
from p2pfl.network.transport.broker import embedded
from p2pfl.results import Run
from p2pfl.results.lock import RUN_LOCK, own_directory
from p2pfl.simulation import simulate
from processes import command_line
from raw import Saved

LEARNING = ["rounds=8", "data.name=digits", "learning.dtype=float64", "learning.epochs=5"]
GRID = 2.0**-20 + 1e-12  # one point, and rounding


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("mode", ["none", "pairwise"])
def test_a_run_of_which_every_process_was_killed_goes_on(start, p2pfl, place, mode):
    other = ["privacy.mask=10.0"] if mode == "pairwise" else ["data.scale=true"]
    changes = [*LEARNING, f"privacy.mode={mode}", *other]
    command = start("run", "small.toml", *(f"--set={change}" for change in changes))
    command.until("round 3/")
    command.kill()
    [folder] = (place / "runs").iterdir()
    told = json.loads((folder / "model.json").read_text())
    for name in ("peer0", "peer1", "peer2"):
        assert (folder / "keys" / f"{name}.pem").stat().st_mode & 0o777 == 0o600
        kept = [folder / "peers" / f"{name}.journal", *(folder / "peers").glob(f"{name}*.state")]
        assert len(kept) > 1  # one of two, if it was killed between two renames
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    said = p2pfl("run", "--resume", folder, "--json")
    assert said.status == 0, said.err
    assert json.loads((folder / "model.json").read_text()) == told
    for name in ("peer0", "peer1", "peer2"):
        assert Saved(folder / "peers" / f"{name}.safetensors").about == told
    summary = json.loads(said.out)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert Counter((line["peer"], line["round"]) for line in lines) == Counter(
        {(f"peer{number}", round): 1 for number in range(3) for round in range(8)}
    )
    assert summary["rounds"] == 8
    whole = simulate(folder / "experiment.toml")
    assert summary["together"] == pytest.approx(whole.summary["together"])
    for name, model in whole.models.items():
        found = load_file(folder / "peers" / f"{name}.safetensors")
        assert all((found[key] - model[key]).abs().max() <= GRID for key in model)
    again = p2pfl("run", "--resume", folder, "--json")
    assert again.status == 0
    assert json.loads(again.out) == summary
    assert again.err == (
        f"the run in {folder} has ended and there is nothing to resume; leave out --resume to begin a new one\n"
    )


@pytest.mark.slow
def test_a_run_ends_with_a_killed_process_of_several_peers_and_goes_on_with_other_processes(start, p2pfl, place):
    changes = [*LEARNING, "topology.peers=5", "privacy.mode=pairwise", "privacy.mask=10.0"]
    command = start("run", "small.toml", "--workers", 2, "--no-baselines", *(f"--set={change}" for change in changes))
    command.until("round 3/")
    family = command.family()
    broker = next(each for each in family if re.search("launch.py|mosquitto|iotcore", command_line(each)))
    forked = [each for each in family[1:] if each.ppid() != command.process.pid and each.pid != broker.pid]
    assert len(forked) == 2
    forked[0].kill()
    said = command.end()
    assert said.status == 1
    assert re.search(r"peer\d: its process, with [23] peers, was ended by SIGKILL", said.err), said.err
    [folder] = (place / "runs").iterdir()
    assert said.err.endswith(f"; go on with p2pfl run --resume runs/{folder.name} --workers 2\n")
    assert "5 peers share a core" in said.err or "3 peers share a core" in said.err
    again = p2pfl("run", "--resume", folder, "--workers", 1, "--no-baselines", "--json")
    assert again.status == 0, again.err
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert Counter((line["peer"], line["round"]) for line in lines) == Counter(
        {(f"peer{number}", round): 1 for number in range(5) for round in range(8)}
    )
    for name, model in simulate(folder / "experiment.toml", baselines=False).models.items():
        found = load_file(folder / "peers" / f"{name}.safetensors")
        assert all((found[key] - model[key]).abs().max() <= GRID for key in model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run"], "the EXPERIMENT is missing"),
        (["run", "--resume", "nowhere"], "is no run directory"),
        (["run", "--resume", "old", "--set", "rounds=3"], "leave them out"),
        (["run", "small.toml", "--resume", "old", "--set", "rounds=3"], "rounds differs from"),
        (["run", "--resume", "--runs", "."], "--resume needs a run directory; name it, such as --resume old"),
        (["simulate", "small.toml", "--resume"], "name it, such as --resume runs/NAME-DATE-TIME"),
    ],
)
def test_what_cannot_be_resumed_is_one_sentence(p2pfl, place, arguments, why):
    (place / "old").mkdir()
    (place / "old" / "experiment.toml").write_text(write(read(place / "small.toml")))
    said = p2pfl(*arguments)
    assert said.status == 2
    assert why in said.err
    assert "Traceback" not in said.err


def test_a_simulation_that_has_ended_reports_its_result_and_takes_no_changes(p2pfl):
    first = p2pfl("simulate", "small.toml", "--no-baselines", "--json")
    folder = json.loads(first.out)["folder"]
    again = p2pfl("simulate", "--resume", folder, "--json")
    assert (again.status, json.loads(again.out)) == (0, json.loads(first.out))
    assert "has ended and there is nothing to resume" in again.err
    changed = p2pfl("simulate", "--resume", folder, "--set", "rounds=9")
    assert (changed.status, "leave them out" in changed.err) == (2, True)
    played = p2pfl("run", "--resume", folder)
    assert (played.status, "resume it with p2pfl simulate" in played.err) == (2, True)


def test_a_run_that_has_ended_is_no_simulation(p2pfl, place):
    with Run(read(place / "small.toml"), folder=place / "live") as run:
        run.finish({"peer": "peer1"})
    (place / "live" / RUN_LOCK).touch()
    said = p2pfl("simulate", "--resume", "live")
    assert (said.status, "resume it with p2pfl run --resume live" in said.err) == (2, True)


def test_a_peer_whose_run_has_ended_has_nothing_to_resume_and_says_how_it_ended(p2pfl, place):
    folder = place / "runs" / "small-20260101-000000-peer1"
    with Run(read(place / "small.toml"), folder=folder) as run:
        run.finish({"peer": "peer1", "scores": {"accuracy": 0.875}})
    command = ("peer", "small.toml", "--name", "peer1", "--broker", "mqtt://127.0.0.1:1", "--resume")
    said = p2pfl(*command)
    assert said.status == 0
    assert "has ended and there is nothing to resume" in said.err
    assert "peer1 has learned: accuracy 0.875" in said.err
    other = p2pfl(*command, "--set", "rounds=3")
    assert other.status == 2
    assert "rounds differs from" in other.err


@pytest.fixture
def ending(place, monkeypatch):
    """A run of peer1 that ends while somebody waits for its lock."""
    run = Run(read(place / "small.toml"), folder=place / "runs" / "small-20260101-000000-peer1")

    @contextmanager
    def ends_meanwhile(path, **_):
        run.finish({"peer": "peer1", "scores": {"accuracy": 0.875}})
        with own_directory(path) as owner:
            yield owner

    monkeypatch.setattr(swarm, "own_directory", ends_meanwhile)
    monkeypatch.setattr("p2pfl.results.lock.own_directory", ends_meanwhile)
    return run


def test_a_run_that_ends_while_its_lock_is_waited_for_is_not_played_again(ending):
    assert swarm.run(ending.experiment, folder=ending.folder, resume=True).summary == ending.summary
    assert not [*(ending.folder / "peers").iterdir()]


def test_a_peer_whose_run_ends_while_its_lock_is_waited_for_is_not_played_again(p2pfl, ending):
    said = p2pfl("peer", "small.toml", "--name", "peer1", "--broker", "mqtt://127.0.0.1:1", "--resume")
    assert said.status == 0
    assert "has ended and there is nothing to resume" in said.err
    assert not [*(ending.folder / "peers").iterdir()]


def test_what_is_no_run_of_live_peers_is_not_gone_on_with_as_one(p2pfl, place):
    assert p2pfl("simulate", "small.toml", "--no-baselines").status == 0
    [folder] = (place / "runs").iterdir()
    (folder / "summary.json").unlink()
    records = (folder / "metrics.jsonl").read_text()
    said = p2pfl("run", "--resume", folder)
    assert said.status == 2
    assert f"{folder} holds a simulation; resume it with p2pfl simulate --resume {folder}" in said.err
    (folder / "peer.lock").touch()
    said = p2pfl("run", "--resume", folder)
    assert said.status == 2
    assert "belongs to one peer; resume it with p2pfl peer EXPERIMENT --name NAME --resume" in said.err
    assert (folder / "metrics.jsonl").read_text() == records
    assert "Traceback" not in said.err


@pytest.mark.nightly
def test_a_run_that_goes_on_is_not_gone_on_with(start, p2pfl, place):
    command = start("run", "small.toml", "--set", "rounds=100000")
    command.until("round 2/")
    [folder] = (place / "runs").iterdir()
    said = p2pfl("run", "--resume", folder)
    assert said.status == 2
    assert f"{folder} is in use by process {command.process.pid}; wait until it ends" in said.err
    command.until("round ")  # it goes on
    command.ctrl_c()
    assert command.end().status == 130


@pytest.mark.slow
def test_peers_wait_for_one_that_was_killed_and_play_the_round_again_with_it(fork, place):
    masks = ("privacy.mode=pairwise", "privacy.partners=1", "rounds=60")
    options = [part for change in masks for part in ("--set", change)]
    with embedded() as broker:
        begin = partial(fork, "peer", "small.toml", "--broker", broker.url, *options, "--name")
        commands = {name: begin(name) for name in ("peer0", "peer1", "peer2")}
        commands["peer2"].until("round 3/")
        commands["peer2"].process.kill()
        for name in ("peer0", "peer1"):
            commands[name].until("until all peers are there again (transport.outage)")
        commands["peer2"] = begin("peer2", "--resume")
        for name, command in commands.items():
            said = command.end()
            assert said.status == 0, said.err
            [folder] = (place / "runs").glob(f"*-{name}")
            assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["round"] == 59


@pytest.mark.nightly
def test_a_peer_that_goes_on_is_not_gone_on_with(start, p2pfl, place):
    with embedded() as broker:
        command = start("peer", "small.toml", "--name", "peer0", "--broker", broker.url)
        command.until("waiting for peer1")
        [folder] = (place / "runs").iterdir()
        said = p2pfl("peer", "small.toml", "--name", "peer0", "--broker", broker.url, "--resume")
        assert said.status == 2
        assert f"{folder.name} is in use by process {command.process.pid}; wait until it ends" in said.err
        command.ctrl_c()
        assert command.end().status == 130
    assert folder.exists()


def test_a_simulation_is_resumed_by_its_directory(p2pfl, place, monkeypatch):
    class Stopped(view.RoundsView):
        def observe(self, records):
            super().observe(records)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(view, "RoundsView", Stopped)
        said = p2pfl("simulate", "small.toml", "--no-baselines")
    [folder] = (place / "runs").iterdir()
    assert said.status == 130
    assert f"go on with p2pfl simulate --resume runs/{folder.name}" in said.err
    said = p2pfl("simulate", "--resume", folder, "--no-baselines")
    assert said.status == 0
    assert (folder / "summary.json").exists()
    assert not (folder / "simulation.state").exists()
    said = p2pfl("simulate", "--resume", folder)
    assert said.status == 0
    assert "has ended and there is nothing to resume" in said.err


def test_what_is_no_interrupted_simulation_is_not_resumed_as_one(p2pfl, place):
    assert p2pfl("simulate", "small.toml", "--no-baselines").status == 0
    [folder] = (place / "runs").iterdir()
    (folder / "summary.json").unlink()
    assert f"{folder} has no checkpoint of a simulation" in p2pfl("simulate", "--resume", folder).err
    (folder / "run.lock").touch()
    assert f"resume it with p2pfl run --resume {folder}" in p2pfl("simulate", "--resume", folder).err
    assert "the EXPERIMENT is missing" in p2pfl("simulate").err
    said = p2pfl("simulate", "--resume", folder, "--network", "wan")
    assert said.status == 2
    assert "--network does not work with --resume" in said.err
