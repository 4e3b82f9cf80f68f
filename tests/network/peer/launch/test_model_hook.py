"""The command of the user runs after each new model, and never stops the peer."""

import asyncio
import os

import psutil
import pytest

from p2pfl.network.peer.launch.model_hook import ModelHook
from p2pfl.results import Record
from processes import has_ended
from waiting import wait_until


@pytest.fixture
def notices():
    return []


@pytest.fixture
def hook(notices, tmp_path, monkeypatch):
    """Return a function that makes the hook of a command, which runs in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def made(command, **options):
        return ModelHook(command, peer="ada", notify=lambda notice: notices.append(str(notice)), **options)

    return made


async def test_the_command_knows_the_model_its_round_and_its_scores(hook, tmp_path, notices):
    called = hook('echo "$P2PFL_PEER $P2PFL_ROUND $P2PFL_MODEL $P2PFL_SCORES" >> called')
    rest = {"training_loss": None, "distance": 0.0, "bytes_out": 0, "bytes_in": 0, "received": 0}
    rest |= {"seconds_training": 0.0, "seconds_waiting": 0.0}
    called.observe(Record(peer="ada", round=6, scores={"accuracy": 0.5}, **rest))
    called.offer(tmp_path / "ada.safetensors", 6)
    await called.finish()
    called.offer(tmp_path / "ada.safetensors", 7)
    called.offer(tmp_path / "ada.safetensors", 7)  # the last checkpoint is written twice
    await called.finish()
    model = tmp_path / "ada.safetensors"
    assert (tmp_path / "called").read_text() == f'ada 6 {model} {{"accuracy": 0.5}}\nada 7 {model} {{}}\n'
    assert notices == []


async def test_while_the_command_runs_only_the_newest_model_waits(hook, tmp_path):
    for round in (0, 3):
        os.mkfifo(tmp_path / f"gate{round}")
    called = hook("echo $P2PFL_ROUND >> called; read line < gate$P2PFL_ROUND")
    for round in range(4):
        called.offer(tmp_path / "ada.safetensors", round)
        if round == 0:
            await wait_until((tmp_path / "called").exists, "the command runs", every=0.01)

    def open_gate():
        for round in (0, 3):
            (tmp_path / f"gate{round}").write_text("go\n")

    await asyncio.gather(called.finish(), asyncio.to_thread(open_gate))
    assert (tmp_path / "called").read_text() == "0\n3\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("exit 3", "ended with status 3"),
        ("kill -9 $$", "ended with status -9"),
        ("no-such-program-here", "ended with status 127"),
        ("no\0thing", "could not be started (embedded null byte)"),
    ],
)
async def test_a_command_that_fails_is_a_notice(hook, tmp_path, notices, command, sentence):
    called = hook(command)
    called.offer(tmp_path / "ada.safetensors", 2)
    await called.finish()
    assert notices == [f"the command of --on-model {sentence} after round 2; this peer goes on"]


@pytest.mark.parametrize("end", ["deadline", "interrupt"])
async def test_a_command_that_hangs_is_ended_with_all_that_it_has_started(hook, tmp_path, notices, end, monkeypatch):
    timeout, timeouts = asyncio.timeout, []
    monkeypatch.setattr(asyncio, "timeout", lambda seconds: timeouts.append(timeout(seconds)) or timeouts[-1])
    called = hook("sleep 1000 & echo $! > child; wait", seconds=1000.0)
    called.offer(tmp_path / "ada.safetensors", 2)

    def started():
        return (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip()

    await wait_until(started, "the command runs", every=0.01)
    child = psutil.Process(int(started()))
    if end == "deadline":
        timeouts[-1].reschedule(asyncio.get_running_loop().time())
        await called.finish()
    else:
        await called.__aexit__(KeyboardInterrupt)
    await wait_until(lambda: has_ended(child), "it has ended")
    said = "the command of --on-model did not end within 1000 s after round 2; this peer goes on"
    assert notices == ([said] if end == "deadline" else [])
