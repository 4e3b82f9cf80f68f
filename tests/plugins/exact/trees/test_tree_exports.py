"""Trees as files for XGBoost and scikit-learn: they predict what ``p2pfl predict`` predicts."""

import csv
import importlib.util
import json
import sys
from itertools import count

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from sklearn.base import clone
from sklearn.inspection import permutation_importance

import hospitals
from p2pfl.cli import main
from p2pfl.core.errors import InputError, ModelError
from p2pfl.core.files import OWNER_ONLY
from p2pfl.experiment import read
from p2pfl.results.models import Predictor, export
from p2pfl.simulation import simulate

WARDS = [*"abcde"]
NUMBERS = count()


def trained(folder, *, target, name="boosting", **options):
    """Return the predictor that peers train on a table with a number that can be missing and two columns of levels."""
    rng = np.random.default_rng(5)
    size = 300
    age, ward, sex = rng.normal(50, 10, size).round(1), rng.integers(0, 5, size), rng.integers(0, 2, size)
    score = age / 10 + np.array([0, 3, -2, 4, 1])[ward] * (1 + sex) + rng.normal(size=size)
    classes = {"two": ["no", "yes"], "three": ["low", "mid", "high"]}
    told = {"two": (score > 6).astype(int), "three": np.digitize(score, [4, 8])}
    if target == "count":
        score = rng.poisson(np.exp(score / 3))
    outcome = (
        [f"{value:.3f}" for value in score] if target not in classes else [classes[target][n] for n in told[target]]
    )
    rows = [
        ["" if rng.random() < 0.2 else a, WARDS[w], "fm"[s], y]
        for a, w, s, y in zip(age.tolist(), ward, sex, outcome, strict=True)
    ]
    for peer in range(3):
        with (folder / f"peer{peer}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["age", "ward", "sex", "y"], *rows[peer::3]])
    columns = {
        "age": {"type": "number", "missing": float("nan")},
        "ward": {"levels": WARDS, "unknown": "b"},
        "sex": {"levels": ["f", "m"], "missing": "m"},
        "y": classes.get(target, "number"),
    }
    experiment = {
        "rounds": 5,
        "topology": {"kind": "ring", "peers": 3},
        "data": {
            "name": "table",
            "options": {"path": str(folder / "{peer}.csv"), "target": "y", "columns": columns},
        },
        "model": {"name": name, "options": {"max_depth": 3, "min_samples_leaf": 5, "max_bins": 32} | options},
        "privacy": {"mode": "none"},
    }
    simulate(read(experiment), folder=folder / "run", baselines=False)
    return Predictor.load(folder / "run" / "peers" / "peer0.safetensors")


CASES = {
    "two classes": {"target": "two", "categorical_features": "from_dtype"},
    "three classes": {"target": "three", "categorical_features": ["ward"]},
    "numbers": {"target": "number"},
    "counts": {"target": "count", "loss": "poisson", "learning_rate": 0.3},
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES)
def predictor(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    return trained(folder, **request.param), folder


def estimator(path):
    spec = importlib.util.spec_from_file_location(f"exported{next(NUMBERS)}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.estimator


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("target", ["two", "number"])
def test_forests_are_estimators_of_scikit_learn(target, tmp_path):
    predictor = trained(tmp_path, target=target, name="forest", n_estimators=5)
    path = export(predictor, tmp_path / "model.py", to="sklearn")
    assert path.stat().st_mode & 0o777 == OWNER_ONLY
    found = estimator(path)
    table = pd.read_csv(tmp_path / "peer1.csv")
    predict = found.predict_proba if target == "two" else found.predict
    predictions = predictor.predict(tmp_path / "peer1.csv")
    assert np.allclose(predict(table), predictions.values, rtol=1e-9, atol=1e-8)
    assert found.score(table, table["y"]) > 0.5
    with pytest.raises(ModelError, match="XGBoost's format takes boosting"):
        export(predictor, tmp_path / "model.json", to="xgboost")


@pytest.mark.sampled(fast=1)
def test_xgboost_loads_the_trees_and_predicts_the_same(predictor):
    predictor, folder = predictor
    booster = xgboost.Booster(model_file=export(predictor, folder / "model.json", to="xgboost"))
    raw = predictor.columns(folder / "peer1.csv")
    seen = predictor.saved.module.seen
    inputs = seen.joined(predictor.module.inputs(torch.from_numpy(raw))).numpy()
    matrix = xgboost.DMatrix(
        inputs, feature_names=booster.feature_names, feature_types=booster.feature_types, enable_categorical=True
    )
    predictions = predictor.predict(folder / "peer1.csv")
    found, wanted = booster.predict(matrix), np.asarray(predictions.values)
    if wanted.ndim == 2 and wanted.shape[1] == 2:
        wanted = wanted[:, 1]
    if predictor.saved.module.logarithmic:  # XGBoost adds logarithms in single precision
        found, wanted = np.log(found), np.log(wanted)
    assert np.abs(found - wanted).max() < 2e-6
    assert booster.num_boosted_rounds() == 5
    assert json.loads(booster.attr("p2pfl"))["target"] == "y"
    assert booster.feature_names == list(seen.names)


@pytest.mark.slow
def test_scikit_learn_uses_the_trees_on_raw_tables(predictor):
    predictor, folder = predictor
    found = estimator(export(predictor, folder / "model.py", to="sklearn"))
    table = pd.read_csv(folder / "peer1.csv")
    wanted = predictor.predict(folder / "peer1.csv")
    if wanted.classes:
        assert np.allclose(found.predict_proba(table), wanted.values, rtol=1e-12)
        assert found.predict(table).tolist() == wanted.labels
        assert list(found.classes_) == list(wanted.classes)
        assert 0.5 < found.score(table, table["y"]) <= 1
    else:
        assert np.allclose(found.predict(table), wanted.values, rtol=1e-12)
        assert 0.5 < found.score(table, table["y"]) <= 1
    array = table[list(found.feature_names_in_)].to_numpy(dtype=object)
    assert np.array_equal(clone(found).fit(array).predict(array), found.predict(table))


@pytest.mark.slow
def test_rules_for_cells_go_with_the_estimator(predictor):
    predictor, folder = predictor
    found = estimator(export(predictor, folder / "model.py", to="sklearn"))
    odd = pd.DataFrame({"age": [50.0, None, 41.5], "ward": ["a", "zoo", "e"], "sex": [None, "f", "m"]})
    odd.to_csv(folder / "odd.csv", index=False)
    predictions = predictor.predict(folder / "odd.csv")
    wanted = np.asarray(predictions.values)
    predict = found.predict_proba if wanted.ndim == 2 else found.predict
    assert np.allclose(predict(odd), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match=r'row 1 has .* in column "sex", which has no rule for it'):
        found.predict(odd.assign(sex=["f", "x", "m"]))
    with pytest.raises(ValueError, match="give it the columns"):
        found.predict(np.zeros((2, 5)))


def test_tools_of_scikit_learn_take_the_estimator(tmp_path):
    predictor = trained(tmp_path, target="two", categorical_features="from_dtype")
    found = estimator(export(predictor, tmp_path / "model.py", to="sklearn"))
    table = pd.read_csv(tmp_path / "peer0.csv")
    table["age"] = table["age"].fillna(50.0)
    importance = permutation_importance(found, table[["age", "ward", "sex"]], table["y"], n_repeats=3, random_state=0)
    assert importance.importances_mean.argmax() == 1  # the ward decides most


def test_what_a_format_cannot_express_is_refused(tmp_path, capsys):
    predictor = trained(tmp_path, target="two")
    with pytest.raises(InputError, match=r"end it with \.json"):
        export(predictor, tmp_path / "model.xgb", to="xgboost")
    hospitals.write(tmp_path)
    simulate(read(hospitals.experiment(tmp_path)), folder=tmp_path / "torch", baselines=False)
    other = tmp_path / "torch" / "peers" / "peer0.safetensors"
    with pytest.raises(ModelError, match="XGBoost's format takes boosting"):
        export(Predictor.load(other), tmp_path / "model.json", to="xgboost")
    with pytest.raises(ModelError, match="takes boosting and forests"):
        export(Predictor.load(other), tmp_path / "model.py", to="sklearn")
    assert main(["export", str(predictor.saved.path), "--to", "xgboost"]) == 0
    assert capsys.readouterr().out.strip() == str(predictor.saved.path.with_suffix(".json"))


def test_a_loss_of_the_users_own_is_not_needed_for_predictions(tmp_path, monkeypatch):
    source = "def slopes(margins, targets):\n    return (margins - targets) / 20, 0 * margins + 0.05\n"
    (tmp_path / "clinic_loss.py").write_text(source)
    with monkeypatch.context() as importable:
        importable.syspath_prepend(str(tmp_path))
        options = {"loss": "clinic_loss:slopes", "loss_bound": 2.0, "learning_rate": 0.5}
        predictor = trained(tmp_path, target="number", **options)
    sys.modules.pop("clinic_loss")
    again = Predictor.load(predictor.saved.path).predict(tmp_path / "peer1.csv")
    table = pd.read_csv(tmp_path / "peer1.csv")
    assert np.corrcoef(again.values, table["y"])[0, 1] > 0.7
    found = estimator(export(predictor, tmp_path / "model.py", to="sklearn"))
    assert np.allclose(found.predict(table), again.values, rtol=1e-12)
    assert "clinic_loss" not in sys.modules
    with pytest.raises(ModelError, match=r"nowhere:slopes.*cannot be imported"):
        trained(tmp_path, target="number", loss="nowhere:slopes", loss_bound=1.0)
