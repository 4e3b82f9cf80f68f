"""Regressions and survival analysis of tables that peers own, from the experiment file to the printed coefficients."""

import csv
import json
import re

import numpy as np
import pytest
import statsmodels.api as sm
from lifelines.datasets import load_rossi

from p2pfl.cli import main
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data import Table
from p2pfl.data.tables.cells import TextCells
from p2pfl.experiment import plan, read
from p2pfl.simulation import simulate

PEERS = 4


def write(folder, header, rows):
    for number in range(PEERS):
        with (folder / f"peer{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows[number::PEERS]])


def experiment(folder, columns, *, target, model, **options):
    data = {"path": str(folder / "{peer}.csv"), "target": target, "columns": columns} | options
    return {
        "name": "fit",
        "rounds": 30,
        "topology": {"kind": "complete", "peers": PEERS},
        "data": {"name": "table", "options": data},
        "model": model,
        "privacy": {"mode": "pairwise"},
    }


def training(run):
    """Return features and targets of the training parts of all peers."""
    federation = plan(run.experiment).federation
    where = np.concatenate(list(federation.train.values()))
    return federation.dataset.features[where].numpy().astype(float), federation.dataset.targets[where].numpy()


@pytest.fixture
def clinic(tmp_path):
    rng = np.random.default_rng(0)
    age, sick = rng.integers(20, 90, 240), rng.random(240) < 0.4
    chance = 1 / (1 + np.exp(-(0.05 * (age - 55) + sick)))
    ill = rng.random(240) < chance
    rows = [[int(a), "yes" if s else "no", "ill" if i else "well"] for a, s, i in zip(age, sick, ill, strict=True)]
    write(tmp_path, ["age", "smokes", "outcome"], rows)
    return experiment(
        tmp_path,
        {"age": "number", "smokes": ["no", "yes"], "outcome": ["well", "ill"]},
        target="outcome",
        model={"name": "glm"},
    )


def test_coefficients_are_printed_as_statsmodels_finds_them(clinic, tmp_path, capsys):
    run = simulate(clinic, folder=tmp_path / "run")
    assert run.summary["together"] == pytest.approx(run.summary["pooled"], abs=0.2)
    saved = str(tmp_path / "run" / "peers" / "peer0.safetensors")
    assert main(["coefficients", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    features, targets = training(run)
    oracle = sm.GLM(
        targets, np.column_stack([features[:, [0, 1]], np.ones(len(targets))]), family=sm.families.Binomial()
    )  # without the last level, with which the others are compared
    oracle = oracle.fit(tol=1e-15)
    names = [each["name"] for each in found["coefficients"]]
    assert names == ["age", "smokes: no", "smokes: yes", "(intercept)"]
    by_name = {each["name"]: each for each in found["coefficients"]}
    assert by_name["smokes: yes"]["estimate"] is None  # the other level and the intercept determine it
    for place, name in enumerate(("age", "smokes: no", "(intercept)")):
        assert by_name[name]["estimate"] == pytest.approx(oracle.params[place], rel=1e-9)
        assert by_name[name]["error"] == pytest.approx(oracle.bse[place], rel=1e-9)
        assert by_name[name]["p"] == pytest.approx(oracle.pvalues[place], rel=1e-8)
    assert found["deviance"] == pytest.approx(oracle.deviance, rel=1e-10)
    assert main(["coefficients", saved]) == 0
    printed = capsys.readouterr().out
    assert "No estimate" not in printed
    assert re.search(r"smokes: yes +reference", printed)
    assert f"{oracle.bse[0]:.5g}" in printed
    assert f"{by_name['age']['ratio_low']:.4g} to {by_name['age']['ratio_high']:.4g}" in printed


def test_a_model_without_coefficients_is_refused(clinic, tmp_path, capsys):
    simulate(clinic | {"model": {"name": "boosting"}, "rounds": 2}, folder=tmp_path / "run", baselines=False)
    assert main(["coefficients", str(tmp_path / "run" / "peers" / "peer0.safetensors")]) == 2
    assert "which has no standard errors; train one of glm, private_glm, lasso, cox" in capsys.readouterr().err


def test_a_regression_that_has_not_converged_is_refused(clinic, tmp_path, capsys):
    simulate(clinic | {"rounds": 2}, folder=tmp_path / "run", baselines=False)
    assert main(["coefficients", str(tmp_path / "run" / "peers" / "peer0.safetensors")]) == 2
    assert "has not converged; train more rounds" in capsys.readouterr().err


@pytest.mark.slow
def test_coefficients_with_private_noise_are_printed_with_what_they_lack(clinic, tmp_path, capsys):
    model = {"name": "private_glm", "options": {"bounds": {"age": [18, 100]}}}
    private = {"mode": "pairwise", "epsilon": 20.0}
    wanted = clinic | {"model": model, "rounds": 8, "privacy": private}
    run = simulate(wanted, folder=tmp_path / "run", baselines=False)
    assert run.summary["privacy"]["epsilon"] == pytest.approx(20.0, rel=1e-6)
    saved = str(tmp_path / "run" / "peers" / "peer0.safetensors")
    assert main(["coefficients", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == "private"
    by_name = {each["name"]: each for each in found["coefficients"]}
    assert by_name["smokes: yes"]["estimate"] is None
    assert by_name["age"]["low"] < by_name["age"]["estimate"] < by_name["age"]["high"]
    assert by_name["(intercept)"]["error"] > 0
    assert main(["coefficients", saved]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"smokes: yes +reference", printed)
    assert "Standard errors and intervals include the private noise." in printed
    assert ("so there are no tests" in printed) == (found["ridge"] > 0) == (by_name["age"]["p"] is None)


def test_a_private_linear_model_of_many_totals_is_refused(clinic):
    numbers = {**clinic["data"]["options"], "target": "age", "columns": {"age": "number", "smokes": ["no", "yes"]}}
    options = {"bounds": {"target": [18, 100]}}
    wanted = clinic | {"data": {"name": "table", "options": numbers}, "model": {"name": "private_glm"}}
    with pytest.raises(ModelError, match=r"takes one total, .* set rounds = 1"):
        plan(read(wanted | {"model": {"name": "private_glm", "options": options}}))


@pytest.mark.slow
def test_cox_regression_of_tables_is_that_of_statsmodels(tmp_path, capsys):
    table = load_rossi()
    names = ["fin", "age", "prio", "week", "arrest"]
    write(tmp_path, names, table[names].to_numpy().tolist())
    wanted = experiment(
        tmp_path,
        dict.fromkeys(names, "number"),
        target="week",
        model={"name": "cox", "options": {"horizon": 60, "least": 1}},
        event="arrest",
    )
    assert read(wanted).learning.algorithm == "exact"
    wanted["data"]["test"] = 0.2
    run = simulate(wanted, folder=tmp_path / "run")
    assert run.summary["metric"] == "concordance"
    saved = str(tmp_path / "run" / "peers" / "peer1.safetensors")
    assert main(["coefficients", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    features, targets = training(run)
    oracle = sm.PHReg(np.abs(targets), features, status=(~np.signbit(targets)).astype(int), ties="efron")
    oracle = oracle.fit(disp=0, tol=1e-14)
    assert [each["name"] for each in found["coefficients"]] == ["age", "fin", "prio"]
    assert np.abs(np.array([each["estimate"] for each in found["coefficients"]]) - oracle.params).max() < 1e-10
    assert np.abs(np.array([each["error"] for each in found["coefficients"]]) - oracle.bse).max() < 1e-10
    assert main(["predict", saved, str(tmp_path / "peer2.csv")]) == 0
    capsys.readouterr()
    assert main(["evaluate", saved, str(tmp_path / "peer2.csv")]) == 2
    assert "predicts risks, which evaluate does not score" in capsys.readouterr().err


COLUMNS = {"age": "number", "time": "number", "dead": "number"}


def test_the_time_of_a_sample_without_the_event_is_negative():
    cells = {"age": lambda: ["1", "2"], "time": lambda: ["3", "4"], "dead": lambda: ["1", "0"]}
    table = Table(COLUMNS, target="time", event="dead")
    assert [field.name for field in table.fields] == ["age"]
    assert table.read(TextCells("patients", cells, rows=2))[1].tolist() == [3.0, -4.0]


@pytest.mark.parametrize(
    ("columns", "event", "said"),
    [
        (COLUMNS, "died", 'the event "died" is not declared in the columns; did you mean "dead"'),
        (COLUMNS | {"time": ["a", "b"]}, "dead", 'the target "time" has levels, but an event belongs to a time'),
        (
            COLUMNS | {"dead": ["a"]},
            "dead",
            'the event "dead" has one level; declare no event, and one event or several',
        ),
    ],
)
def test_an_event_that_does_not_fit_is_refused(columns, event, said):
    with pytest.raises(DataError, match=said):
        Table(columns, target="time", event=event)


@pytest.mark.parametrize("row", [["1", "-3", "1"], ["1", "3", "2"]])
def test_a_time_below_zero_or_another_event_is_refused(row):
    cells = {name: lambda cell=cell: [cell] for name, cell in zip(COLUMNS, row, strict=True)}
    with pytest.raises(
        DataError, match="patients, row 1: a time must be at least 0 and an event 0 or 1; correct the row"
    ):
        Table(COLUMNS, target="time", event="dead").read(TextCells("patients", cells, rows=1))
