"""Seeds of one experiment are made together where that pays."""

import json
from dataclasses import replace

import pytest

from p2pfl.experiment import read, write
from p2pfl.learning.steps import together
from p2pfl.plugins.study import bundles as bundling
from p2pfl.plugins.study import workers
from p2pfl.plugins.study.bundles import attempt_all, bundles
from p2pfl.plugins.study.cell import Job
from p2pfl.plugins.study.study import CostBudget
from p2pfl.simulation import simulate
from plugins.study.test_sweep import SMALL


@pytest.fixture
def jobs(tmp_path):
    """Return a function that returns the runs of some rates and seeds."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)

    def made(*, rates=(0.1,), seeds=4):
        return [
            Job(
                f"{rate} {seed}",
                write(read(str(path), changes=[f"learning.rate={rate}", f"seed={seed}"])),
                tmp_path / f"{rate} {seed}",
                baselines=False,
                budget=None,
            )
            for rate in rates
            for seed in range(seeds)
        ]

    return made


def names(found):
    return [[job.digest for job in bundle] for bundle in found]


def test_a_bundle_has_the_seeds_of_one_experiment(jobs):
    found = bundles(jobs(rates=(0.1, 0.5)), processes=2)
    assert names(found) == [["0.1 0", "0.1 1", "0.1 2", "0.1 3"], ["0.5 0", "0.5 1", "0.5 2", "0.5 3"]]


def test_all_processes_have_a_bundle(jobs):
    assert names(bundles(jobs(seeds=5), processes=2)) == [["0.1 0", "0.1 1"], ["0.1 2", "0.1 3", "0.1 4"]]
    assert len(bundles(jobs(seeds=2), processes=8)) == 2


def test_a_bundle_has_a_most(jobs, monkeypatch):
    monkeypatch.setattr(bundling, "MOST", 3)
    assert [len(bundle) for bundle in bundles(jobs(seeds=7), processes=1)] == [2, 2, 3]


def test_runs_with_a_cost_budget_are_made_one_by_one(jobs):
    priced = [replace(job, budget=CostBudget("bytes", 10**6)) for job in jobs()]
    assert [len(bundle) for bundle in bundles(priced, processes=1)] == [1, 1, 1, 1]


@pytest.mark.slow
def test_runs_of_a_bundle_are_those_of_simulate(jobs):
    bundle = tuple(jobs())
    assert attempt_all(bundle) == {job.digest: None for job in bundle}
    for job in bundle:
        summary = json.loads((job.folder / "summary.json").read_text())
        seed = int(job.digest.split()[1])
        alone = simulate(read(job.folder / "experiment.toml"), baselines=False).summary
        assert read(job.folder / "experiment.toml").seed == seed
        assert summary["together"] == pytest.approx(alone["together"])
        assert (summary["bytes_sent"], summary["gradients"]) == (alone["bytes_sent"], alone["gradients"])


def test_of_a_bundle_that_does_not_pay_the_first_run_is_made(jobs, monkeypatch):
    monkeypatch.setattr(together, "PARAMETERS", 1)
    bundle = tuple(jobs())
    assert attempt_all(bundle) == {bundle[0].digest: None}
    assert not bundle[1].folder.exists()


@pytest.mark.slow
def test_processes_make_all_runs_of_all_bundles(jobs, monkeypatch):
    monkeypatch.setattr(bundling, "MOST", 3)
    wanted = jobs(rates=(0.1, 0.5), seeds=4)
    found = dict(workers.results(wanted, processes=2))
    assert list(found.values()) == [None] * 8
    assert {job.digest for job in found} == {job.digest for job in wanted}
    assert all((job.folder / "summary.json").is_file() for job in wanted)


@pytest.mark.slow
def test_a_process_that_dies_with_a_bundle_costs_no_run(jobs, monkeypatch, tmp_path):
    wanted = jobs(seeds=3)
    (tmp_path / "dies_once.py").write_text(
        "import os, pathlib\nimport torch\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "def loss(outputs, targets):\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os._exit(9)\n"
        "    return torch.nn.functional.cross_entropy(outputs, targets, reduction='none')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    wanted = [
        replace(job, experiment=job.experiment.replace("[learning]", '[learning]\nloss = "dies_once:loss"'))
        for job in wanted
    ]
    found = dict(workers.results(wanted, processes=1))
    assert list(found.values()) == [None] * 3
