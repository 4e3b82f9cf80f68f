"""Membership of those who left: the models that had them tell them from test samples, the replay does not."""

import json
import shutil

import numpy as np
import pytest
import tomli_w

from p2pfl.cli import main

LEAVING = 40


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Directories of a run that learns labels by heart, and of its replay without some people and a peer."""
    monkeypatch.chdir(tmp_path)
    columns = {f"x{number}": "number" for number in range(8)} | {"ill": ["no", "yes"]}
    for number in range(3):
        rng = np.random.default_rng(number)
        lines = [
            f"{number}-{row},{','.join(f'{value:.3f}' for value in rng.normal(size=8))},{rng.choice(['no', 'yes'])}"
            for row in range(100)
        ]
        (tmp_path / f"peer{number}.csv").write_text("\n".join([f"id,{','.join(columns)}", *lines]))
        (tmp_path / f"gone-peer{number}.txt").write_text("")
    (tmp_path / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(LEAVING)))
    experiment = {
        "name": "heart",
        "rounds": 40,
        "topology": {"kind": "complete", "peers": 3},
        "data": {
            "name": "table",
            "test": 0.4,
            "options": {"path": "{peer}.csv", "target": "ill", "key": "id", "columns": columns},
        },
        "model": {"name": "mlp", "hidden": [256]},
        "learning": {"device": "cpu", "epochs": 5, "optimizer": "adam", "rate": 0.01},
    }
    (tmp_path / "heart.toml").write_bytes(tomli_w.dumps(experiment).encode())
    assert main(["simulate", "heart.toml", "--no-baselines"]) == 0
    (old,) = (tmp_path / "runs").glob("heart-*")
    assert main(["forget", str(old), "--rows", "gone-{peer}.txt", "--peer", "peer2", "--keep"]) == 0
    (replay,) = (tmp_path / "runs").glob("heart-*-without")
    return old, replay


@pytest.mark.slow
def test_the_models_of_the_old_run_tell_members_and_those_of_the_replay_do_not(runs, capsys):
    old, replay = runs
    capsys.readouterr()
    assert main(["audit", str(replay), "--forgotten", "--json"]) == 0
    after = {each["owner"]: each for each in json.loads(capsys.readouterr().out)["forgotten"]}
    assert sorted(after) == ["peer1", "peer2"]
    assert 15 <= after["peer1"]["left"] <= LEAVING
    assert after["peer2"]["left"] == 60
    assert all(abs(each["auc"] - 0.5) < 2.5 * each["error"] for each in after.values())
    for peer in ("peer0", "peer1"):
        shutil.copy(old / "peers" / f"{peer}.safetensors", replay / "peers")
    assert main(["audit", str(replay), "--forgotten", "--json"]) == 0
    before = {each["owner"]: each for each in json.loads(capsys.readouterr().out)["forgotten"]}
    assert before["peer2"]["auc"] - 0.5 > 3 * before["peer2"]["error"]
    assert before["peer1"]["auc"] > after["peer1"]["auc"] + 0.1


@pytest.mark.slow
def test_a_run_that_nobody_has_left_is_refused(runs, capsys):
    old, _ = runs
    assert main(["audit", str(old), "--forgotten"]) == 2
    assert "nobody has left" in capsys.readouterr().err
