"""From a table to a model, its predictions and its scores, by commands alone."""

import csv
import json
import shutil
import tomllib

import pytest
import tomli_w

import hospitals
from p2pfl.experiment import read
from p2pfl.results.models import Predictor, evaluate
from p2pfl.simulation import simulate


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with tables and a run on them."""
    folder = tmp_path_factory.mktemp("trained")
    hospitals.write(folder)
    simulate(read(hospitals.experiment(folder)), folder=folder / "run", baselines=False)
    return folder


@pytest.fixture
def model(place, trained):
    """The path of a model that was trained on the tables in the working directory."""
    shutil.copytree(trained, place, dirs_exist_ok=True)
    return place / "run" / "peers" / "peer0.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_exact_results_on_a_table_with_an_account_need_to_be_asked_for(p2pfl, place, model, command):
    account = place / "peer1.csv.budget.jsonl"
    assert p2pfl(command, model, "peer1.csv").err == ""
    account.write_text("")
    (place / "link.csv").symlink_to("peer1.csv")
    refused = p2pfl(command, model, "link.csv")
    assert refused.status == 2
    assert f"{account} counts what is spent of this table, and exact results have no cost" in refused.err
    outside = p2pfl(command, model, "link.csv", "--unaccounted")
    assert outside.status == 0
    assert f"UNACCOUNTED: {account} does not count this run" in outside.err


def test_a_proposal_from_a_table_with_an_account_warns_that_the_account_lacks_it(p2pfl, place):
    hospitals.write(place)
    assert "UNACCOUNTED" not in p2pfl("columns", "peer0.csv", "--target", "outcome").err
    (place / "peer0.csv.budget.jsonl").write_text("")
    said = p2pfl("columns", "peer0.csv", "--target", "outcome")
    assert said.status == 0
    assert f"UNACCOUNTED: {place / 'peer0.csv.budget.jsonl'} does not count this run" in said.err


def test_a_proposal_is_an_experiment_file_that_trains(p2pfl, place):
    hospitals.write(place, rows=(400, 10, 10))
    said = p2pfl("columns", "peer0.csv", "--target", "outcome")
    assert said.status == 0
    data = tomllib.loads(said.out)["data"]
    assert data["options"]["columns"] == {
        "sex": ["f", "m"],
        "age": "integer",
        "weight": "number",
        "ward": ["east", "north", "south", "west"],
        "outcome": ["ill", "well"],
    }
    assert 'note: "id" looks like an identifier and is left out; name it as `key`' in said.err
    assert 'note: "weight" is missing in 1 of 400 rows; declare `missing`, such as "drop", or fill' in said.err
    assert json.loads(p2pfl("columns", "peer0.csv", "--target", "outcome", "--json").out) == data
    data["options"]["columns"] |= {
        "weight": {"type": "number", "missing": 80_000},
        "ward": {"levels": data["options"]["columns"]["ward"], "missing": "east"},
    }
    data["options"]["path"] = "{peer}.csv"
    experiment = hospitals.experiment(place, data=data | {"scale": True}, rounds=1)
    (place / "mine.toml").write_text(tomli_w.dumps(experiment))
    assert p2pfl("simulate", "mine.toml", "--no-baselines").status == 0


def test_predictions_go_to_a_file_or_to_standard_output(p2pfl, place, model):
    assert p2pfl("predict", model, "peer1.csv", "--out", "predictions.csv").status == 0
    written = (place / "predictions.csv").read_text()
    assert p2pfl("predict", model, "peer1.csv").out == written
    rows = list(csv.DictReader(written.splitlines()))
    assert [row["prediction"] for row in rows] == Predictor.load(model).predict(place / "peer1.csv").labels
    said = p2pfl("predict", model, "peer1.csv", "--out", "none/predictions.csv")
    assert said.status == 2
    assert (
        said.err == "p2pfl: none/predictions.csv cannot be written (No such file or directory); choose another place\n"
    )


@pytest.mark.slow
def test_scores_are_printed_and_machine_readable(p2pfl, place, model):
    found = evaluate(Predictor.load(model), place / "peer1.csv", by="sex", seed=5)
    said = p2pfl("evaluate", model, "peer1.csv", "--by", "sex", "--seed", 5, "--json")
    assert json.loads(said.out) == found.results()
    said = p2pfl("evaluate", model, "peer1.csv", "--by", "sex", "--seed", 5)
    score = found.whole.scores["auc"]
    assert f"auc {score.value:.3f} {score.low:.3f} to {score.high:.3f}" in [
        " ".join(line.split()) for line in said.out.splitlines()
    ]
    assert "drawn with seed 5" in said.out
    assert [line.split()[:2] for line in said.out.splitlines() if line[:2] in {"f ", "m "}] == [
        [group.name, str(group.samples)] for group in found.groups
    ]


@pytest.mark.slow
def test_an_export_goes_beside_the_model(p2pfl, place, model):
    said = p2pfl("export", model, "--to", "torch")
    assert (said.status, said.out) == (0, f"{model.with_suffix('.pt2')}\n")
    assert model.with_suffix(".pt2").stat().st_size > 1000
    said = p2pfl("export", model, "--to", "torch", "--out", place / "model.zip")
    assert (said.status, said.err) == (
        2,
        f"p2pfl: {place}/model.zip is no name for the format torch; end it with .pt2\n",
    )


def test_wrong_input_is_one_sentence(p2pfl, place, model):
    (place / "new.csv").write_text("sex,age\nf,40\n")
    said = p2pfl("predict", model, "new.csv")
    assert (said.status, said.err) == (2, 'p2pfl: new.csv has no column "ward"; choose from age, sex\n')
    said = p2pfl("predict", "none.safetensors", "new.csv")
    assert said.status == 2
    assert said.err.startswith("p2pfl: none.safetensors is not a safetensors file (")
    said = p2pfl("columns", "new.csv", "--target", "sexx")
    assert (said.status, said.err) == (2, 'p2pfl: new.csv has no column "sexx"; did you mean "sex"?\n')
