"""Forgetting in runs that start from the model of an earlier one, which a peer that joins late was not in."""

import json
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from safetensors.torch import load_file

import p2pfl
from p2pfl.cli import main
from p2pfl.core.errors import InputError
from p2pfl.experiment import read
from p2pfl.plugins.evidence.starting_model import check_start
from p2pfl.privacy.keys import Identity

EARLIER = {
    "name": "earlier",
    "rounds": 3,
    "topology": {"kind": "complete", "peers": 3},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folder with a key, in which commands run."""
    monkeypatch.chdir(tmp_path)
    Identity(bytes(range(32))).save(tmp_path / "officer.pem")
    return tmp_path


def simulated(home, experiment, **sections):
    """Simulate an experiment by the command, and return its run directory."""
    name = experiment["name"]
    (home / f"{name}.toml").write_bytes(tomli_w.dumps(experiment | sections).encode())
    assert main(["simulate", f"{name}.toml", "--no-baselines"]) == 0
    return max((home / "runs").glob(f"{name}-*"), key=lambda path: path.stat().st_mtime_ns)


def joined(home, start, **sections):
    """Simulate the run of four peers that starts from a model of three."""
    model = EARLIER["model"] | {"pretrained": str(start)}
    later = {"name": "later", "rounds": 2, "model": model, "topology": {"kind": "complete", "peers": 4}}
    return simulated(home, EARLIER | later, **sections)


def forgotten(home, old, *arguments):
    """Forget, and return the directory of the replay and its certificate."""
    assert main(["forget", str(old), *arguments, "--key", "officer.pem"]) == 0
    folder = max((home / "runs").glob("*-without"), key=lambda path: path.stat().st_mtime_ns)
    return folder, json.loads((folder / "forgotten.json").read_text())


def same_models(folder, models):
    """Return whether the models in a run directory are these, to the bit."""
    files = {path.stem: load_file(path) for path in (folder / "peers").glob("*.safetensors")}
    return files.keys() == models.keys() and all(
        np.array_equal(files[peer][name], values)
        for peer, tensors in models.items()
        for name, values in tensors.items()
    )


def test_a_peer_that_joined_late_is_forgotten_by_a_replay_of_the_rounds_since_then(home):
    earlier = simulated(home, EARLIER)
    start = earlier / "peers" / "peer0.safetensors"
    old = joined(home, start)
    never = read(old / "experiment.toml", changes=['learning.without=["peer3"]'])
    folder, certificate = forgotten(home, old, "--peer", "peer3")
    assert same_models(folder, p2pfl.simulate(never, baselines=False).models)
    assert (certificate["rounds"], certificate["undone"]) == (2, [])
    assert len(certificate["start"]) == 64
    assert start.exists()  # it never had the peer
    assert not [*(old / "peers").glob("*.safetensors")]


@pytest.mark.slow
def test_a_peer_of_the_earlier_run_is_forgotten_there_first(home, capsys):
    earlier = simulated(home, EARLIER)
    old = joined(home, earlier / "peers" / "peer0.safetensors")
    assert main(["forget", str(old), "--peer", "peer2"]) == 2
    assert "which has learned from peer2; forget peer2 in" in capsys.readouterr().err
    first, _ = forgotten(home, earlier, "--peer", "peer2")  # which deletes the model that the later run started from
    assert main(["forget", str(old), "--peer", "peer2"]) == 2
    assert "name a model of that replay with --start" in capsys.readouterr().err
    start = first / "peers" / "peer0.safetensors"
    never = read(old / "experiment.toml", changes=['learning.without=["peer2"]', f'model.pretrained="{start}"'])
    folder, certificate = forgotten(home, old, "--peer", "peer2", "--start", str(start))
    assert same_models(folder, p2pfl.simulate(never, baselines=False).models)
    assert certificate["experiment_before"] == ""
    assert certificate["undone"] == [
        "the model with which the old run started is gone, so nobody can tell the digest of its settings"
    ]


@pytest.mark.slow
def test_people_of_the_earlier_run_are_forgotten_there_first(home, capsys):
    for number in range(4):
        rng = np.random.default_rng(number)
        lines = [f"{number}-{row},{rng.integers(20, 80)},{rng.choice(['no', 'yes'])}" for row in range(40)]
        (home / f"peer{number}.csv").write_text("\n".join(["id,age,ill", *lines]))
        (home / f"gone-peer{number}.txt").write_text("")
    (home / "gone-peer1.txt").write_text("\n".join(f"1-{row}" for row in range(6)))
    options = {"path": "{peer}.csv", "target": "ill", "key": "id", "columns": {"age": "number", "ill": ["no", "yes"]}}
    tables = {"data": {"name": "table", "options": options}}
    earlier = simulated(home, EARLIER, **tables)
    old = joined(home, earlier / "peers" / "peer0.safetensors", **tables)
    people = ["--rows", "gone-{peer}.txt"]
    assert main(["forget", str(old), *people]) == 2
    assert "may have learned from 6 of the people who leave peer1" in capsys.readouterr().err
    first, _ = forgotten(home, earlier, *people, "--keep")
    start = first / "peers" / "peer0.safetensors"
    _, certificate = forgotten(home, old, *people, "--start", str(start))
    assert certificate["undone"] == []


def test_a_certificate_says_of_a_model_without_a_run_that_nobody_knows_its_data(home):
    earlier = simulated(home, EARLIER)
    start = Path("start.safetensors")
    start.write_bytes((earlier / "peers" / "peer0.safetensors").read_bytes())
    _, certificate = forgotten(home, joined(home, start), "--peer", "peer2")
    (sentence,) = certificate["undone"]
    assert sentence == "nobody has shown that start.safetensors, from which both runs start, never had these data"


@pytest.mark.slow
def test_live_peers_forget_one_that_joined_late_by_the_rounds_since_then(home):
    def live(experiment, *changes):
        (home / "live.toml").write_bytes(tomli_w.dumps(experiment).encode())
        assert main(["run", "live.toml", "--no-baselines", *changes]) == 0
        return max((home / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    start = live(EARLIER) / "peers" / "peer0.safetensors"
    model = EARLIER["model"] | {"pretrained": str(start)}
    later = EARLIER | {"name": "later", "rounds": 2, "model": model, "topology": {"kind": "complete", "peers": 4}}
    old, new = live(later), live(later, "--set", 'learning.without=["peer3"]')
    assert main(["forget", str(old), "--replayed", str(new), "--key", "officer.pem"]) == 0
    certificate = json.loads((new / "forgotten.json").read_text())
    assert (certificate["peers"], certificate["rounds"], certificate["undone"]) == (["peer3"], 2, [])
    never = p2pfl.simulate(read(new / "experiment.toml"), baselines=False).models
    for peer, tensors in never.items():
        made = load_file(new / "peers" / f"{peer}.safetensors")
        assert all(np.allclose(made[name], values, atol=1e-6) for name, values in tensors.items())


@pytest.mark.slow
def test_a_run_that_goes_on_from_the_models_of_each_peer_is_forgotten_after_the_former_one(home, capsys):
    earlier = simulated(home, EARLIER | {"topology": {"kind": "ring", "peers": 4}})
    assert main(["next", str(earlier), "--set", "rounds=2", "--set", 'name="later"', "--no-baselines"]) == 0
    old = max((home / "runs").glob("later-*"), key=lambda path: path.stat().st_mtime_ns)
    assert main(["forget", str(old), "--peer", "peer2"]) == 2
    assert "which has learned from peer2; forget peer2 in" in capsys.readouterr().err
    first, _ = forgotten(home, earlier, "--peer", "peer2")
    assert main(["forget", str(old), "--peer", "peer2"]) == 2
    assert "name a model of that replay with --start" in capsys.readouterr().err
    start = first / "peers" / "{peer}.safetensors"
    never = read(old / "experiment.toml", changes=['learning.without=["peer2"]', f'model.pretrained="{start}"'])
    folder, certificate = forgotten(home, old, "--peer", "peer2", "--start", str(start))
    assert same_models(folder, p2pfl.simulate(never, baselines=False).models)
    assert len(certificate["start"]) == 64


@pytest.mark.parametrize("model", ["peer0", "{peer}"])
def test_a_run_that_would_begin_with_its_own_models_is_not_replayed(tmp_path, model):
    file = tmp_path / "experiment.toml"
    file.write_text(f'[model]\npretrained = "{tmp_path}/peers/{model}.safetensors"\n')
    with pytest.raises(InputError, match="begins with its own models"):
        check_start(read(file), peers=["stranger"], people={})
