"""``model.json`` and the metadata of a saved model say all that it takes to use it on raw features."""

import csv
import datetime as dt
import importlib
import json
import math

import numpy as np
import pytest
import torch
from sklearn import datasets

import hospitals
from p2pfl.data import federate
from p2pfl.data.loader import SOURCES
from p2pfl.data.pictures import read_idx
from p2pfl.experiment import read
from p2pfl.network.virtual.forecast import forecast, network
from p2pfl.results.models import Predictor
from p2pfl.simulation import simulate
from raw import Saved

EXACT = 1e-6
"""Single precision; accuracies are compared exactly."""


def experiment(name, **changes):
    table = {
        "name": "test",
        "rounds": 3,
        "topology": {"kind": "complete", "peers": 2},
        "data": {"name": name} | changes.pop("data", {}),
        "model": {"name": "linear"},
        "privacy": {"mode": "none"},
    }
    return read(table | changes)


def simulated(wanted, folder):
    """The run of an experiment, and one peer's model as it was saved."""
    run = simulate(wanted, folder=folder, baselines=False)
    saved = Saved(folder / "peers" / "peer0.safetensors")
    assert saved.about == json.loads((folder / "model.json").read_text())
    assert saved.metadata["peer"] == "peer0"
    return run.summary["per_peer"]["peer0"]["together"], saved


def held_out(wanted):
    """Positions of the test part in the raw data."""
    data = wanted.data
    names = ["peer0", "peer1"]
    return federate(data.name, peers=names, seed=wanted.seed, options=data.options).test["peer0"]


def patients(path, *, target):
    """Write a table with columns of numbers far from zero, text and missing cells; return its rows as text."""
    rng = np.random.default_rng(5)
    age, weight = rng.normal(60, 12, 160), rng.normal(80_000, 9_000, 160)
    sex, ward = rng.choice(["f", "m"], 160), rng.choice(["east", "north", "west"], 160)
    risk = (age - 60) / 12 - (weight - 80_000) / 9_000 + 2.0 * (ward == "west") + rng.normal(0, 0.3, 160)
    last = [f"{1_000 + 250 * each:.2f}" for each in risk] if target == "days" else np.where(risk > 0.5, "ill", "well")
    rows = [list(row) for row in zip(map("{:.1f}".format, age), sex, map("{:.0f}".format, weight), ward, strict=True)]
    for place in rng.choice(160 * 4, 60, replace=False):
        rows[place // 4][place % 4] = ("?", "", " NaN ", "n/a")[place // 4 % 4]
    for row in rows[::3]:
        row[1] = f" {row[1]} "
    with path.open("w", newline="") as file:
        body = [[*row, cell] for row, cell in zip(rows, last, strict=True)]
        csv.writer(file).writerows([["age", "sex", "weight", "ward", target], *body])
    return rows, list(map(str, last))


@pytest.mark.parametrize("scale", [False, True])
def test_a_model_of_a_csv_file_scores_the_same_on_its_raw_cells(tmp_path, scale):
    rows, labels = patients(tmp_path / "patients.csv", target="outcome")
    options = {"path": str(tmp_path / "patients.csv"), "target": "outcome"}
    wanted = experiment("csv", data={"options": options, "scale": scale}, rounds=10)
    together, saved = simulated(wanted, tmp_path / "run")
    test = held_out(wanted)
    assert saved.accuracy([rows[i] for i in test], [labels[i] for i in test]) == together > 0.7
    assert [column["name"] for column in saved.about["inputs"]["columns"]] == ["age", "sex", "weight", "ward"]
    assert [column["levels"] for column in saved.about["inputs"]["columns"]] == [
        None,
        ["f", "m"],
        None,
        ["east", "north", "west"],
    ]
    assert saved.about["inputs"]["cells"] == {"missing": ["", "?", "n/a", "na", "nan", "null"], "stripped": True}
    assert saved.about["outputs"]["class_names"] == ["ill", "well"]
    assert saved.about["outputs"]["target"] == "outcome"


def test_the_file_has_all_rules_for_cells(tmp_path):
    hospitals.write(tmp_path)
    columns = hospitals.COLUMNS | {"stage": {"levels": [1, 2], "unknown": 2}}
    for peer in hospitals.PEERS:
        lines = (tmp_path / f"{peer}.csv").read_text().splitlines()
        stages = ["stage", *(str(1 + place % 2) for place in range(len(lines) - 1))]
        text = "".join(f"{line},{stage}\n" for line, stage in zip(lines, stages, strict=True))
        (tmp_path / f"{peer}.csv").write_text(text)
    table = hospitals.experiment(tmp_path)
    table["data"]["options"]["columns"] = columns
    simulate(read(table), folder=tmp_path / "run", baselines=False)
    (tmp_path / "new.csv").write_text(
        "age,sex,stage,ward,weight\n61,f,1.0,south,\n44,m, 2 ,,70000\n30,m,9,west,90000\n"
    )
    file = tmp_path / "run" / "peers" / "peer0.safetensors"
    saved, rows = Saved(file), [line.split(",") for line in (tmp_path / "new.csv").read_text().splitlines()[1:]]
    encoded = [
        [61, 1, 0, 1, 0, 0, 0, 0, 1, 80_000],
        [44, 0, 1, 0, 1, 1, 0, 0, 0, 70_000],
        [30, 0, 1, 0, 1, 0, 0, 1, 0, 90_000],
    ]
    mean, deviation = (torch.tensor(saved.about["inputs"][name], dtype=torch.float64) for name in ("mean", "deviation"))
    assert torch.equal(saved.inputs(rows), ((torch.tensor(encoded) - mean) / deviation).float())
    assert saved.accuracy(rows, Predictor.load(file).predict(tmp_path / "new.csv").labels) == 1
    with pytest.raises(ValueError, match="not in list"):
        saved.inputs([["61", "x", "1", "west", "1"]])


@pytest.mark.parametrize("scale", [False, True])
def test_a_regression_on_a_csv_file_answers_in_the_unit_of_the_target(tmp_path, scale):
    rows, days = patients(tmp_path / "patients.csv", target="days")
    options = {"path": str(tmp_path / "patients.csv"), "target": "days"}
    wanted = experiment("csv", data={"options": options, "scale": scale}, rounds=10)
    together, saved = simulated(wanted, tmp_path / "run")
    test = held_out(wanted)
    found = saved.r2([rows[i] for i in test], [float(days[i]) for i in test])
    assert found == pytest.approx(together, abs=EXACT)
    assert found > 0.7
    assert saved.about["task"] == "regression"


@pytest.mark.sampled(fast=4)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "digits"])
def test_a_model_of_a_bundled_set_scores_the_same_on_its_raw_features(tmp_path, name, scale):
    wanted = experiment(name, data={"scale": scale})
    together, saved = simulated(wanted, tmp_path / "run")
    raw = {"scaled": False} if name == "diabetes" else {}
    bundled = getattr(datasets, f"load_{name}")(**raw)
    test = held_out(wanted)
    if name == "diabetes":
        assert saved.r2(bundled.data[test], bundled.target[test]) == pytest.approx(together, abs=EXACT)
        return
    labels = [bundled.target_names[label] for label in bundled.target[test]]
    assert saved.accuracy(bundled.data[test], labels) == together > 0.5
    assert saved.about["inputs"]["cells"] is None
    names = [column["name"] for column in saved.about["inputs"]["columns"] or ()]
    assert names == ([] if name == "digits" else list(bundled.feature_names))


@pytest.mark.slow
def test_a_model_of_mnist_scores_the_same_on_the_bytes_of_its_pictures(tmp_path, data_dir, monkeypatch):
    monkeypatch.setenv("P2PFL_DATA", str(data_dir))
    wanted = experiment("mnist", rounds=1, learning={"steps": 20})
    together, saved = simulated(wanted, tmp_path / "run")
    pictures, labels = (
        read_idx(next((data_dir / "mnist").glob(f"t10k-{part}-ubyte*"))) for part in ("images-idx3", "labels-idx1")
    )
    assert saved.accuracy(pictures[:, None].astype(float), labels.tolist()) == together > 0.5
    assert (saved.about["inputs"]["mean"], saved.about["inputs"]["deviation"]) == (0.0, 255.0)


CLINIC = """
import numpy as np

def load(peer, peers, seed):
    rng = np.random.default_rng(int(peer[-1]))
    features = rng.normal([5.0, 300.0], [0.1, 40.0], (80, 2))
    return features, (features @ [10.0, -0.025] > 42.5).astype(int)
"""


def test_features_of_a_function_are_scaled_as_the_file_says_and_have_no_names(tmp_path, monkeypatch):
    (tmp_path / "rawclinic.py").write_text(CLINIC)
    monkeypatch.syspath_prepend(tmp_path)
    load = importlib.import_module("rawclinic").load
    wanted = experiment("rawclinic:load", data={"scale": True}, rounds=10)
    together, saved = simulated(wanted, tmp_path / "run")
    found = federate("rawclinic:load", peers=["peer0", "peer1"], seed=wanted.seed)
    test = found.test["peer0"]  # of two that are laid end to end, the first
    features, labels = load("peer0", None, None)
    saved.about["outputs"]["class_names"] = [0, 1]
    assert saved.accuracy(features[test], labels[test].tolist()) == together > 0.8
    assert saved.about["inputs"]["columns"] is None
    assert "rawclinic:load" in saved.about["inputs"]["raw"]


def test_fed_heart_says_that_each_hospital_has_scaled_its_own(tmp_path, data_dir, monkeypatch):
    monkeypatch.setenv("P2PFL_DATA", str(data_dir))
    wanted = experiment("fed_heart", topology={"kind": "complete", "peers": 4}, data={"scale": True})
    together, saved = simulated(wanted, tmp_path / "run")
    names = tuple(f"peer{k}" for k in range(4))
    source = SOURCES["fed_heart"](data_dir)
    features, targets = source.load(peer="peer0", peers=names, seed=wanted.seed)
    test = source.held(peer="peer0", peers=names)
    saved.about["outputs"]["class_names"] = [0, 1]
    assert saved.accuracy(features[test], targets[test].tolist()) == together
    assert "own training part" in saved.about["inputs"]["raw"]


def test_a_forecast_over_a_network_writes_what_a_simulation_writes(tmp_path):
    wanted = experiment("wine", data={"scale": True})
    forecast(wanted, network("wan"), folder=tmp_path / "forecast", baselines=False)
    simulated(wanted, tmp_path / "run")
    saved = Saved(tmp_path / "forecast" / "peers" / "peer1.safetensors")
    assert saved.about == json.loads((tmp_path / "forecast" / "model.json").read_text())
    assert saved.about == json.loads((tmp_path / "run" / "model.json").read_text())


OWN = """
from torch import nn

class Model(nn.Sequential):
    def __init__(self, *, limit, since):
        super().__init__(nn.Flatten(), nn.Linear(13, 3))
"""


def test_options_that_json_does_not_know_are_kept_as_text(tmp_path, monkeypatch):
    (tmp_path / "ownmodel.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"limit": math.inf, "since": dt.date(2026, 1, 2)}
    _, saved = simulated(experiment("wine", model={"name": "ownmodel:Model", "options": options}), tmp_path / "run")
    assert saved.about["model"] == {"name": "ownmodel:Model", "options": {"limit": "Infinity", "since": "2026-01-02"}}


def test_the_file_names_its_version_the_model_its_options_and_the_loss(tmp_path):
    wanted = experiment("wine", model={"name": "mlp", "hidden": [8]})
    _, saved = simulated(wanted, tmp_path / "run")
    about = saved.about
    assert about["version"] == 1
    assert about["model"] == {"name": "mlp", "options": {"hidden": [8]}}
    assert (about["task"], about["loss"]) == ("classification", "cross_entropy")
    assert about["inputs"]["shape"] == [13]
    assert about["outputs"]["classes"] == 3
