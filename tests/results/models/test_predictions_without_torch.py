"""Saved models predict in a process where torch cannot be imported as they do with torch."""

import csv
import json

import numpy as np
import pytest
import safetensors
from safetensors.torch import load_file

import hospitals
from p2pfl.experiment import read
from p2pfl.results.models import Predictor, evaluate
from p2pfl.results.saved_models import model_file
from p2pfl.simulation import simulate
from torch_free_process import run_without_torch

pytestmark = pytest.mark.slow

EXACT = {"rounds": 2, "learning": {}, "privacy": {"mode": "none"}}
BOUNDS = {"age": [20, 100], "weight": [40_000, 120_000]}
CASES = {
    "linear": {"model": {"name": "linear"}},
    "perceptron": {"model": {"name": "mlp", "hidden": [8, 4]}},
    "logistic": EXACT | {"model": {"name": "glm", "options": {"family": "binomial"}}},
    "probit": EXACT | {"model": {"name": "glm", "options": {"family": "binomial", "link": "probit"}}},
    "complementary": EXACT | {"model": {"name": "glm", "options": {"family": "binomial", "link": "cloglog"}}},
    "random boosting": EXACT | {"model": {"name": "random_boosting", "options": {"bounds": BOUNDS}}},
    "boosting": EXACT | {"model": {"name": "boosting", "options": {}}},
    "forest": EXACT | {"model": {"name": "forest", "options": {"n_estimators": 2}}},
    "componentwise": EXACT | {"model": {"name": "componentwise", "options": {}}},
}
NEW = "ward,sex,weight,age\nsouth,f,,61\nelsewhere,m,80000,61\n,m,70000,44\neast,f,90000,70\n"


def trained(folder, name):
    """Train on the tables of the hospitals; return the model of one of them."""
    table = hospitals.experiment(folder, **CASES[name])
    simulate(read(table), folder=folder / name, baselines=False)
    return folder / name / "peers" / "peer0.safetensors"


def changed(saved, path, *, name, options=None):
    """Write a file with the tensors of another and with another model in its description."""
    with safetensors.safe_open(saved, "pt") as file:
        metadata = file.metadata()
    [key] = [key for key, value in metadata.items() if value.startswith("{")]
    about = json.loads(metadata[key])
    about["model"] |= {"name": name, "options": about["model"]["options"] | (options or {})}
    path.write_bytes(model_file(load_file(saved), metadata | {key: json.dumps(about)}))
    return path


def test_models_that_a_board_learns_predict_without_torch_as_with_it(tmp_path):
    hospitals.write(tmp_path)
    (tmp_path / "new.csv").write_text(NEW)
    models = {name: trained(tmp_path, name) for name in CASES}
    jobs = [
        {"command": ["predict", str(path), str(tmp_path / "new.csv"), "--out", str(tmp_path / f"{name}.csv")]}
        for name, path in models.items()
    ]
    (*said, modules), _ = run_without_torch(tmp_path, jobs)
    assert [json.loads(line) for line in said] == [[0, ""]] * len(CASES)
    assert "p2pfl.simulation" not in json.loads(modules)
    for name, path in models.items():
        expected = Predictor.load(path).predict(tmp_path / "new.csv")
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = [[float(row[f"probability of {each}"]) for each in expected.classes] for row in rows]
        np.testing.assert_allclose(found, expected.values, rtol=0, atol=1e-6, err_msg=name)
        assert [row["prediction"] for row in rows] == expected.labels, name


def test_a_model_is_evaluated_without_torch_as_with_it(tmp_path):
    hospitals.write(tmp_path)
    path, table = trained(tmp_path, "perceptron"), tmp_path / "peer1.csv"
    lines, _ = run_without_torch(tmp_path, [{"command": ["evaluate", str(path), str(table), "--json"]}])
    printed, said, _ = lines
    assert json.loads(said) == [0, ""]
    expected = evaluate(Predictor.load(path), table).results()["scores"]
    for name, score in json.loads(printed)["scores"].items():
        assert score["value"] == pytest.approx(expected[name]["value"], abs=1e-6), name


def test_other_models_are_refused_without_torch_by_their_names(tmp_path):
    hospitals.write(tmp_path)
    saved = trained(tmp_path, "linear")
    names = ("cnn", "timm:resnet18", "clinic:Net")
    files = [changed(saved, tmp_path / f"{number}.safetensors", name=name) for number, name in enumerate(names)]
    jobs = [{"command": ["predict", str(path), str(tmp_path / "peer1.csv")]} for path in files]
    (*said, _), _ = run_without_torch(tmp_path, jobs)
    for line, path, name in zip(said, files, names, strict=True):
        sentence = (
            f"p2pfl: {path} is a model {name}, whose predictions need torch, which is not installed here; run pip "
            "install torch, or predict on a computer that has it\n"
        )
        assert json.loads(line) == [2, sentence]


def test_a_file_that_claims_another_size_is_refused_without_torch_and_takes_no_memory(tmp_path):
    hospitals.write(tmp_path)
    linear, forest = (trained(tmp_path, name) for name in ("linear", "forest"))
    claims = [
        (linear, "mlp", {"hidden": [2**40]}),
        (linear, "mlp", {"hidden": [-1]}),
        (linear, "mlp", {"hidden": "many"}),
        (linear, "linear", {"hidden": [3]}),
        (forest, "forest", {"n_estimators": 2**40}),
    ]
    jobs = []
    for number, (saved, name, options) in enumerate(claims):
        path = changed(saved, tmp_path / f"{number}.safetensors", name=name, options=options)
        jobs.append({"command": ["predict", str(path), str(tmp_path / "peer1.csv")]})
    (*said, _), _ = run_without_torch(tmp_path, jobs)
    for line, job in zip(said, jobs, strict=True):
        status, sentence = json.loads(line)
        assert (status, sentence.count("\n")) == (2, 1)
        assert f"{job['command'][1]} does not fit the model" in sentence or "does not accept the options" in sentence
