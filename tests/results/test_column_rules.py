"""Rules of columns in saved models: predictions and exports apply those of training."""

import csv

import numpy as np
import pytest

from p2pfl.core.errors import DataError, ModelError
from p2pfl.results.models import Predictor, evaluate, export
from p2pfl.simulation import simulate

COLUMNS = {
    "age": "number",
    "chol": {"type": "number", "missing_codes": [-9], "range": [100, 600], "outside": "missing", "missing": 200},
    "stage": {"levels": [1, 2, 3], "missing_codes": [9], "missing": 3},
    "y": "number",
}


@pytest.fixture
def experiment(tmp_path):
    """Return an experiment with tables whose missing values have codes."""
    rng = np.random.default_rng(5)
    for owner in range(3):
        with (tmp_path / f"peer{owner}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*COLUMNS, "visit"])
            for row in range(60):
                chol = [-9, 9999, *range(150, 250, 7)][row % 17]
                age = rng.integers(20, 80)
                writer.writerow(
                    [age, chol, [1, 2, 3, 9][row % 4], age + chol % 7 + row % 4, f"2020-01-{1 + row % 28:02}"]
                )
    return {
        "rounds": 3,
        "topology": {"kind": "complete", "peers": 3},
        "data": {"name": "table", "options": {"path": str(tmp_path / "{peer}.csv"), "target": "y", "columns": COLUMNS}},
        "model": {"name": "glm"},
        "privacy": {"mode": "pairwise"},
    }


def saved(experiment, folder):
    """Return the model of a peer after training."""
    simulate(experiment, folder=folder, baselines=False)
    return Predictor.load(folder / "peers" / "peer0.safetensors")


def table(tmp_path, *rows):
    path = tmp_path / "new.csv"
    path.write_text("\n".join(["age,chol,stage,visit", *rows]))
    return path


@pytest.mark.slow
def test_a_saved_model_applies_the_rules_of_its_columns(experiment, tmp_path):
    predictor = saved(experiment, tmp_path / "run")
    coded = predictor.predict(table(tmp_path, "50,-9,9,", "50,9999,9.0,")).values
    replaced = predictor.predict(table(tmp_path, "50,200,3,", "50,200,3,")).values
    assert coded.tolist() == replaced.tolist()


@pytest.mark.slow
def test_a_model_of_complete_rows_and_dates_predicts_for_such_rows(experiment, tmp_path):
    options = experiment["data"]["options"]
    options["columns"] = COLUMNS | {
        "chol": COLUMNS["chol"] | {"missing": "drop"},
        "visit": {"type": "date", "since": "2019-12-31"},
    }
    predictor = saved(experiment, tmp_path / "run")
    one, next_day = predictor.predict(table(tmp_path, "50,200,1,2020-01-05", "50,200,1,2020-01-06")).values
    assert one != next_day
    with pytest.raises(DataError, match=r'line 2: "-9" in column "chol" is missing; fill the cell, or remove the row'):
        predictor.predict(table(tmp_path, "50,-9,1,2020-01-05"))
    (tmp_path / "scored.csv").write_text((tmp_path / "peer1.csv").read_text())
    evaluation = evaluate(predictor, tmp_path / "scored.csv", draws=10)
    assert (evaluation.whole.samples, evaluation.left_out) == (52, 8)
    assert evaluation.results()["left_out"] == 8


@pytest.mark.slow
def test_an_estimator_of_scikit_learn_applies_the_rules(experiment, tmp_path):
    pandas = pytest.importorskip("pandas")
    experiment["model"] = {"name": "boosting", "options": {"min_samples_leaf": 2}}
    predictor = saved(experiment, tmp_path / "run")
    scope = {"__name__": "exported"}
    exec(export(predictor, tmp_path / "model.py", to="sklearn").read_text(), scope)  # noqa: S102
    rows = table(tmp_path, "50,-9,9,", "50,9999,9.0,", "30,180,1,")
    cells = pandas.read_csv(rows, dtype=object)
    assert np.allclose(scope["estimator"].predict(cells), predictor.predict(rows).values, rtol=1e-6)
    options = experiment["data"]["options"]
    options["columns"] = COLUMNS | {"visit": {"type": "date", "since": "2019-12-31"}}
    dated = saved(experiment, tmp_path / "dates")
    with pytest.raises(ModelError, match=r'column "visit" has dates, which an estimator of scikit-learn does not read'):
        export(dated, tmp_path / "dates.py", to="sklearn")
