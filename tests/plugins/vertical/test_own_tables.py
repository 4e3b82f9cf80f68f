"""Parties with tables of their own: what their accounts count, and predictions of new people from files."""

import csv
import json
from datetime import UTC, datetime

import numpy as np
import pytest

from p2pfl import simulate
from p2pfl.cli import main
from p2pfl.core.errors import DataError, InputError
from p2pfl.experiment import read
from p2pfl.experiment.account_entries import RunEntry, contents, entries, whole_lines
from p2pfl.experiment.approval import approve, consent_problems, write_approval
from p2pfl.experiment.site_policy import read_policy
from p2pfl.privacy.keys import Identity, key_text
from vertical_files import write_clinic

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(tmp_path):
    return write_clinic(tmp_path)


def runs_of(path):
    return [each for each in entries(path, whole_lines(contents(path))) if isinstance(each, RunEntry)]


def test_the_account_of_a_feature_holder_counts_predictors_and_refuses_another_model(settings, tmp_path):
    simulate(settings)
    assert [run.predictors for run in runs_of(tmp_path / "ada.csv.budget.jsonl")] == [14]
    assert [run.predictors for run in runs_of(tmp_path / "bob.csv.budget.jsonl")] == [0]
    assert not (tmp_path / "cleo.csv.budget.jsonl").exists()
    other = settings | {"model": {"name": "glm", "options": {"family": "binomial", "ridge": 2.0}}}
    with pytest.raises(
        InputError, match=r"earlier runs have shown 14 linear predictors .* the 14 of this run exceed 14"
    ):
        simulate(other)


def test_an_interrupted_run_begins_again_once(settings):
    for _ in range(2):
        simulate(settings)
    with pytest.raises(InputError, match="this run has begun 2 times, and shows its linear predictors anew"):
        simulate(settings)


def test_predictions_from_files_are_those_of_all_columns_and_mark_who_is_alone(settings, tmp_path, capsys):
    run = simulate(settings, folder=tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert [row["parties"] for row in rows] == ["ada bob"] * 19 + ["alone"]
    ada, bob = run.models["ada"], run.models["bob"]
    tables = {
        name: [*csv.DictReader((tmp_path / "new" / f"{name}.csv").read_text().splitlines())] for name in ("ada", "bob")
    }

    def part(model, row, names):
        own = np.array([float(row[name]) for name in names])
        return ((own - model["mean"].numpy()) / model["deviation"].numpy()) @ model["weight"].numpy()

    for row, mine, theirs in zip(rows, tables["bob"], tables["ada"], strict=False):
        predictor = part(bob, mine, ("age", "days")) + part(ada, theirs, ("crp", "iron")) + float(bob["bias"][0])
        assert float(row["probability of yes"]) == pytest.approx(1 / (1 + np.exp(-predictor)), rel=1e-9)


def test_a_label_holder_without_columns_learns_from_those_of_others(settings, tmp_path, capsys):
    (tmp_path / "bob.columns.toml").write_text('target = "ill"\ncolumns = { ill = ["no", "yes"] }')
    run = simulate(settings, folder=tmp_path / "run")
    assert run.summary["alone"] == 0.5
    assert run.summary["together"] > 0.7
    assert run.summary["difference"] < 1e-5
    assert main(["coefficients", str(tmp_path / "run" / "peers" / "bob.safetensors"), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["coefficients"]] == ["(intercept)"]
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0


@pytest.mark.parametrize("rows", ["common", "labelled"])
def test_predictions_of_a_split_network_are_those_of_its_parts_and_say_who_is_alone(settings, tmp_path, capsys, rows):
    options = {"label_epsilon": 8.0, "absent": 0.2, "hidden": [8]}
    settings |= {"rounds": 8, "model": {"name": "split_network", "options": options}}
    settings |= {"learning": {"optimizer": "adam", "rate": 0.02}}
    settings["data"]["options"]["rows"] = rows
    (tmp_path / "ada.columns.toml").write_text('bottom = "linear"\ncolumns = { crp = "number", iron = "number" }')
    run = simulate(settings, folder=tmp_path / "run")
    assert run.summary["alone"] < run.summary["together"]
    assert "each label of bob has epsilon = 8 against all others" in run.summary["privacy"]["statement"]
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "{peer}.csv")]) == 0
    predicted = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    last = "alone" if rows == "common" else "bob"
    assert [row["parties"] for row in predicted] == ["ada bob"] * 19 + [last]
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new" / "bob.csv"), "--live", "--name", "bob"]) == 2
    assert "bob receives the sum of the others' embeddings of each of its rows" in capsys.readouterr().err
    ada, bob = run.models["ada"], run.models["bob"]
    assert sum(name.endswith("weight") for name in ada) == 1  # one layer, as ada alone says
    assert not {"labels", "place"} & {*bob}

    def applied(model, part, inputs):
        names = [name for name in model if name.startswith(f"network.{part}.") and name.endswith("weight")]
        for layer in names:
            inputs = inputs @ model[layer].numpy().T + model[layer.replace("weight", "bias")].numpy()
            inputs = inputs if layer == names[-1] else np.maximum(inputs, 0)
        return inputs

    embedding = np.zeros((20, 16))
    for name, model, columns in (("ada", ada, ("crp", "iron")), ("bob", bob, ("age", "days"))):
        table = [*csv.DictReader((tmp_path / "new" / f"{name}.csv").read_text().splitlines())]
        own = np.array([[float(row[column]) for column in columns] for row in table])
        if rows == "labelled" and name == "ada":  # the last person is at the means, and not in the table
            own = np.vstack([own, model["mean"].numpy()[:2]])
            there = np.ones(20) * (np.arange(20) < 19)
            own = np.column_stack([own, there, 1 - there])
        scaled = (own - model["mean"].numpy()) / model["deviation"].numpy()
        part = applied(model, "bottom", scaled[:, :3])  # without the last level of `in table`
        embedding[: len(part)] += part
    outputs = applied(bob, "top", embedding)
    for row, (no, yes) in zip(predicted, outputs.tolist(), strict=True):
        assert float(row["probability of yes"]) == pytest.approx(1 / (1 + np.exp(no - yes)), rel=1e-9)


def test_a_run_of_whole_models_is_not_predicted_as_one_of_parts(tmp_path, capsys):
    simulate({"rounds": 1, "data": {"name": "wine"}, "topology": {"peers": 3}}, folder=tmp_path / "run")
    assert main(["predict", str(tmp_path / "run"), "new/{peer}.csv"]) == 2
    assert "is a run whose peers have whole models; name one of them" in capsys.readouterr().err


def test_the_policy_of_a_party_binds_the_columns_that_it_declares_itself(settings, tmp_path):
    (tmp_path / "policy.toml").write_text('columns = ["id", "crp", "age", "days", "ill"]')
    with pytest.raises(InputError, match="does not allow the column iron; leave it out"):
        simulate(settings)
    assert not (tmp_path / "ada.csv.budget.jsonl").exists()
    (tmp_path / "policy.toml").write_text('columns = ["id", "crp", "iron", "age", "days", "ill"]')
    simulate(settings)


def test_an_approval_holds_for_the_columns_that_a_party_declared_then(settings, tmp_path):
    officer, today = Identity(bytes(range(32))), datetime.now(UTC).date()
    purpose = '[purposes.care]\nlegal_basis = "Art. 9(2)(h) GDPR"\nretention = "10 years"\n'
    policy = tmp_path / "policy.toml"
    policy.write_text(f'officer = "{key_text(officer.public)}"\n{purpose}')
    experiment = read(settings)
    given = approve(experiment, read_policy(policy), officer, peers=["ada", "bob"], purpose="care", today=today)
    write_approval(given, policy)
    assert consent_problems(experiment, ["ada", "bob"], today=today) == []
    (tmp_path / "ada.columns.toml").write_text('columns = { crp = "number" }')
    (problem,) = consent_problems(experiment, ["ada", "bob"], today=today)
    assert "an approval of the columns that ada declares, and those of the approval are others" in problem


LEAST = {
    "glm": {"family": "binomial", "ridge": 1.0},
    "boosting": {"loss": "log_loss", "min_samples_leaf": 5},
    "pca": {},
}


@pytest.mark.parametrize(("name", "options"), LEAST.items(), ids=LEAST)
def test_the_least_number_of_common_rows_is_that_of_the_experiment(settings, tmp_path, name, options):
    (tmp_path / "bob.columns.toml").write_text('target = "ill"\ncolumns = { ill = ["no", "yes"] }')
    for table in (tmp_path / "ada.csv", tmp_path / "bob.csv"):
        table.write_text("".join(table.read_text().splitlines(keepends=True)[:51]))
    data = {**settings["data"], "options": settings["data"]["options"] | {"least": 40}}
    run = simulate(settings | {"data": data, "model": {"name": name, "options": options}})
    assert run.models["ada"]["samples"].item() == 40


def test_training_rows_below_the_least_number_are_refused(settings):
    data = {**settings["data"], "options": settings["data"]["options"] | {"least": 230}}
    with pytest.raises(DataError, match=r"224 rows in common, fewer than data\.options\.least = 230"):
        simulate(settings | {"data": data})
