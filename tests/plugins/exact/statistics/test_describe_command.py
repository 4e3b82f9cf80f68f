"""p2pfl describe: statistics of tables that peers own, simulated and from live peers."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import tomli_w

from p2pfl.cli import main
from p2pfl.experiment import read
from p2pfl.experiment.schema import PrivacySettings
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.broker import embedded, mosquitto
from p2pfl.plugins.exact import statistics_commands
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.spending.budget import Budget
from p2pfl.simulation import simulate
from swarms import live

PEERS = 4
COLUMNS = {
    "age": "integer",
    "weight": {"type": "number", "missing": float("nan")},
    "sex": ["f", "m"],
    "rare": ["common", "unusual"],
    "ill": ["no", "yes"],
}


@pytest.mark.slow
def test_columns_that_look_like_identifiers_or_timestamps_are_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    columns = dict.fromkeys(("patient", "seen", "age", "pulse"), "number") | {"ill": ["no", "yes"]}
    for peer in range(2):
        frame = pd.DataFrame(
            {
                "patient": 1000 * (peer + 1) + rng.permutation(150),
                "seen": rng.integers(1_600_000_000, 1_800_000_000, 150),
                "age": rng.integers(20, 90, 150),
                "pulse": rng.normal(70, 9, 150),
                "ill": np.where(rng.random(150) < 0.5, "yes", "no"),
            }
        )
        frame.to_csv(tmp_path / f"peer{peer}.csv", index=False)
    options = {"path": str(tmp_path / "{peer}.csv"), "target": "ill", "columns": columns}
    table = {"topology": {"kind": "complete", "peers": 2}, "data": {"name": "table", "options": options}}
    (tmp_path / "clinic.toml").write_text(tomli_w.dumps(table))
    page = tmp_path / "clinic.html"
    assert main(["describe", str(tmp_path / "clinic.toml"), "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)["warnings"]
    seen = 'column "seen" looks like an identifier or a timestamp, and models in single precision are '
    assert found == [
        'column "patient" looks like an identifier, because all values of each peer differ; leave it out',
        seen + "exact up to 16,777,216 only; leave it out, or give a difference of times",
    ]
    assert page.read_text().count("looks like an identifier") == 2
    assert main(["describe", str(tmp_path / "clinic.toml")]) == 0
    assert capsys.readouterr().out.count("warning: column") == 2


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Return the file of an experiment, and the pooled table."""
    folder = tmp_path_factory.mktemp("clinic")
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, 300)
    frame = pd.DataFrame(
        {
            "age": age,
            "weight": np.where(rng.random(300) < 0.1, np.nan, rng.normal(75, 12, 300).astype(np.float32).astype(float)),
            "sex": np.where(rng.random(300) < 0.5, "f", "m"),
            "rare": np.where(np.arange(300) % 100 == 1, "unusual", "common"),
            "ill": np.where(rng.random(300) < age / 100, "yes", "no"),
        }
    )
    for number in range(PEERS):
        frame[number::PEERS].to_csv(folder / f"peer{number}.csv", index=False)
    table = {
        "name": "clinic",
        "topology": {"kind": "complete", "peers": PEERS},
        "data": {
            "name": "table",
            "options": {"path": str(folder / "{peer}.csv"), "target": "ill", "columns": COLUMNS},
        },
    }
    path = folder / "clinic.toml"
    path.write_text(tomli_w.dumps(table))
    return path, frame


@pytest.mark.slow
def test_the_statistics_are_those_of_pandas(clinic, tmp_path, capsys):
    path, frame = clinic
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    assert main(["describe", str(path), "--json", "--html", str(page), "--csv", str(table), "--least", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["samples"] == 300  # training, validation and test parts
    by_name = {column["name"]: column for column in found["columns"]}
    oracle = frame.describe()
    for name in ("age", "weight"):
        own = by_name[name]
        assert own["count"] == oracle[name]["count"]
        assert own["missing"] == frame[name].isna().sum()
        assert own["mean"] == pytest.approx(oracle[name]["mean"], rel=1e-12)
        assert own["deviation"] == pytest.approx(oracle[name]["std"], rel=1e-12)
        assert own["quantiles"]["0.5"] == pytest.approx(oracle[name]["50%"], rel=2**-7)
        assert sum(own["counts"]) == own["count"] if None not in own["counts"] else True
    assert by_name["sex"]["levels"] == frame["sex"].value_counts().to_dict()
    assert by_name["rare"]["levels"] == {"common+unusual": 300}  # three samples
    numbers = frame.assign(sex=frame.sex == "m", ill=frame.ill == "yes")[["age", "weight", "sex", "ill"]].astype(float)
    names = found["names"]
    pairs = [(names.index(one), names.index(two)) for one, two in [("age", "weight"), ("sex: m", "ill: yes")]]
    assert [found["correlations"][one][two] for one, two in pairs] == pytest.approx(
        [numbers.corr()["age"]["weight"], numbers.corr()["sex"]["ill"]], abs=1e-7
    )
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["level"] for row in rows if row["column"] == "sex"] == ["f", "m"]
    assert "how many samples have each value of each column" in page.read_text()


@pytest.mark.slow
def test_the_terminal_shows_numbers_levels_and_correlations(clinic, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["describe", str(clinic[0])]) == 0
    printed = capsys.readouterr().out
    assert "age" in printed
    assert "common+unusual" in printed
    assert "300 samples of all peers; nothing is stated of fewer than 5" in printed
    assert main(["describe", str(clinic[0]), "--no-correlations", "--bins", "3"]) == 0
    assert "strongest correlations" not in capsys.readouterr().out


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("width", "last"), [(200, "histogram"), (90, "histogram"), (80, "75%"), (62, "75%")])
def test_no_heading_and_no_number_is_cut_on_a_narrow_terminal(clinic, capsys, monkeypatch, width, last):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["describe", str(clinic[0])]) == 0
    printed = capsys.readouterr().out
    assert "…" not in printed
    head, *rows = printed.partition("\n\n")[0].splitlines()
    assert max(map(len, (head, *rows))) <= width
    assert head.split()[-1] == last
    assert ("5%" in printed.split()) == (width == 200)


def test_a_long_name_takes_several_lines_before_a_number_is_cut(clinic, capsys, monkeypatch):
    assert main(["describe", str(clinic[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    found["columns"][0]["name"] = "age_in_years"
    monkeypatch.setenv("COLUMNS", "64")
    statistics_commands.show_description(found)
    head, first, rest, *_ = capsys.readouterr().out.splitlines()
    assert "".join((first.split()[0], rest.strip())) == "age_in_years"
    assert [head.split()[-1], first.split()[-1]] == ["75%", "75.25"]


@pytest.mark.slow
async def test_live_peers_describe_their_data_as_the_command_does(clinic, tmp_path, capsys):
    changes = ["model.name=description", "privacy.mode=pairwise", "rounds=1"]
    experiment = read(clinic[0], changes=[*changes, "transport.patience=20.0"])
    source = SeededSource(5)
    run = simulate(experiment, folder=tmp_path / "run", source=source)
    ended = await live(experiment, MemoryTransport(), source=source)
    for name, end in ended.items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), run.models[name][key].numpy(), equal_nan=True)
    assert main(["describe", str(clinic[0]), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["describe", str(tmp_path / "run" / "peers" / "peer2.safetensors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made


@pytest.mark.slow
@pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")
async def test_peers_over_mosquitto_describe_their_data_as_the_simulation_does(clinic):
    changes = ["model.name=description", "privacy.mode=pairwise", "rounds=1", "topology.kind=ring"]
    experiment = read(clinic[0], changes=[*changes, "transport.patience=20.0"])
    source = SeededSource(5)
    with embedded(kind="mosquitto") as broker:
        ended = await live(experiment, connect(experiment, urls=[broker.url], peer="all"), source=source)
    run = simulate(experiment, source=source, baselines=False)
    assert len(ended) == PEERS
    for name, end in ended.items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), run.models[name][key].numpy(), equal_nan=True)


@pytest.mark.parametrize("command", ["describe", "components"])
def test_exact_statistics_of_data_with_an_account_need_to_be_asked_for(clinic, tmp_path, capsys, command):
    path, account = clinic[0], tmp_path / "spent.jsonl"
    Budget(account, PrivacySettings(), ["peer0"]).spend(["peer0"], run="x", round=0, cost=Cost(0.5))
    kept = account.read_text()
    named = ["--set", f"privacy.budget={json.dumps(str(account))}", "--set", "privacy.epsilon=8.0"]
    named += ["--set", "privacy.mode=independent", "--set", "data.options.columns.weight.missing=70.0", "--least", "3"]
    assert main([command, str(path), *named]) == 2
    assert f"{account} counts the cost of runs on this data for each peer" in capsys.readouterr().err
    assert main([command, str(path), *named, "--unaccounted", "--json"]) == 0
    said = capsys.readouterr()
    assert f"UNACCOUNTED: {account} does not count this run" in said.err
    assert "two such results of which one lacks a sample, or a peer, show by their difference exactly" in said.err
    assert json.loads(said.out)["samples"] >= 240
    assert account.read_text().startswith(kept)
    runs = [json.loads(line) for line in account.read_text().removeprefix(kept).splitlines()]
    assert [run["peer"] for run in runs] == ["peer0", "peer1", "peer2", "peer3"]
    assert all(run["accepted"] == ["no cost of this run is counted"] for run in runs)


def remove_account(path):
    """Remove an account and its key, so that the data begin anew."""
    path.unlink()
    path.with_name(f"{path.name}.key").unlink()


@pytest.mark.slow
def test_a_private_description_runs_as_the_experiment_says(clinic, tmp_path, capsys):
    path, frame = clinic
    folder = tmp_path / "run"
    bounds = {"age": [18, 90], "weight": [30, 150]}
    changes = ["model.name=private_description", "rounds=1", f"model.options.bounds={json.dumps(bounds)}"]
    changes += ["privacy.mode=pairwise", "privacy.epsilon=4.0", 'privacy.mask_graph="complete"']
    account = tmp_path / "spent.jsonl"
    changes.append(f"privacy.budget={json.dumps(str(account))}")
    sets = [part for each in changes for part in ("--set", each.replace('":', '" ='))]
    page = tmp_path / "page.html"
    assert main(["describe", str(path), *sets, "--json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["private"]
    assert found["columns"][0]["mean"] == pytest.approx(frame["age"].mean(), abs=10)
    assert sum(found["columns"][2]["levels"].values()) == pytest.approx(300, abs=60)
    assert "Every number has private noise" in page.read_text()
    assert sum('"round"' in line for line in account.read_text().splitlines()) == PEERS
    assert main(["describe", str(path), *sets]) == 2
    assert (
        f"as 4 is spent already by {account}; raise it and set privacy.noise, or stop here" in capsys.readouterr().err
    )
    remove_account(account)
    simulate(read(path, changes=[each.replace('":', '" =') for each in changes]), folder=folder, baselines=False)
    assert main(["describe", str(folder / "peers" / "peer0.safetensors")]) == 0
    assert "samples of all peers; with private noise" in capsys.readouterr().out
    assert main(["describe", str(path), *sets, "--bins", "3"]) == 2
    assert "options of private_description are in model.options, so --bins has no effect" in capsys.readouterr().err


def test_another_model_is_refused(clinic, tmp_path, capsys):
    simulate(
        read(clinic[0], changes=["model.name=linear", "rounds=1", "data.options.columns.weight.missing=70.0"]),
        folder=tmp_path / "run",
        baselines=False,
    )
    assert main(["describe", str(tmp_path / "run" / "peers" / "peer2.safetensors")]) == 2
    assert 'is a model linear; "p2pfl describe" takes an experiment' in capsys.readouterr().err


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Return the file of an experiment on times."""
    folder = tmp_path_factory.mktemp("trial")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "week": rng.integers(1, 30, 120),
            "died": rng.integers(0, 2, 120),
            "arm": np.where(rng.random(120) < 0.5, "old", "new"),
            "age": rng.integers(30, 80, 120),
        }
    )
    for number in range(PEERS):
        frame[number::PEERS].to_csv(folder / f"peer{number}.csv", index=False)
    columns = {"week": "number", "died": "number", "arm": ["old", "new"], "age": "number"}
    options = {"path": str(folder / "{peer}.csv"), "target": "week", "event": "died", "columns": columns}
    table = {
        "name": "trial",
        "topology": {"kind": "complete", "peers": PEERS},
        "data": {"name": "table", "options": options},
    }
    path = folder / "trial.toml"
    path.write_text(tomli_w.dumps(table))
    return path, frame


@pytest.mark.slow
def test_survival_is_printed_written_and_read_from_a_run(trial, tmp_path, capsys):
    path, frame = trial
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    command = ["survival", str(path), "--horizon", "40", "--group", "arm", "--least", "1"]
    assert main([*command, "--html", str(page), "--csv", str(table)]) == 0
    assert "log-rank test that all groups have one hazard: chi2 =" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [group["samples"] for group in made["groups"]] == [(frame.arm == arm).sum() for arm in ("old", "new")]
    assert sum(group["events"] for group in made["groups"]) == frame.died.sum()
    assert "log-log" in page.read_text()
    with table.open() as file:
        assert {row["group"] for row in csv.DictReader(file)} == {"old", "new"}
    options = 'model.options={horizon=40, group="arm", least=1}'
    changes = ["model.name=kaplan_meier", options, "privacy.mode=pairwise", "rounds=1"]
    simulate(read(path, changes=changes), folder=tmp_path / "run")
    saved = str(tmp_path / "run" / "peers" / "peer1.safetensors")
    assert main(["survival", saved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made
    assert main(["survival", saved, "--group", "arm"]) == 2
    assert "has its options already, so --group has no effect" in capsys.readouterr().err
    assert main(["survival", str(path)]) == 2
    assert "give --horizon" in capsys.readouterr().err


@pytest.mark.slow
def test_private_statistics_run_as_the_experiment_says(trial, tmp_path, capsys):
    path, _ = trial
    private = ["privacy.mode=pairwise", "privacy.epsilon=8.0", 'privacy.mask_graph="complete"', "rounds=1"]
    models = {
        "survival": ["model.name=private_kaplan_meier", 'model.options={horizon=40, width=5, group="arm"}'],
        "components": ["model.name=private_pca", "model.options={bounds={age=[30, 80]}}"],
    }
    for command, changes in models.items():
        account = f"privacy.budget={json.dumps(str(tmp_path / command))}"  # of the first run, and then of each other
        sets = [part for each in [*changes, *private, account] for part in ("--set", each)]
        assert main([command, str(path), *sets, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        samples = sum(group["samples"] for group in found["groups"]) if command == "survival" else found["samples"]
        assert samples == pytest.approx(120, abs=60)
        page = tmp_path / "page.html"
        assert main([command, str(path), *sets, "--html", str(page)]) == 2
        remove_account(tmp_path / command)
        assert main([command, str(path), *sets, "--html", str(page)]) == 0
        assert ("no test" in capsys.readouterr().out) == (command == "survival")
        assert "with private noise" in page.read_text()
        remove_account(tmp_path / command)
        folder = tmp_path / f"{command}-run"
        simulate(read(path, changes=[*changes, *private, account]), folder=folder, baselines=False)
        assert main([command, str(folder / "peers" / "peer0.safetensors")]) == 0
        capsys.readouterr()
        option = "--horizon=3" if command == "survival" else "--components=1"
        assert main([command, str(path), *sets, option]) == 2
        assert "are in model.options, so --" in capsys.readouterr().err


def test_a_description_of_times_has_the_event_beside_the_time(trial, capsys):
    path, frame = trial
    assert main(["describe", str(path), "--json"]) == 0
    columns = {column["name"]: column for column in json.loads(capsys.readouterr().out)["columns"]}
    assert columns["week"]["mean"] == pytest.approx(frame.week.mean())
    assert columns["event"]["levels"] == {"yes": frame.died.sum()}


@pytest.mark.slow
def test_components_are_printed_written_and_read_from_a_run(clinic, tmp_path, capsys):
    path = str(clinic[0])
    filled = ["--set", "data.options.columns.weight.missing=70.0", "--least", "3"]
    page, table = tmp_path / "page.html", tmp_path / "table.csv"
    paper = ["--docx", str(tmp_path / "c.docx"), "--tex", str(tmp_path / "c.tex")]
    files = ["--html", str(page), "--csv", str(table), *paper]
    assert main(["components", path, *filled, "--standardise", *files]) == 0
    assert "largest loadings" in (tmp_path / "c.tex").read_text()
    assert (tmp_path / "c.docx").read_bytes().startswith(b"PK")
    assert "300 samples of all peers, 6 features" in capsys.readouterr().out
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    assert "Share of the variance" in page.read_text()
    changes = ["model.name=pca", "model.options={standardise=true,least=3}", "privacy.mode=none", "rounds=1", filled[1]]
    simulate(read(path, changes=changes), folder=tmp_path / "run")
    assert main(["components", str(tmp_path / "run" / "peers" / "peer0.safetensors"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["variance"] for row in rows] == [str(value) for value in found["variance"]]
