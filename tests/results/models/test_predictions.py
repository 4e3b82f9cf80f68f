"""Predictions of a saved model on raw tables are those of the run, and what does not fit is named."""

import csv
import io
import json
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn import datasets

import hospitals
import p2pfl
from p2pfl.core.errors import DataError, InputError, LearningError, ModelError
from p2pfl.data import federate
from p2pfl.experiment import plan, read
from p2pfl.learning import metrics
from p2pfl.results.models import Predictor, evaluate
from p2pfl.simulation import simulate

EXACT = 1e-6


def simulated(table, folder):
    run = simulate(read(table), folder=folder, baselines=False)
    return run, Predictor.load(folder / "peers" / "peer0.safetensors")


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("kind", ["own", "shared", "declared"])
def test_predictions_on_raw_columns_have_the_score_of_the_run(tmp_path, kind, scale):
    hospitals.write(tmp_path)
    table = hospitals.experiment(tmp_path)
    table["data"]["scale"] = scale
    if not scale and kind == "own":  # weights in grams need scaling
        table["data"]["options"]["columns"] = {
            name: column for name, column in hospitals.COLUMNS.items() if name != "weight"
        }
        table["learning"]["rate"] = 1e-3
    if kind == "declared":
        weight = {"type": "number", "missing": 80_000, "mean": 80_000, "deviation": 9_000}
        age = {"type": "integer", "mean": 60, "deviation": 12.5}
        table["data"]["options"]["columns"] = hospitals.COLUMNS | {"weight": weight, "age": age}
    if kind == "shared":
        table["data"] |= {"name": "csv", "options": {"path": str(tmp_path / "peer2.csv"), "target": "outcome"}}
    run, predictor = simulated(table, tmp_path / "run")
    held = plan(read(table)).federation.test["peer0"]  # the rows of peer0 come first
    path = tmp_path / ("peer2.csv" if kind == "shared" else "peer0.csv")
    probabilities, targets = predictor.predict(path).values[held], predictor.targets(path)[held]
    [record] = [record for record in run.metrics if record.peer == "peer0" and record.round == 3]
    assert metrics.accuracy(probabilities, targets) == run.summary["per_peer"]["peer0"]["together"]
    assert metrics.log_loss(probabilities, targets) == pytest.approx(record.scores["loss"], abs=EXACT)


def test_a_regression_predicts_in_the_unit_of_the_target(tmp_path):
    hospitals.write(tmp_path, target="score")
    table = hospitals.experiment(tmp_path, learning={"device": "cpu", "weighted": False, "rate": 0.1, "epochs": 5})
    del (columns := dict(hospitals.COLUMNS))["outcome"]
    table["data"]["options"] |= {"target": "score", "columns": columns | {"score": "number"}}
    run, predictor = simulated(table, tmp_path / "run")
    held = plan(read(table)).federation.test["peer0"]
    predictions, targets = predictor.predict(tmp_path / "peer0.csv"), predictor.targets(tmp_path / "peer0.csv")
    assert predictions.classes == ()
    together = run.summary["per_peer"]["peer0"]["together"]
    assert metrics.r2(predictions.values[held], targets[held]) == pytest.approx(together, abs=EXACT)
    assert together > 0.7


def test_a_model_of_a_bundled_set_takes_a_data_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = hospitals.experiment(tmp_path, data={"name": "breast_cancer", "scale": True})
    run, predictor = simulated(table, tmp_path / "run")
    bundled = datasets.load_breast_cancer()
    held = federate("breast_cancer", peers=list(hospitals.PEERS), seed=3).test["peer0"]
    found = predictor.predict(pandas.DataFrame(bundled.data, columns=bundled.feature_names))
    right = [str(bundled.target_names[bundled.target[row]]) == found.labels[row] for row in held]
    assert np.mean(right) == run.summary["per_peer"]["peer0"]["together"]


def test_predictions_do_not_need_the_target_and_follow_the_rules_for_cells(predictor, tmp_path):
    (tmp_path / "new.csv").write_text(
        "ward,sex,weight,age\nsouth,f,,61\nelsewhere,f,80000,61\n,m,70000,44\neast,m,70000,44\n"
    )
    values = predictor.predict(tmp_path / "new.csv").values
    assert values.shape == (4, 2)
    assert np.array_equal(values[0], values[1])
    assert np.array_equal(values[2], values[3])
    assert not np.array_equal(values[0], values[2])
    assert values.sum(1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ward,sex,weight\neast,f,1\n", r'new\.csv has no column "age"; choose from sex, ward, weight'),
        ("ward,sex,weight,age\neast,x,1,40\n", r'line 2: "x" in column "sex" is none of the levels "f", "m"; correct'),
        ("ward,sex,weight,age\neast,f,1,40.5\n", r'line 2: "40\.5" in column "age" is no whole number'),
        ("ward,sex,weight,age\neast,f,1,\n", r'line 2: "" in column "age" is missing'),
    ],
)
def test_a_table_that_does_not_fit_is_refused_as_in_training(predictor, tmp_path, text, sentence):
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError, match=sentence):
        predictor.predict(tmp_path / "new.csv")


def test_predictions_are_written_as_csv(predictor, trained):
    found = predictor.predict(trained[0] / "peer1.csv")
    file = io.StringIO()
    found.write(file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert [*rows[0]] == ["prediction", "probability of well", "probability of ill"]
    assert [float(row["probability of ill"]) for row in rows] == found.values[:, 1].tolist()
    assert [row["prediction"] for row in rows] == ["ill" if ill > 0.5 else "well" for ill in found.values[:, 1]]


# --- evaluation


def test_groups_are_scored_like_tables_of_their_own(predictor, trained, tmp_path):
    found = evaluate(predictor, trained[0] / "peer1.csv", by="sex", draws=30)
    assert [group.name for group in found.groups] == ["f", "m"]
    with (trained[0] / "peer1.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    for group in found.groups:
        own = [row for row in rows if row[header.index("sex")] == group.name]
        with (tmp_path / "own.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *own])
        alone = evaluate(predictor, tmp_path / "own.csv", draws=30)
        assert (alone.whole.samples, alone.whole.scores) == (group.samples, group.scores)
    assert sum(group.samples for group in found.groups) == found.whole.samples == 90
    for score in found.whole.scores.values():
        assert score.low <= score.value <= score.high


def test_missing_cells_are_a_group_and_identifiers_are_none(predictor, trained):
    found = evaluate(predictor, trained[0] / "peer1.csv", by="ward", draws=2)
    assert "missing" in [group.name for group in found.groups]
    assert json.loads(json.dumps(found.results(), allow_nan=False))["interval"]["draws"] == 2
    with pytest.raises(DataError, match=r'column "id" of .* has 90 different values, more than 20 groups; name a'):
        evaluate(predictor, trained[0] / "peer1.csv", by="id")
    with pytest.raises(DataError, match=r'has no column "wrad"; did you mean "ward"'):
        evaluate(predictor, trained[0] / "peer1.csv", by="wrad")


def test_a_class_that_the_model_does_not_know_is_named(predictor, tmp_path):
    (tmp_path / "new.csv").write_text("ward,sex,weight,age,outcome\neast,f,1,40,dead; 2020\n")
    said = r'line 2: "dead; 2020" in column "outcome" is none of the levels "well", "ill"; correct the cell, or remove'
    with pytest.raises(DataError, match=said):
        evaluate(predictor, tmp_path / "new.csv")


# --- tables with an account


@pytest.mark.parametrize("use", ["predict", "columns", "targets", "evaluate"])
def test_exact_results_on_a_table_with_an_account_need_to_be_asked_for(predictor, trained, tmp_path, use):
    table = tmp_path / "own.csv"
    table.write_bytes((trained[0] / "peer1.csv").read_bytes())
    (tmp_path / "own.csv.budget.jsonl").write_text("")
    (tmp_path / "link.csv").symlink_to(table)
    used = partial(evaluate, predictor, draws=2) if use == "evaluate" else getattr(predictor, use)
    for path in (table, str(tmp_path / "link.csv")):
        with pytest.raises(InputError, match=r"own\.csv\.budget\.jsonl counts what is spent of this table"):
            used(path)
        used(path, unaccounted=True)


# --- files from others


def changed(saved, folder, change, tensors=None):
    """The file of a model whose description was changed."""
    with safe_open(saved, "pt") as file:
        about = json.loads(file.metadata()["p2pfl"])
        own = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    change(about)
    save_file(own | (tensors or {}), folder / "other.safetensors", {"p2pfl": json.dumps(about)})
    return folder / "other.safetensors"


def test_what_is_no_saved_model_is_refused(tmp_path, saved):
    (tmp_path / "bad.safetensors").write_bytes(pickle.dumps({"weight": [1.0]}))
    with pytest.raises(InputError, match=r"bad\.safetensors is not a safetensors file"):
        Predictor.load(tmp_path / "bad.safetensors")
    with pytest.raises(InputError, match=r"none\.safetensors is not a safetensors file"):
        Predictor.load(tmp_path / "none.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "bare.safetensors")
    with pytest.raises(InputError, match=r"bare\.safetensors does not describe its inputs"):
        Predictor.load(tmp_path / "bare.safetensors")
    with pytest.raises(InputError, match=r"in a way that this release does not read .* use the release of p2pfl"):
        Predictor.load(changed(saved, tmp_path, lambda about: about.update(version=2)))


def test_a_file_cannot_run_code_or_take_memory(tmp_path, saved, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path = changed(saved, tmp_path, lambda about: about["model"].update(name="trap:Model"))
    with pytest.raises(
        ModelError, match="names the model trap:Model, whose import runs its code; if you trust it, add"
    ):
        Predictor.load(path)
    with pytest.raises(ModelError, match="names the model trap:Model"):
        Predictor.load(path, model="other:Model")
    path = changed(saved, tmp_path, lambda about: about["model"]["options"].update(hidden=[2**40]))  # 8 TB a column
    with pytest.raises(ModelError, match=r"does not fit the model mlp that it names \(.*size mismatch"):
        Predictor.load(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda about: about["outputs"].update(class_names=["ill"]), "contradicts itself on its classes"),
        (lambda about: about["outputs"].update(classes=None), "contradicts itself on its classes"),
        (lambda about: about["inputs"].update(shape=[9]), "contradicts itself on its 8 inputs"),
        (lambda about: about["inputs"].update(mean=[0.0]), "contradicts itself on its 8 inputs"),
        (lambda about: about["inputs"]["columns"][1].update(missing="x"), 'contradicts itself on column "sex"'),
        (lambda about: about["inputs"]["columns"][0].update(missing="x"), 'contradicts itself on column "age"'),
        (
            lambda about: about["inputs"]["columns"][0].update(name="a\x1b[2J"),
            r"column 'a\\x1b\[2J' contains a line break",
        ),
        (lambda about: about["outputs"].update(class_names=["a\n", "b"]), r"level 'a\\n' contains a line break"),
        (lambda about: about["inputs"].update(columns=None), "which have no column names; train on `data.name = "),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(tmp_path, saved, change, sentence):
    with pytest.raises(InputError, match=sentence):
        Predictor.load(changed(saved, tmp_path, change))


def test_a_model_that_gives_no_numbers_is_refused(tmp_path, saved, trained):
    path = changed(saved, tmp_path, lambda _: None, {"3.bias": torch.tensor([0.0, torch.nan])})
    with pytest.raises(LearningError, match="does not give finite numbers; train the model again"):
        Predictor.load(path).predict(trained[0] / "peer0.csv")


class Coded(torch.nn.Module):
    """Embeds the codes of the wards, and breaks in the way that a test asks for."""

    def __init__(self, *, mixed=False):
        super().__init__()
        self.codes = torch.nn.Embedding(3, 2)
        self.last = torch.nn.Linear(2, 2, dtype=torch.float64 if mixed else torch.float32)

    def forward(self, features):
        return self.last(self.codes(features[:, 0].long()))


@pytest.mark.parametrize(
    ("module", "reason"), [(Coded(), "index out of range"), (Coded(mixed=True), "must have the same dtype")]
)
def test_a_model_that_refuses_its_inputs_is_one_sentence(tmp_path, saved, module, reason):
    def described(about):
        about["model"] = {"name": "own:Coded", "options": {}}
        about["inputs"] |= {"columns": [{"name": "age"}], "shape": [1], "mean": 0.0, "deviation": 1.0}

    path = changed(saved, tmp_path, described)
    about = safe_open(path, "pt").metadata()
    save_file(module.state_dict(), path, about)
    (tmp_path / "new.csv").write_text(f"age\n1\n{7 if 'index' in reason else 2}\n")
    with pytest.raises(ModelError, match=rf"cannot predict these samples \(.*{reason}.*\); check that"):
        Predictor.load(path, model=module).predict(tmp_path / "new.csv")


def test_cells_are_missing_that_the_file_of_the_model_calls_missing(tmp_path, saved, predictor):
    cells = {"missing": ["", "unknown"], "stripped": True}
    path = changed(saved, tmp_path, lambda about: about["inputs"].update(cells=cells))
    (tmp_path / "new.csv").write_text("ward,sex,weight,age\nwest,f,Unknown,61\nwest,f,80000,61\n")
    values = Predictor.load(path).predict(tmp_path / "new.csv").values
    assert np.array_equal(values[0], values[1])
    with pytest.raises(DataError, match=r'"Unknown" in column "weight" is no finite number'):
        predictor.predict(tmp_path / "new.csv")
    path = changed(saved, tmp_path, lambda about: about["inputs"].update(cells=cells | {"stripped": False}))
    with pytest.raises(InputError, match="does not strip white space around cells, which this release always does"):
        Predictor.load(path)


OWN = """
from torch import nn

class Model(nn.Sequential):
    def __init__(self, *, width):
        super().__init__(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 2))
"""


def test_a_model_of_your_own_is_loaded_if_you_name_it(tmp_path, monkeypatch):
    (tmp_path / "ownnet.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    hospitals.write(tmp_path)
    table = hospitals.experiment(tmp_path, model={"name": "ownnet:Model", "options": {"width": 3}})
    simulate(read(table), folder=tmp_path / "run", baselines=False)
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    with pytest.raises(ModelError, match="--trust-model ownnet:Model"):
        Predictor.load(path)
    predictor = Predictor.load(path, model="ownnet:Model")
    assert evaluate(predictor, tmp_path / "peer0.csv", draws=2).whole.scores["accuracy"].value > 0.6


def test_a_file_without_the_frozen_tensors_fits_the_model_that_has_them(tmp_path, monkeypatch):
    (tmp_path / "ownnet.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    hospitals.write(tmp_path)
    model = {"name": "ownnet:Model", "options": {"width": 3}, "frozen": ["0"]}
    run = simulate(read(hospitals.experiment(tmp_path, model=model)), folder=tmp_path / "run", baselines=False)
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    assert sorted(run.models["peer0"]) == ["2.bias", "2.weight"]
    found = Predictor.load(path, model="ownnet:Model")
    assert evaluate(found, tmp_path / "peer0.csv", draws=2).whole.scores["accuracy"].value > 0.6
    other = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    with pytest.raises(
        ModelError, match="the frozen tensors of the model are others than in the training; pass a module"
    ):
        Predictor.load(path, model=other)


def test_in_python_a_module_is_loaded_with_the_values_of_the_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    hospitals.write(tmp_path)
    table = p2pfl.Table(hospitals.COLUMNS, target="outcome")
    frames = {peer: pandas.read_csv(tmp_path / f"{peer}.csv") for peer in hospitals.PEERS}
    frames["peer1"] = tmp_path / "peer1.csv"
    federation = p2pfl.data.gather(frames, seed=7, table=table)
    model = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    learner = p2pfl.TorchLearner(model, federation, rate=0.1)
    complete = p2pfl.topology.complete(3)
    run = p2pfl.simulate(p2pfl.FedAvg(epochs=2), learner, complete, rounds=2, seed=7, folder=tmp_path / "run")
    path = tmp_path / "run" / "peers" / "peer0.safetensors"
    with pytest.raises(ModelError, match=r"names the model torch\.nn\.modules.container:Sequential"):
        Predictor.load(path)
    predictor = Predictor.load(path, model=model)
    held = federation.test["peer0"]
    values, targets = predictor.predict(frames["peer0"]).values[held], predictor.targets(frames["peer0"])[held]
    assert metrics.accuracy(values, targets) == run.summary["per_peer"]["peer0"]["together"]
    assert not torch.equal(model[1].weight, predictor.module.model[1].weight)
