"""``p2pfl watch`` as people call it."""

import builtins
import contextlib
import json
import re
import sys
import time

import httpx
import psutil
import pytest

from growing import PEERS, Growing, began
from p2pfl.plugins.watch.feed import Feed
from p2pfl.results.swarm.headline import headline

DEADLINE = 300.0
LONG = 300.0
"""Seconds in which a run must have got as far as a test waits for, on however busy a machine."""


@pytest.fixture
def folder(place):
    growing = Growing(place / "run")
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(3)
    (growing.folder / "summary.json").write_text('{"schema": 1}')
    return growing.folder


def test_once_prints_the_state_as_text(p2pfl, folder):
    said = p2pfl("watch", folder, "--once")
    assert said.status == 0
    first, *peers = said.out.splitlines()
    assert first == "4 peers learn in round 4 of 10; a round takes 2.0 s; median accuracy 0.610"
    assert peers[0] == "peer0: learning, 3 rounds, accuracy 0.580"


def test_once_prints_the_state_for_programs(p2pfl, folder):
    found = json.loads(p2pfl("watch", folder, "--once", "--json").out)
    assert found["stage"] == "ended"
    assert found["rounds"] == [3, 3, 3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "p2pfl: nowhere is not a run directory with experiment.toml; check the path"),
        (["run", "--json"], "p2pfl: --json prints the state once; add --once"),
        (["run", "--speed", "2"], "p2pfl: --speed is that of a replay; add --replay"),
        (["run", "--replay", "--speed", "0"], "0 is not a speed above 0 and up to 1000; give one, for example 10"),
        (["run", "--token", "nowhere"], "nowhere cannot be read"),
        (["run", "--broker", "mqtt://hub"], "--set and --broker are for a live swarm; add --name with the name of"),
        (["digits", "--name", "ops", "--replay"], "--replay is for a run directory; look at a live swarm without it"),
        (["digits", "--name", "ops"], 'transport.broker = "embedded" does not work for an observer, because its run'),
        (["digits", "--name", "a/b", "--broker", "mqtt://hub"], "'a/b' is no name of an observer; use 1 to 22 letters"),
        (
            ["digits", "--name", "ops", "--broker", "mqtt://hub"],
            "the observer ops has no identity; name the folder of its key with --set trust.keys=DIR",
        ),
        (
            ["digits", "--name", "ops", "--broker", "mqtt://hub", "--set", "trust.keys=run"],
            "ops.pem does not exist; make the key with: p2pfl identity ops --keys",
        ),
    ],
)
def test_wrong_input_is_one_sentence(p2pfl, folder, options, said):
    assert folder.name == "run"
    found = p2pfl("watch", *options)
    assert found.status == 2
    assert said in found.err
    assert found.err.count("\n") == 1


def test_without_the_extra_it_names_the_extra(p2pfl, folder, monkeypatch):
    real = builtins.__import__

    def missing(name, *given, **more):
        if name.partition(".")[0] in {"starlette", "uvicorn"}:
            raise ModuleNotFoundError(name, name="uvicorn")
        return real(name, *given, **more)

    for module in ("access", "app", "web_server"):
        monkeypatch.delitem(sys.modules, f"p2pfl.plugins.watch.{module}", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    found = p2pfl("watch", folder)
    assert found.status == 2
    assert found.err == (
        'p2pfl: the page needs the package "uvicorn", which is not installed; run pip install "p2pfl-mqtt[watch]", or '
        "print the state with --once\n"
    )
    assert p2pfl("watch", folder, "--once").status == 0


@pytest.mark.slow
def test_it_prints_its_address_and_ends_with_ctrl_c(start, folder):
    command = start("watch", folder)
    address = re.search(r"http://\S+", command.until("open http"))[0]
    assert httpx.get(address.partition("?")[0], timeout=DEADLINE, trust_env=False).status_code == 403
    with httpx.Client(timeout=DEADLINE, trust_env=False, follow_redirects=True) as client:
        assert client.get(address).status_code == 200
    command.ctrl_c()
    said = command.end()
    assert said.status == 130
    assert said.err.splitlines()[1:] == ["p2pfl: interrupted"]


@pytest.mark.slow
def test_the_peer_of_a_real_run_that_hangs_is_the_one_that_is_named(start, place):
    """Stop the process of one peer: the sentence names it, live and in the replay, and nobody else."""
    command = start(
        "run", "small.toml", "--set", "rounds=100000", "--set", "topology.peers=4", "--set", "topology.kind=ring"
    )

    def until(found):
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            with contextlib.suppress(psutil.TimeoutExpired):
                command.process.wait(0.1)
            if value := found():
                return value
        raise AssertionError("waited in vain")

    folder = until(
        lambda: next((each.parent for each in place.glob("runs/*/metrics.jsonl") if each.stat().st_size), None)
    )
    with Feed(folder) as feed:

        def said():
            feed.refresh()
            return headline(feed.swarm, now=feed.at)

        until(lambda: said() and all(peer.rounds > 1 for peer in feed.swarm.peers.values()))
        owners = [psutil.Process(int(pid)) for pid in (folder / "run.lock").read_text().split()[1:]]
        # several start within the hundredth of a second to which the system knows the time
        owners = sorted({*owners} - {command.process}, key=lambda process: (process.create_time(), process.pid))
        peers = [each for each in owners if command.process.pid in {above.pid for above in each.parents()}]
        victim = dict(zip(feed.swarm.peers, peers, strict=True))["peer2"]
        victim.suspend()
        found = until(lambda: len((now := said()).peers) == 1 and "peer0, peer1 and peer3" in now.sentence and now)
        assert found.peers == ("peer2",)
        assert found.sentence.startswith("peer2 holds up 3 peers: it has worked on round ")
        at = feed.swarm.at
        assert headline(feed.replay().swarm(at), now=at).peers == ("peer2",)
        victim.resume()
        rounds = feed.swarm.peers["peer2"].rounds
        until(lambda: said().tone == "good" and feed.swarm.peers["peer2"].rounds > rounds + 1)
        assert feed.stage == "running"
