"""Seeds of one experiment that train as one stack end as separate simulations."""

import json

import pytest
import torch

from p2pfl.core.errors import LearningError
from p2pfl.experiment import plan, read
from p2pfl.learning.steps import together as stacking
from p2pfl.results import Run
from p2pfl.simulation import simulate
from p2pfl.simulation.together import pays, simulate_together
from simulation.test_sharding import check_same
from swarms import SMALL

SEEDS = (0, 1, 7)
CASES = {
    "plain": [],
    "adam and a schedule of rates": ["learning.optimizer=adam", "learning.rate=0.01", "learning.schedule=LinearLR"],
    "all samples in a batch": ["learning.batch=all"],
    "an early stop": ["learning.stop=0.2", "rounds=6"],
    "masks": ["privacy.mode=pairwise"],
    "losses and absences": ["simulation.loss=0.2", "simulation.absence=0.2"],
    "corrections": ["learning.algorithm=scaffold"],
    "stragglers, some participants": ["learning.fraction=0.5", "learning.epochs=3", "learning.stragglers=0.5"],
    "a schedule of graphs": ["topology.kind=one_peer_exponential", "topology.peers=4"],
    "compressed": ["learning.algorithm=dpsgd", "compression.name=top_k", "compression.share=0.2"],
    "common statistics": ["data.scale=true", "learning.consensus=true"],
}


def experiments(*changes):
    """Return the experiments of all seeds."""
    return [read(SMALL, changes=[*changes, "learning.device=cpu", f"seed={seed}"]) for seed in SEEDS]


@pytest.mark.sampled(fast=3, all=11)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_seeds_that_train_together_end_as_separate_simulations(tmp_path, changes):
    wanted = experiments(*changes)
    folders = [tmp_path / str(seed) for seed in SEEDS]
    found = simulate_together(wanted, folders=folders, baselines=False)
    for experiment, folder, run in zip(wanted, folders, found, strict=True):
        apart = simulate(experiment, folder=tmp_path / f"{folder.name} apart", baselines=False)
        check_same(apart, run, tolerance=1e-6)
        check_same(apart, Run.load(folder), tolerance=1e-6)
        names = [sorted(path.relative_to(each.folder) for path in each.folder.rglob("*")) for each in (apart, run)]
        assert names[0] == names[1]


def test_baselines_of_seeds_that_train_together_are_those_of_separate_simulations(tmp_path):
    wanted = experiments()
    found = simulate_together(wanted, folders=[tmp_path / str(seed) for seed in SEEDS], baselines=True)
    for experiment, run in zip(wanted, found, strict=True):
        check_same(simulate(experiment), run, tolerance=1e-6)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("most", "stacked"), [(0, 0), (stacking.PRODUCTS, 3)])
def test_evaluations_with_few_products_are_stacked(tmp_path, monkeypatch, most, stacked):
    monkeypatch.setattr(stacking, "PRODUCTS", most)
    evaluate, counted = stacking.Stack.evaluate, []

    def evaluated(self, asked):
        counted.append(len(asked))
        return evaluate(self, asked)

    monkeypatch.setattr(stacking.Stack, "evaluate", evaluated)
    wanted = experiments()
    found = simulate_together(wanted, folders=[tmp_path / str(seed) for seed in SEEDS], baselines=False)
    check_same(simulate(wanted[0], baselines=False), found[0], tolerance=1e-6)
    assert counted == [len(SEEDS)] * stacked


def test_a_seed_that_diverges_does_not_end_the_others(tmp_path, monkeypatch):
    wanted = experiments()
    fit = stacking.Stack.fit

    def diverging(self, asked):
        found = fit(self, asked)
        if len(asked) == len(SEEDS) and asked[0].how["round"]:
            found[1].report.loss.fill_(torch.nan)
        return found

    monkeypatch.setattr(stacking.Stack, "fit", diverging)
    first, second, third = simulate_together(wanted, folders=[tmp_path / str(seed) for seed in SEEDS], baselines=False)
    assert isinstance(second, LearningError)
    monkeypatch.undo()
    for experiment, run in ((wanted[0], first), (wanted[2], third)):
        check_same(simulate(experiment, baselines=False), run, tolerance=1e-6)
    assert json.loads((tmp_path / "7" / "summary.json").read_text())["rounds"] == 3


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ([], False),
        (["model.name=mlp", "model.hidden=[512]", "topology.peers=16"], True),
        (["learning.example_noise=1.0"], True),
        (["model.name=boosting", "learning.algorithm=exact", "privacy.mode=none"], True),
    ],
    ids=["small", "large models", "DP-SGD", "totals"],
)
def test_whether_seeds_train_together_follows_from_shapes_and_kinds(changes, alone):
    table = {section: value for section, value in SMALL.items() if not alone or section != "gossip"}
    assert pays(plan(read(table, changes=changes)), runs=5) is not alone


def test_seeds_of_much_data_do_not_train_together():
    resolved = plan(read(SMALL))
    most = stacking.SAMPLES // resolved.learner.features.nbytes
    assert pays(resolved, runs=most)
    assert not pays(resolved, runs=most + 1)
