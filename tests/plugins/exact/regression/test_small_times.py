"""Cells of time that few people leave in: Cox models and survival curves refuse or widen them."""

import asyncio
import csv
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from p2pfl import live, read, simulate, topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import Cox, KaplanMeier
from p2pfl.plugins.exact.survival.time_cells import MAX_CELLS
from plugins.exact.hospital_cases import case

FIELDS = (Field("sex", ("f", "m")), Field("age"))
PEERS = topology.complete(4).peers


def federation(times, event, sex=None, *, seed=0):
    """Return four hospitals with people of some times, in turn; they own what they test on."""
    rng = np.random.default_rng(seed)
    count = len(times)
    sex = rng.integers(0, 2, count) if sex is None else np.asarray(sex)
    features = np.column_stack([np.eye(2)[sex], rng.uniform(20, 90, count)])
    targets = torch.from_numpy(np.where(event, times, -np.asarray(times, float)))
    dataset = Dataset(torch.from_numpy(features), targets, None, description=Description(columns=FIELDS))
    own = {peer: np.arange(number, count, 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return Federation(dataset, own, nothing, nothing)


def people(count=400, *, seed=0):
    rng = np.random.default_rng(seed)
    return federation(rng.exponential(40, count).clip(0.1, 99).round(1), rng.uniform(size=count) < 0.7)


def run(model, data):
    """Return the tensors after a run between the peers of some data."""
    ended = simulate(Exact(), ExactLearner(model, data), topology.complete(4), rounds=40, baselines=False)
    return {name: value.numpy() for name, value in ended.models["peer0"].items()}


def cox(**options):
    return Cox(features=3, classes=None, horizon=100.0, fields=FIELDS, **options)


def curve(**options):
    return KaplanMeier(features=3, classes=None, horizon=100.0, fields=FIELDS, owned=True, **options)


def begins(tensors):
    return tensors["times"][: int(tensors["time_count"][0])]


def cells_of(data, starts):
    """Return people by cell of time, event and sex, ``[cells, 2, 2]``."""
    targets = data.dataset.targets.numpy()
    cell = np.searchsorted(starts, np.abs(targets), side="right") - 1
    table = np.zeros((len(starts), 2, 2), int)
    np.add.at(table, (cell, (targets > 0).astype(int), data.dataset.features[:, 1].numpy().astype(int)), 1)
    return table


@pytest.mark.parametrize("kind", [cox, curve])
def test_a_day_that_one_person_leaves_on_ends_a_model_without_a_count(kind):
    with pytest.raises(DataError, match=r'fewer than 5 people leave in a cell of time.*width = "auto"') as error:
        run(kind(), people())
    assert not {"1", "2", "3", "4"} & {*str(error.value)}
    run(kind(least=1), people())


@pytest.mark.parametrize("kind", [cox, curve])
def test_cells_of_time_that_are_cut_have_people_enough_by_event(kind):
    data = people()
    starts = begins(run(kind(width="auto"), data))
    table = cells_of(data, starts)
    assert 5 <= len(starts) <= MAX_CELLS
    assert table.sum(axis=(1, 2)).min() >= 5
    for counts in (table, table.sum(axis=2)) if kind is cox else (table.sum(axis=2),):
        assert not ((counts > 0) & (counts < 5)).any()


def test_groups_of_a_curve_have_people_enough_in_each_cell():
    data = people()
    table = cells_of(data, begins(run(curve(width="auto", group="sex"), data)))
    assert not ((table > 0) & (table < 5)).any()


def test_a_woman_alone_among_those_who_leave_in_a_cell_is_a_small_cell_of_cox():
    times, event = np.repeat([10.5, 20.5, 30.5], 40), np.tile([True, False], 60)
    sex = np.tile([0, 0, 1, 1], 30)
    run(cox(width=10.0), federation(times, event, sex))
    sex[:20:4] = 1  # of ten women who leave in the first cell with the event, half are men
    sex[20] = 1
    with pytest.raises(DataError, match="and share a value of sex=f, so totals"):
        run(cox(width=10.0), federation(times, event, sex))
    run(curve(width=10.0), federation(times, event, sex))


def test_a_stratum_of_few_people_ends_a_model_by_its_name_and_without_its_count():
    times, event = np.repeat([10.5, 20.5, 30.5], 40), np.tile([True, False], 60)
    sex = np.tile([0, 0, 1, 1], 30)
    run(cox(width=10.0, strata="sex"), federation(times, event, sex))
    sex[sex == 1] = np.arange(60) // 57  # three men are left
    with pytest.raises(DataError, match=r"fewer than 5 people of sex=m leave .*; merge sex=m with another") as error:
        run(cox(width=10.0, strata="sex"), federation(times, event, sex))
    assert "3" not in str(error.value)
    with pytest.raises(DataError, match=r"people of sex=m leave .*; merge sex=m with another level .*options.horizon"):
        run(cox(width="auto", strata="sex"), federation(times, event, sex))


def test_people_beyond_the_horizon_are_a_cell_as_well():
    times = np.append(np.repeat([10.5, 20.5, 30.5], 40), 300.0)
    with pytest.raises(DataError, match="have the event after the horizon 100, or are observed longer"):
        run(curve(width="auto"), federation(times, np.append(np.tile([True, False], 60), False)))


@pytest.mark.parametrize("kind", [cox, curve])
def test_times_of_all_people_need_least_1(kind):
    with pytest.raises(ModelError, match='only least = 1 allows; set width = "auto"'):
        type(kind())(features=3, classes=None, times="union")
    with pytest.raises(ModelError, match='width is "wide"; set it to "auto" or a number'):
        kind(width="wide")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [cox, curve])
def test_hidden_and_open_checks_cut_the_same_cells(kind):
    data = people(120)
    ended = asyncio.run(
        live(Exact(), ExactLearner(kind(width="auto"), data), topology.complete(4), rounds=40, baselines=False)
    )
    expected = run(kind(width="auto"), data)
    for tensors in ended.models.values():
        for name, value in expected.items():
            assert np.array_equal(tensors[name].numpy(), value, equal_nan=True), name


@pytest.fixture
def lung(data_dir, tmp_path, monkeypatch):
    """Run in the folder of four hospitals' tables of survival with lung cancer; return its experiment and people."""
    monkeypatch.chdir(case(data_dir, "cox-rows", tmp_path))
    rows = [row for number in range(4) for row in csv.DictReader(Path(f"peer{number}.csv").read_text().splitlines())]
    named = ("age", "ph.ecog", "sex", "time", "status")
    return tomllib.loads(Path("lung.toml").read_text()), {
        tuple(float(row[name]) for name in named) for row in rows if row["ph.ecog"] not in {"", "NA"}
    }


def read_off(monkeypatch, start):
    """Return the rows of those who are alone in a cell with the event or without, and whether in the whole cell."""
    summed, rows = Cox._summed, {}

    def read_first(self, tensors, own):
        found = yield from summed(self, tensors, own)
        if not tensors["weight"].any():  # the first total, whose weights are one
            grid, means = self.grid(tensors), tensors["means"]
            for by_cell, status in ((found.events[0], 2.0), (found.leaving[0] - found.events[0], 1.0)):
                alone = np.flatnonzero(np.abs(by_cell[:, 0] - 1) < 1e-6)
                features = (by_cell[alone, 1 : 1 + len(means)] + means).round(4)
                days = found.leaving[0, alone, 0] < 1.5
                for row, begin, day in zip(features.tolist(), grid.begins(alone).tolist(), days.tolist(), strict=True):
                    rows[*row, begin, status] = day
        return found

    monkeypatch.setattr(Cox, "_summed", read_first)
    with suppress(DataError):
        start()
    return rows


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(
    ("options", "expected", "alone"), [({"least": 1}, 167, 143), ({}, 0, 0), ({"width": "auto"}, 0, 0)]
)
def test_a_peer_reads_143_patients_off_the_days_of_lung_and_nobody_with_the_check(
    lung, monkeypatch, options, expected, alone
):
    made, truth = lung
    made["model"]["options"] |= options
    recovered = read_off(monkeypatch, lambda: simulate(read(made), baselines=False))
    assert len(recovered.keys() & truth) == expected
    assert sum(recovered[row] for row in recovered.keys() & truth) == alone
