"""Roots of trees have no bins of few people."""

import numpy as np
import pytest
import torch

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError
from p2pfl.data import Dataset, Federation
from p2pfl.data.data_description import Description, Field
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import Boosting, RandomForest
from p2pfl.plugins.exact.boosting import BoostingRound
from p2pfl.simulation import simulate

FIELDS = (Field("icd", ("A", "B", "C")), Field("smoker"), Field("age"))
PEERS = topology.complete(4).peers


def federation(rare=2, smokers=40, sick=60, count=200):
    """Return people of four hospitals, whose class depends on their level, on smoking and on age."""
    rng = np.random.default_rng(0)
    levels = np.repeat(np.arange(3), [120, count - 120 - rare, rare])
    smoking = rng.permutation(count) < smokers
    features = np.column_stack([np.eye(3)[levels], smoking, rng.integers(20, 90, count)])
    order = np.argsort(levels + smoking * 2 + features[:, 4] / 30 + 2 * rng.normal(size=count))
    targets = np.zeros(count, np.int64)
    targets[order[count - sick :]] = 1
    dataset = Dataset(torch.from_numpy(features), torch.from_numpy(targets), 2, description=Description(columns=FIELDS))
    own = {peer: np.arange(number, count, 4) for number, peer in enumerate(PEERS)}
    nothing = dict.fromkeys(PEERS, np.arange(0))
    return Federation(dataset, own, nothing, dict.fromkeys(PEERS, np.arange(count)))


def boosting(**options):
    return Boosting(features=5, classes=2, rounds=3, fields=FIELDS, min_samples_leaf=2, **options)


def forest(**options):
    return RandomForest(features=5, classes=2, rounds=1, fields=FIELDS, n_estimators=5, **options)


def run(model, data):
    """Return the tensors after a run, and the learner."""
    learner = ExactLearner(model, data)
    ended = simulate(Exact(), learner, topology.complete(4), rounds=3, baselines=False)
    return {name: value.numpy() for name, value in ended.models["peer0"].items()}, learner


def counts_of_roots(monkeypatch, model, data):
    """Return the samples by bin of the roots that a peer reads off the first total of trees."""
    root, read = BoostingRound.root, []

    def spy(self, total):
        read.append(self.table(total[:-3])[0, :, -1])
        root(self, total)

    monkeypatch.setattr(BoostingRound, "root", spy)
    run(model, data)
    return read[0]


def test_a_root_has_no_bin_of_few_people(monkeypatch):
    few = counts_of_roots(monkeypatch, boosting(least=1), federation())
    assert ((few > 0) & (few < 5)).sum() > 10
    none = counts_of_roots(monkeypatch, boosting(), federation())
    assert not ((none > 0) & (none < 5)).any()
    assert len(none) > 20


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("kind", "categorical"), [(boosting, False), (boosting, True), (forest, False)])
def test_no_tree_splits_off_a_rare_level_and_the_module_predicts_as_the_model(kind, categorical):
    options = {"categorical_features": ["icd"]} if categorical else {}
    tensors, learner = run(kind(**options), federation())
    assert tensors["levels"].tolist() == [0, 1, 1, 3, 4]
    names = learner.model.seen.names
    split = {names[int(number)] for number in np.unique(tensors["feature"]) if number >= 0}
    assert "icd=C" not in split
    assert ("icd" in split) == categorical
    row = learner._row(tensors)
    outputs, _ = learner.outputs(row, peer="peer0", part="test")
    module = learner.model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    torch.testing.assert_close(module(learner.federation.dataset.features).double(), outputs, rtol=1e-5, atol=1e-5)
    split = np.unique(run(kind(least=1, **options), federation())[0]["feature"])
    assert len(split) > 1


@pytest.mark.parametrize("kind", [boosting, forest])
def test_a_column_of_two_values_splits_no_tree_where_few_have_one(kind):
    assert 3 in run(kind(), federation(rare=0))[0]["feature"]
    tensors, _ = run(kind(), federation(rare=0, smokers=3))
    assert tensors["levels"][3] == -1
    assert 3 not in tensors["feature"]


@pytest.mark.parametrize("kind", [boosting, forest])
def test_a_class_of_few_people_is_refused(kind):
    with pytest.raises(DataError, match="fewer than 5 people share a value of class 1 of the target"):
        run(kind(), federation(sick=3))
    run(kind(least=1), federation(sick=3))


@pytest.mark.slow
def test_the_trees_of_all_peers_are_those_of_pooled_samples_whose_levels_are_merged():
    data = federation()
    tensors, _ = run(boosting(categorical_features=["icd"]), data)
    data.dataset.features[:, 1] += data.dataset.features[:, 2]
    data.dataset.features[:, 2] = 0
    merged, _ = run(boosting(categorical_features=["icd"]), data)
    assert all(np.array_equal(tensors[name], merged[name]) for name in tensors if name != "levels")
