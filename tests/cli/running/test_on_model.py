"""``p2pfl peer --on-model`` beside live peers."""

import json
import sys

import pytest
import tomli_w

import hospitals
from p2pfl.network.transport.broker import embedded, mosquitto


@pytest.mark.slow
def test_a_live_peer_exports_each_model_and_outlives_a_failing_command(place, fork):
    pytest.importorskip("onnx")
    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    hospitals.write(place)
    (place / "wards.toml").write_text(tomli_w.dumps(hospitals.experiment(place, rounds=3)))
    onnx = (
        f'{sys.executable} -m p2pfl export "$P2PFL_MODEL" --to onnx --out latest.onnx && echo $P2PFL_ROUND >> exported'
    )
    hooks = {"peer0": ["--on-model", onnx], "peer1": ["--on-model", "exit 5"], "peer2": []}
    with embedded(kind="mosquitto") as broker:
        peers = {
            name: fork("peer", "wards.toml", "--name", name, "--broker", broker.url, "--no-baselines", *more)
            for name, more in hooks.items()
        }
        said = {name: each.end() for name, each in peers.items()}
    assert {name: each.status for name, each in said.items()} == dict.fromkeys(hooks, 0)
    assert "the command of --on-model ended with status 5 after round 2; this peer goes on" in said["peer1"].err
    assert (place / "latest.onnx").stat().st_size > 100
    assert (place / "exported").read_text().split()[-1] == "2"
    run = next((place / "runs").glob("*peer1"))
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [each for each in events if "HookFailed" in json.dumps(each) or "hook_failed" in json.dumps(each)]
