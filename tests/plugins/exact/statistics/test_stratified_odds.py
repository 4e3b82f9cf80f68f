"""Odds ratios over strata are those of R's mantelhaen.test on the pooled rows, and no stratum shows a small cell."""

import csv
import json

import numpy as np
import pytest
import tomli_w
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.cli import main
from p2pfl.core.errors import ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.experiment import read
from p2pfl.learning import ExactLearner
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import Description
from p2pfl.plugins.exact.statistics.described import described
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from plugins.exact.rscript import computed_by_r
from swarms import live

LARGEST_ERROR = 1e-9
"""Largest relative error against R."""

BERKELEY = np.array(
    [
        [[512, 313], [89, 19]],
        [[353, 207], [17, 8]],
        [[120, 205], [202, 391]],
        [[138, 279], [131, 244]],
        [[53, 138], [94, 299]],
        [[22, 351], [24, 317]],
    ]
)
"""R's data set UCBAdmissions: departments, men and women, admitted and rejected."""

OF_R = [0.90469682825862308, 0.77190736175935049, 1.0603297644366556, 1.5246066604434356, 0.21692369705551837]
"""Odds ratio, ends of its interval, statistic and p of ``mantelhaen.test(UCBAdmissions, correct = FALSE)``, R 4.2."""

DEPARTMENTS = tuple("ABCDEF")
FIELDS = (Field("dept", DEPARTMENTS), Field("sex", ("m", "f")), Field("tall", ("no", "yes")), Field("age"))
MEANING = Meaning(columns=FIELDS, target="outcome", classes=("admitted", "rejected"))


def rows_of(tables):
    """Return department, sex and outcome of each person, by number."""
    cells = np.argwhere(np.ones_like(tables))
    return np.repeat(cells, tables.ravel(), axis=0)


def described_by(rows, *, strata, owner=None, **options):
    """Return the results of peers, each of which owns the rows of a number."""
    rng = np.random.default_rng(1)
    count, owner = len(rows), np.arange(len(rows)) % 4 if owner is None else owner
    tall = rng.integers(0, 2, count)
    sex = np.eye(2)[np.maximum(rows[:, 1], 0)] * (rows[:, 1:2] >= 0)
    features = np.column_stack([np.eye(6)[rows[:, 0]], sex, np.eye(2)[tall], rng.integers(18, 40, count)])
    dataset = Dataset(torch.from_numpy(features), torch.from_numpy(rows[:, 2]), 2, description=MEANING)
    graph = topology.complete(int(owner.max()) + 1)
    parts = {peer: np.flatnonzero(owner == number) for number, peer in enumerate(graph.peers)}
    nothing = dict.fromkeys(graph.peers, np.arange(0))
    federation = Federation(dataset, parts, nothing, nothing)
    model = Description(features=11, classes=2, fields=FIELDS, by="sex", strata=strata, **options)
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=1, baselines=False)
    tensors = {name: value.numpy() for name, value in run.models["peer0"].items()}
    results = described(tensors, model, MEANING)
    columns = {"dept": rows[:, 0], "sex": rows[:, 1], "outcome": rows[:, 2], "tall": tall, "site": owner}
    stratified = results["groups"]["stratified"]
    return {each["name"]: each for each in stratified["columns"]}, columns, results


def numbers_of(row):
    return np.array([row[key] for key in ("odds_ratio", "low", "high", "statistic", "p")])


def largest_error(found, wanted):
    return float(np.max(np.abs(np.array(found) - wanted) / np.abs(wanted)))


@pytest.mark.parametrize("strata", ["dept", "peer"])
def test_admissions_to_berkeley_have_the_odds_ratio_that_r_prints(strata):
    rows = rows_of(BERKELEY)
    owner = rows[:, 0] if strata == "peer" else None
    columns, _, results = described_by(rows, strata=strata, owner=owner)
    assert largest_error(numbers_of(columns["outcome"]), OF_R) < LARGEST_ERROR
    assert (columns["outcome"]["level"], columns["outcome"]["strata"]) == ("rejected", 6)
    assert (results["groups"]["stratified"]["by"], results["groups"]["stratified"]["group"]) == (strata, "f")


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("strata", ["dept", "peer"])
def test_odds_ratios_over_strata_are_those_of_r(strata, tmp_path, against_r):
    found, columns, _ = described_by(rows_of(BERKELEY), strata=strata)
    by = {"dept": "dept", "peer": "site"}[strata]
    code = f"""
    for (y in c("tall", "outcome")) {{
      m <- mantelhaen.test(table(d$sex, d[[y]], d${by}), correct = FALSE)
      show(c(m$estimate, m$conf.int, m$statistic, m$p.value))
    }}
    """
    wanted = computed_by_r(code, columns, tmp_path, packages=("stats",))
    assert [*found] == ["tall", "outcome"]
    for name, numbers in zip(found, wanted, strict=True):
        against_r("mantelhaen.test: odds ratio, interval, statistic, p", numbers_of(found[name]), numbers)


def test_people_without_a_group_and_strata_of_one_person_count_for_nothing():
    rows = rows_of(BERKELEY)
    columns, *_ = described_by(rows, strata="dept", least=1)
    lonely = np.concatenate([rows[rows[:, 0] != 5], [[5, 0, 1]]])
    less, *_ = described_by(lonely, strata="dept", least=1)
    groupless, *_ = described_by(np.concatenate([lonely, [[0, -1, 0]] * 7]), strata="dept", least=1)
    assert columns["outcome"]["strata"] == 6
    assert less["outcome"]["strata"] == groupless["outcome"]["strata"] == 5
    assert np.array_equal(numbers_of(less["outcome"]), numbers_of(groupless["outcome"]))


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("strata", ["dept", "peer"])
def test_a_column_with_a_small_cell_of_a_stratum_has_no_odds_ratio(strata):
    tables = BERKELEY.copy()
    tables[1, 1, 1] = 3  # women whom department B has rejected
    rows = rows_of(tables)
    owner = rows[:, 0] if strata == "peer" else None
    columns, _, results = described_by(rows, strata=strata, owner=owner)
    assert [*columns] == ["tall"]
    assert any('column "outcome" has no stratified odds ratio' in each for each in results["warnings"])
    unchecked, *_ = described_by(rows, strata=strata, owner=owner, least=1)
    assert unchecked["outcome"]["odds_ratio"] is not None


@pytest.mark.slow
def test_people_without_a_group_are_a_cell_that_is_checked():
    """The totals of a stratum, less those of both groups, are those of the people without a group."""
    groupless = [[0, -1, 0]] * 4 + [[0, -1, 1]] * 3 + [[1, -1, 0]] * 5 + [[1, -1, 1]] * 5
    assert "outcome" not in described_by(np.concatenate([rows_of(BERKELEY), groupless]), strata="dept")[0]
    assert "outcome" in described_by(np.concatenate([rows_of(BERKELEY), groupless * 2]), strata="dept")[0]


def test_odds_ratios_that_do_not_exist_are_not_stated():
    tables = BERKELEY.copy()
    tables[:, 0, 1] = 0
    columns, *_ = described_by(rows_of(tables), strata="dept")
    assert columns["outcome"]["odds_ratio"] is None
    assert columns["outcome"]["p"] < 1e-9


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"strata": "dept"}, "for the odds ratio of two groups"),
        ({"strata": "sex", "by": "dept"}, "for the odds ratio of two groups"),
        ({"strata": "sex", "by": "sex"}, 'strata and by both name "sex"'),
        ({"strata": "age", "by": "sex"}, 'strata is "age", which is no column with levels'),
    ],
)
def test_strata_without_a_comparison_are_refused(options, sentence):
    with pytest.raises(ModelError, match=sentence):
        Description(features=11, classes=2, fields=FIELDS, **options)


def test_the_statement_says_what_strata_show():
    assert "each group and stratum" in Description.shown({"by": "sex", "strata": "peer"})
    assert "stratum" not in Description.shown({"by": "sex"})


@pytest.fixture(scope="module")
def berkeley(tmp_path_factory):
    """Return the file of an experiment on tables of three peers."""
    folder = tmp_path_factory.mktemp("berkeley")
    names = (DEPARTMENTS, ("m", "f"), ("admitted", "rejected"))
    rows = [
        [levels[each] for levels, each in zip(names, row, strict=True)]
        for row in rows_of(np.maximum(BERKELEY // 4, 12)).tolist()
    ]
    for number in range(3):
        with (folder / f"peer{number}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["dept", "sex", "outcome"], *rows[number::3]])
    columns = dict(zip(("dept", "sex", "outcome"), map(list, names), strict=True))
    options = {"path": str(folder / "{peer}.csv"), "target": "outcome", "columns": columns}
    table = {"topology": {"kind": "complete", "peers": 3}, "data": {"name": "table", "options": options}}
    (folder / "berkeley.toml").write_text(tomli_w.dumps(table))
    return folder / "berkeley.toml"


@pytest.mark.slow
@pytest.mark.parametrize("strata", ["dept", "peer"])
async def test_live_peers_end_with_the_odds_ratios_of_the_simulation(berkeley, strata):
    options = f'model.options={{by="sex", strata="{strata}", least=2}}'
    changes = ["model.name=description", options, "privacy.mode=pairwise", "rounds=1", "transport.patience=20.0"]
    experiment = read(berkeley, changes=changes)
    source = SeededSource(5)
    run = simulate(experiment, source=source)
    ended = await live(experiment, MemoryTransport(), source=source)
    for name, end in ended.items():
        for key, tensor in end.peer.plan.learner.state_dict(end.state.rows[0]).items():
            assert np.array_equal(tensor.numpy(), run.models[name][key].numpy(), equal_nan=True)
    assert run.models["peer0"]["odds_sums"].any()


@pytest.mark.slow
def test_the_command_prints_and_writes_odds_ratios(berkeley, tmp_path, capsys):
    files = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "html", "tex", "docx")}
    named = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    command = ["describe", str(berkeley), "--by", "sex", "--strata", "dept", "--least", "2"]
    assert main([*command, "--json", *named]) == 0
    [row] = json.loads(capsys.readouterr().out)["groups"]["stratified"]["columns"]
    with files["csv"].open() as file:
        rows = [each for each in csv.DictReader(file) if each["column"] == "outcome"]
    assert {float(each["odds_ratio"]) for each in rows} == {row["odds_ratio"]}
    for path in (files["html"], files["tex"]):
        assert "Odds of a level if sex = f, stratified by dept" in path.read_text()
    assert main(command) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"outcome = rejected {row['odds_ratio']:.4g} {row['low']:.4g} to {row['high']:.4g}" in printed
