"""``p2pfl watch`` as people call it."""

import builtins
import json
import re
import sys

import httpx
import pytest

from growing import PEERS, Growing, began

DEADLINE = 60.0


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

    for module in ("access", "app", "serving"):
        monkeypatch.delitem(sys.modules, f"p2pfl.watch.{module}", raising=False)
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
