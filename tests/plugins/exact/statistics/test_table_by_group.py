"""Table 1 by group equals numpy and scipy on the pooled rows, and shows no small cell."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import tomli_w
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.cli import main
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.experiment import read
from p2pfl.learning import ExactLearner
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import Description
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.plugins.exact.statistics.group_comparison import group_table, level_difference
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import live

FIELDS = (
    Field("race", ("a", "b", "c")),
    Field("drug", ("no", "yes")),
    Field("age"),
    Field("weight", missing=float("nan")),
)
MEANING = Meaning(columns=FIELDS, target="ill", classes=("healthy", "ill"))
PEERS = topology.complete(4).peers
N = 200


def pooled(seed=0):
    """Return the rows of all peers: positions of levels, whole ages, and weights of which some are missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"race": rng.choice(3, N, p=[0.5, 0.3, 0.2]), "drug": rng.integers(0, 2, N), "age": rng.integers(20, 90, N)}
    )
    frame["weight"] = np.where(rng.random(N) < 0.1, np.nan, rng.normal(70, 9, N))
    frame["ill"] = (rng.random(N) < 0.2 + 0.4 * frame["drug"]).astype(int)
    return frame


def described_by(by, frame, **options):
    """Return the results of four peers, and the columns of Table 1 by name."""
    features = np.column_stack(
        [np.eye(3)[frame["race"]], np.eye(2)[frame["drug"]], frame["age"], frame["weight"]]
    ).astype(np.float64)
    dataset = Dataset(torch.from_numpy(features), torch.tensor(frame["ill"].to_numpy()), 2, description=MEANING)
    own = {peer: np.arange(number, len(frame), 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    federation = Federation(dataset, own, nothing, dict.fromkeys(PEERS, np.arange(len(frame))))
    model = Description(features=7, classes=2, fields=FIELDS, by=by, **options)
    run = simulate(Exact(), ExactLearner(model, federation), topology.complete(4), rounds=1, baselines=False)
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    results = described(tensors, model, MEANING)
    return results, {each["name"]: each for each in results["groups"]["columns"]}


@pytest.fixture(scope="module")
def two():
    """Return the pooled rows and Table 1 by the target."""
    frame = pooled()
    return frame, *described_by("target", frame)


@pytest.mark.parametrize("name", ["age", "weight"])
def test_means_deviations_and_welch_are_those_of_scipy(two, name):
    frame, results, columns = two
    parts = [part[name].dropna() for _, part in frame.groupby("ill")]
    found = columns[name]
    assert results["groups"]["names"] == ["healthy", "ill"]
    assert results["groups"]["samples"] == frame["ill"].value_counts().sort_index().tolist()
    assert found["counts"] == [len(part) for part in parts]
    assert found["means"] == pytest.approx([part.mean() for part in parts], rel=1e-9)
    assert found["deviations"] == pytest.approx([part.std() for part in parts], rel=1e-9)
    oracle = scipy.stats.ttest_ind(*parts, equal_var=False)
    assert [found["statistic"], found["p"]] == pytest.approx([oracle.statistic, oracle.pvalue], rel=1e-9)
    spread = np.sqrt((parts[0].var() + parts[1].var()) / 2)
    assert found["smd"] == pytest.approx(abs(parts[0].mean() - parts[1].mean()) / spread, rel=1e-9)
    quartiles = [part.quantile([0.25, 0.5, 0.75]).tolist() for part in parts]
    assert found["quartiles"] == [pytest.approx(each, rel=2**-7) for each in quartiles]


def test_ranks_of_whole_numbers_are_those_of_scipy(two):
    frame, _, columns = two
    parts = [part["age"] for _, part in frame.groupby("ill")]
    oracle = scipy.stats.mannwhitneyu(*parts, method="asymptotic")
    assert columns["age"]["rank_p"] == pytest.approx(oracle.pvalue, rel=1e-9)
    assert columns["age"]["quartiles"] == [part.quantile([0.25, 0.5, 0.75]).tolist() for part in parts]


def test_levels_have_the_counts_and_the_chi_square_test_of_scipy(two):
    frame, _, columns = two
    table = pd.crosstab(frame["ill"], frame["race"]).to_numpy()
    found = columns["race"]
    assert np.array([*found["levels"].values()]).T.tolist() == table.tolist()
    oracle = scipy.stats.chi2_contingency(table, correction=False)
    assert (found["test"], found["statistic"], found["p"]) == (
        "chi-square",
        pytest.approx(oracle.statistic, rel=1e-9),
        pytest.approx(oracle.pvalue, rel=1e-9),
    )
    share = (frame.groupby("ill")["drug"]).mean().to_numpy()
    spread = (share * (1 - share)).sum() / 2
    assert columns["drug"]["smd"] == pytest.approx(abs(share[0] - share[1]) / np.sqrt(spread), rel=1e-9)


def test_three_groups_have_the_analysis_of_variance_of_scipy_and_the_mean_difference_of_all_pairs():
    frame = pooled()
    _, columns = described_by("race", frame)
    parts = [part["weight"].dropna() for _, part in frame.groupby("race")]
    oracle = scipy.stats.f_oneway(*parts)
    found = columns["weight"]
    assert (found["test"], found["rank_p"]) == ("ANOVA", None)
    assert [found["statistic"], found["p"]] == pytest.approx([oracle.statistic, oracle.pvalue], rel=1e-9)
    pairs = [
        abs(one.mean() - other.mean()) / np.sqrt((one.var() + other.var()) / 2)
        for one, other in [(parts[0], parts[1]), (parts[0], parts[2]), (parts[1], parts[2])]
    ]
    assert found["smd"] == pytest.approx(np.mean(pairs), rel=1e-9)
    assert "ill" in columns
    assert "race" not in columns


def test_few_expected_counts_have_the_test_of_fisher():
    frame = pooled()[:40].assign(ill=np.arange(40) % 4 == 0, drug=0)
    frame.loc[frame.index[frame["ill"]][:6], "drug"] = 1
    frame["ill"] = frame["ill"].astype(int)
    _, columns = described_by("target", frame, least=1)
    table = pd.crosstab(frame["ill"], frame["drug"])
    assert columns["drug"]["test"] == "Fisher"
    assert columns["drug"]["p"] == pytest.approx(scipy.stats.fisher_exact(table).pvalue, rel=1e-9)


def test_the_difference_of_levels_is_that_of_yang_and_dalton():
    one, other = np.array([30, 50, 20]), np.array([45, 35, 20])
    change = (one - other)[:2] / 100
    spread = sum(np.diag(each[:2] / 100) - np.outer(each[:2], each[:2]) / 1e4 for each in (one, other)) / 2
    oracle = np.sqrt(change @ np.linalg.inv(spread) @ change)  # any of the levels may be left out
    assert level_difference(np.stack([one, other]).astype(float)) == pytest.approx(oracle, rel=1e-9)
    assert np.isnan(level_difference(np.array([[10.0, 0.0], [0.0, 10.0]])))


def test_a_level_that_few_people_of_a_group_have_is_one_with_the_next():
    frame = pooled()
    rare = frame.index[(frame["race"] == 2) & (frame["ill"] == 1)]
    frame.loc[rare[3:], "race"] = 1  # three people of race c are ill, and many are not
    results, columns = described_by("target", frame)
    assert [*columns["race"]["levels"]] == ["a", "b+c"]
    assert [*next(each for each in results["columns"] if each["name"] == "race")["levels"]] == ["a", "b+c"]
    _, unchecked = described_by("target", frame, least=1)
    assert unchecked["race"]["levels"]["c"][1] == 3


def test_a_column_of_numbers_that_few_people_of_a_group_have_is_left_out():
    frame = pooled()
    frame.loc[frame.index[frame["ill"] == 1][2:], "weight"] = np.nan
    results, columns = described_by("target", frame)
    assert "weight" not in columns
    assert any('column "weight" is left out' in warning for warning in results["warnings"])
    assert described_by("target", frame, least=1)[1]["weight"]["counts"][1] <= 2


def test_a_group_of_few_people_is_refused_by_its_name():
    frame = pooled().assign(ill=(np.arange(N) < 3).astype(int))
    with pytest.raises(DataError, match=r"fewer than 5 people share a value of .*group target=1"):
        described_by("target", frame)


def test_a_mean_that_one_person_dominates_is_hidden_in_all_groups():
    frame = pooled()
    frame.loc[frame.index[frame["ill"] == 1][0], "weight"] = 1e6
    _, columns = described_by("target", frame)
    assert columns["weight"]["means"] == [None, None]
    assert columns["weight"]["p"] is None
    assert None not in columns["age"]["means"]


def test_a_column_without_levels_is_refused():
    with pytest.raises(ModelError, match='by is "age", which is no column with levels; choose from race, drug, target'):
        Description(features=7, classes=2, fields=FIELDS, by="age")


def test_rows_of_the_table_are_those_of_a_paper(two):
    frame, results, _ = two
    rows = group_table(results).rows
    sizes = frame["ill"].value_counts().sort_index().tolist()
    assert group_table(results).heads[2:5] == (
        f"all (n = {N})",
        f"healthy (n = {sizes[0]})",
        f"ill (n = {sizes[1]})",
    )
    assert [row[:2] for row in rows[:3]] == [["race, n (%)", "a"], ["", "b"], ["", "c"]]
    assert [row[0] for row in rows[-3:]] == ["weight, mean (SD)", "weight, median [Q1, Q3]", "weight, n"]


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """Return the file of an experiment on tables of three peers."""
    folder = tmp_path_factory.mktemp("clinic")
    frame = pooled().drop(columns="race")
    frame["drug"], frame["ill"] = frame["drug"].map({0: "no", 1: "yes"}), frame["ill"].map({0: "healthy", 1: "ill"})
    for number in range(3):
        frame[number::3].to_csv(folder / f"peer{number}.csv", index=False)
    columns = {
        "drug": ["no", "yes"],
        "age": "integer",
        "weight": {"type": "number", "missing": float("nan")},
        "ill": ["healthy", "ill"],
    }
    options = {"path": str(folder / "{peer}.csv"), "target": "ill", "columns": columns}
    table = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "table", "options": options}}
    path = folder / "clinic.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.mark.slow
def test_the_command_writes_table_1_to_all_files(clinic, tmp_path, capsys):
    files = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "html", "tex", "docx")}
    named = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    assert main(["describe", str(clinic), "--by", "ill", "--json", *named]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups["by"] == "ill"
    with files["csv"].open() as file:
        rows = [row for row in csv.DictReader(file) if row["column"] == "age"]
    assert [float(row["mean"]) for row in rows] == next(each for each in groups["columns"] if each["name"] == "age")[
        "means"
    ]
    assert "also by group" in files["html"].read_text()
    assert "Characteristics by ill" in files["html"].read_text()
    assert r"\begin{tabular}{llrrrrrr}" in files["tex"].read_text()
    assert files["docx"].stat().st_size > 0


@pytest.mark.slow
async def test_live_peers_end_with_the_table_of_the_command(clinic, tmp_path, capsys):
    changes = ["model.name=description", 'model.options.by="drug"', "privacy.mode=pairwise", "rounds=1"]
    experiment = read(clinic, changes=[*changes, "transport.patience=20.0"])
    source = SeededSource(5)
    run = simulate(experiment, folder=tmp_path / "run", source=source)
    ended = await live(experiment, MemoryTransport(), source=source)
    for name, end in ended.items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), run.models[name][key].numpy(), equal_nan=True)
    assert main(["describe", str(clinic), "--by", "drug", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["describe", str(tmp_path / "run" / "peers" / "peer2.safetensors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == made


@pytest.mark.slow
@pytest.mark.parametrize(("width", "kept"), [(200, ["SMD", "p", "test"]), (80, [])])
def test_a_narrow_terminal_keeps_the_names_of_table_1_and_leaves_tests_out(clinic, capsys, monkeypatch, width, kept):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["describe", str(clinic), "--by", "drug"]) == 0
    table = capsys.readouterr().out.partition("\n\n")[0]
    for word in ("characteristic", "age, mean", "weight,", "no (n = 99)", "yes (n = 101)", "healthy", *kept):
        assert word in table, table
    assert ("Welch t" in table) == bool(kept)
