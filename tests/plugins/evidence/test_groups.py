"""Groups of peers that train models apart (SISA): a peer is forgotten by a replay of its group alone."""

import csv
import shutil

import numpy as np
import pytest
import tomli_w

import hospitals
import p2pfl
from p2pfl.cli import main
from p2pfl.experiment import read
from p2pfl.privacy.keys import Identity
from p2pfl.results.models import Predictor

PEERS = tuple(f"peer{number}" for number in range(6))
GROUPS = (("peer0", "peer4"), ("peer1", "peer2", "peer5"), ("peer3",))
NEW = "peer0.csv"
COLUMNS = {name: column for name, column in hospitals.COLUMNS.items() if name != "weight"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Folder with the tables of six hospitals and a key, in which commands run."""
    monkeypatch.chdir(tmp_path)
    hospitals.write(tmp_path)
    for number in range(3):
        shutil.copy(tmp_path / f"peer{number}.csv", tmp_path / f"peer{number + 3}.csv")
    Identity(bytes(range(32))).save(tmp_path / "officer.pem")
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "outcome", "columns": COLUMNS}
    experiment = hospitals.experiment(
        tmp_path,
        topology={"kind": "complete", "peers": list(PEERS)},
        data={"name": "table", "options": options},
        learning={"device": "cpu", "rate": 1e-3},
        rounds=2,
    )
    (tmp_path / "ward.toml").write_bytes(tomli_w.dumps(experiment | {"name": "ward"}).encode())
    return tmp_path


def outside(group, *left):
    """Return the change by which a run is that of a group, without those who left."""
    return f"learning.without={[peer for peer in PEERS if peer not in group or peer in left]}".replace("'", '"')


def trained(home, group):
    """Simulate the run of a group by the command; return a model of it."""
    assert main(["simulate", "ward.toml", "--no-baselines", "--set", outside(group)]) == 0
    folder = max((home / "runs").glob("ward-*"), key=lambda path: path.stat().st_mtime_ns)
    return folder / "peers" / f"{group[0]}.safetensors"


def predicted(home, models):
    """Return the probabilities of the second class that the command writes for the mean of models."""
    first, *others = map(str, models)
    averages = [argument for model in others for argument in ("--average", model)]
    assert main(["predict", first, NEW, "--out", "out.csv", *averages]) == 0
    with (home / "out.csv").open() as file:
        return np.array([float(row["probability of ill"]) for row in csv.DictReader(file)])


@pytest.mark.slow
def test_a_peer_leaves_its_group_and_the_predictions_are_those_of_groups_that_never_had_it(home):
    models = [trained(home, group) for group in GROUPS]
    mean = predicted(home, models)
    single = [Predictor.load(model).predict(home / NEW).values[:, 1] for model in models]
    assert np.allclose(mean, np.mean(single, axis=0), atol=1e-7)
    kept = [models[0].read_bytes(), models[2].read_bytes()]
    assert main(["forget", str(models[1].parent.parent), "--peer", "peer5", "--key", "officer.pem"]) == 0
    (replay,) = (home / "runs").glob("*-without")
    assert [models[0].read_bytes(), models[2].read_bytes()] == kept  # nobody played them again
    assert {path.stem for path in (replay / "peers").glob("*.safetensors")} == {"peer1", "peer2"}
    models[1] = replay / "peers" / "peer1.safetensors"
    folder = home / "never"
    for number, group in enumerate(GROUPS):
        never = read("ward.toml", changes=[outside(group, "peer5")])
        p2pfl.simulate(never, folder=folder / str(number), baselines=False)
    expected = [folder / str(number) / "peers" / f"{group[0]}.safetensors" for number, group in enumerate(GROUPS)]
    assert np.array_equal(predicted(home, models), predicted(home, expected))


@pytest.mark.slow
def test_groups_score_together(home, capsys):
    first, *others = (str(trained(home, group)) for group in GROUPS)
    averages = [argument for model in others for argument in ("--average", model)]
    capsys.readouterr()
    assert main(["evaluate", first, NEW, *averages]) == 0
    assert "auc" in capsys.readouterr().out.lower()


def test_models_of_other_columns_have_no_mean(home, capsys):
    model = trained(home, GROUPS[0])
    columns = {"age": "integer", "outcome": ["well", "ill"]}
    options = {"path": str(home / "{peer}.csv"), "target": "outcome", "columns": columns}
    narrow = hospitals.experiment(home, data={"name": "table", "options": options})
    p2pfl.simulate(read(narrow), folder=home / "narrow", baselines=False)
    assert main(["predict", str(model), NEW, "--average", str(home / "narrow" / "peers" / "peer0.safetensors")]) == 2
    assert "so their predictions have no mean" in capsys.readouterr().err
