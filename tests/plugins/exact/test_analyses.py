"""Regressions and statistics in one call of Python, against the commands and live peers."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import p2pfl
from p2pfl.core.errors import DataError, InputError

PEERS = ("east", "north", "west")
COLUMNS = {"age": "integer", "smoke": "integer", "low": ["0", "1"]}
FILE = """
rounds = 30
topology = { kind = "complete", peers = ["east", "north", "west"] }
data = { name = "table", options = { path = "{peer}.csv", target = "low", columns = { age = "integer", smoke = "integer", low = ["0", "1"] } } }
model = { name = "glm", options = { formula = "low ~ age + smoke" } }
privacy = { mode = "none" }
"""  # noqa: E501 (a file)


def tables(rows=60):
    """Return a table of each peer."""
    drawn = np.random.default_rng(7)
    made = {}
    for peer in PEERS:
        age, smoke = drawn.integers(20, 60, rows), drawn.integers(0, 2, rows)
        low = (drawn.random(rows) < 1 / (1 + np.exp(-(age - 40) / 15 - smoke))).astype(int)
        month = drawn.integers(1, 7, rows)
        made[peer] = pd.DataFrame({"age": age, "smoke": smoke, "month": month, "low": low})
    return made


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Paths of the tables by peer, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for peer, table in tables().items():
        table.to_csv(f"{peer}.csv", index=False)
    return {peer: f"{peer}.csv" for peer in PEERS}


def test_glm_of_data_frames_equals_that_of_files_and_of_an_experiment(files, tmp_path):
    (tmp_path / "births.toml").write_text(FILE)
    fits = [p2pfl.glm("low ~ age + smoke", data) for data in (tables(), files, tmp_path / "births.toml")]
    assert [fit.table().equals(fits[0].table()) for fit in fits] == [True] * 3
    assert fits[0].table()["feature"].tolist() == ["age", "smoke", "(intercept)"]
    assert "odds ratio" in repr(fits[0])
    assert (tmp_path / "east.csv.budget.jsonl").is_file()


@pytest.mark.slow
def test_glm_prints_the_coefficients_of_the_command(request, files, tmp_path):
    command = request.getfixturevalue("p2pfl")
    (tmp_path / "births.toml").write_text(FILE)
    assert command("simulate", "births.toml", "--runs", "runs").status == 0
    [model] = Path.cwd().glob("runs/*/peers/east.safetensors")
    printed = json.loads(command("coefficients", str(model), "--json").out)
    assert p2pfl.glm("low ~ age + smoke", files).results["coefficients"] == printed["coefficients"]


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_the_result_of_live_peers_is_that_of_the_simulation(tmp_path):
    (tmp_path / "births.toml").write_text(FILE)
    run = asyncio.run(p2pfl.live("births.toml", baselines=False, unaccounted=True))
    assert p2pfl.Analysis.of(run).table().equals(p2pfl.glm("low ~ age + smoke", tables()).table())


def test_cox_and_survival_take_the_column_of_the_event():
    data = tables()
    fit = p2pfl.cox("month ~ age + smoke", data, event="low", options={"horizon": 6, "least": 1})
    assert fit.table()["feature"].tolist() == ["age", "smoke"]
    curve = p2pfl.survival(data, time="month", event="low", options={"horizon": 6})
    pooled = pd.concat(data.values())
    first = 1 - pooled[pooled.month == 1].low.sum() / len(pooled)
    assert curve.table()["survival"][0] == pytest.approx(first, rel=1e-12)


def test_describe_states_the_means_of_all_rows():
    table = p2pfl.describe(tables()).table().set_index("column")
    assert table.loc["age", "mean"] == pytest.approx(pd.concat(tables().values()).age.mean(), rel=1e-12)


def test_a_level_of_two_people_ends_the_regression():
    data = tables()
    data["east"].loc[:1, "smoke"] = 2
    columns = COLUMNS | {"smoke": ["0", "1", "2"]}
    with pytest.raises(InputError, match="smoke"):
        p2pfl.glm("low ~ age + smoke", data, columns=columns)


def test_a_run_that_two_people_have_left_is_refused_beside_files(files):
    p2pfl.glm("low ~ age + smoke", files)
    tables()["east"][:-2].to_csv("east.csv", index=False)
    with pytest.raises(InputError, match=r"east\.csv\.budget\.jsonl"):
        p2pfl.glm("low ~ age + smoke", files)


def test_files_without_a_common_path_are_refused(files):
    with pytest.raises(DataError, match="differ in the names of the peers alone"):
        p2pfl.glm("low ~ age", files | {"west": "elsewhere/west.csv"})


def test_a_formula_needs_a_target():
    with pytest.raises(InputError, match="left side"):
        p2pfl.glm("age + smoke", tables())


def test_a_run_of_another_model_has_no_table():
    run = p2pfl.simulate({"rounds": 1, "topology": {"kind": "complete", "peers": 2}}, baselines=False)
    with pytest.raises(InputError, match="no table of results"):
        p2pfl.Analysis.of(run)
