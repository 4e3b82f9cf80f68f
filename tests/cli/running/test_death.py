"""The power of one of three masked devices fails in the middle of a round; the others say so and keep a good model."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

import p2pfl
from p2pfl.network.transport.broker import embedded

PLANT = """
name = "plant"
seed = 7
rounds = 60
[topology]
kind = "ring"
peers = 3
[data]
name = "digits"
[learning]
device = "cpu"
epochs = 2
rate = 0.2
[privacy]
mode = "pairwise"
partners = 1
"""


def accuracy(file):
    """The accuracy of a saved model on everybody's test part."""
    plan = p2pfl.plan(p2pfl.read("plant.toml"))
    saved = load_file(file)
    row = torch.cat([saved[name].flatten() for name in plan.learner.layout.names])[None]
    return float(plan.learner.evaluate(row, peers=("peer0",))["accuracy"][0])


@pytest.fixture(scope="module", autouse=True)
def _installed():
    pytest.importorskip("sklearn")


@pytest.mark.nightly
def test_the_survivors_raise_an_alarm_and_the_dead_one_learns_later_that_it_missed_the_end(place, start, p2pfl):
    (place / "plant.toml").write_text(PLANT)
    with embedded() as broker:
        devices = [start("peer", "plant.toml", "--name", f"peer{i}", "--broker", broker.url) for i in range(3)]
        devices[0].until("round 25/60")
        devices[1].process.send_signal(signal.SIGSTOP)  # it answers nothing, with masks shared and its half not sent
        stuck = devices[0].until("waiting for peer1")
        devices[1].process.kill()
        alarm = devices[0].until("ALARM")
        said = [devices[0].end(), devices[2].end()]
        late = ("--broker", broker.url, "--resume", "--set", "transport.gather=1")
        missed = p2pfl("peer", "plant.toml", "--name", "peer1", *late)
    assert [each.status for each in said] == [0, 0], said[0].err[-1500:] + said[1].err[-1500:]
    round = int(stuck.split("round ")[1].split(",")[0])
    assert f"nothing came from peer1 in round {round}, so the masks that it shared did not cancel" in alarm
    assert "start it with --resume while the others run" in alarm
    assert "peer0.best.safetensors" in alarm
    assert missed.status == 1
    assert '"peer1" cannot resume: peer0, peer2 did not come within 1 s' in missed.err

    folder = next(place.glob("runs/plant-*peer0"))
    summary = json.loads((folder / "summary.json").read_text())
    [raised] = summary["alarms"]
    facts = {
        "peer": "peer0",
        "kind": "masks_uncancelled",
        "round": round - 1,
        "partners": ["peer1"],
        "cancelled": False,
    }
    assert {name: raised[name] for name in facts} == facts
    assert raised["deviation"] > 0
    assert summary["unsettled"]["peer0"]["masks"] == {"peer1": 1}
    assert 0 < summary["unsettled"]["peer0"]["deviation"] < 1
    kept = summary["best"]["peer0"]
    assert kept["part"] == "train"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    before = records[round - 2]
    best = accuracy(folder / kept["file"])
    assert best == records[kept["round"]]["scores"]["accuracy"]
    assert kept["loss"] < before["training_loss"]  # the peer's own training data judge the models
    assert best > before["scores"]["accuracy"] - 0.05  # four standard errors with 359 test samples
    assert records[round - 1]["scores"]["accuracy"] > before["scores"]["accuracy"] - 0.15  # the mask is sized for this
