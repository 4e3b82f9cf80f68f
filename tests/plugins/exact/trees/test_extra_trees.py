"""Extremely randomised trees from totals: lossless, in small totals, and as good as those of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.ensemble import ExtraTreesClassifier

from p2pfl import topology
from p2pfl.experiment import plan, read
from p2pfl.learning import ExactLearner, Part
from p2pfl.plugins.exact import RandomForest
from plugins.exact.tables import masked_as_pooled, shared_out, trained

LOADS = {"classes": datasets.load_breast_cancer, "numbers": datasets.load_diabetes}
CLASSES = {"classes": 2, "numbers": None}


def trees(features, *, classes, **options):
    settings = {"n_estimators": 6, "max_depth": 4, "max_bins": 16, "extra": True} | options
    return RandomForest(features=np.asarray(features).shape[1], classes=classes, rounds=1, **settings)


def sizes(model, federation, peer="peer0"):
    """Return the sizes of the totals of a forest."""
    learner = ExactLearner(model, federation)
    asking, found = learner.asking(learner.start([peer])[0], round=0), []
    question = next(asking)
    while True:
        found.append(question.size)
        try:
            question = asking.send(sum(question.answer(each) for each in federation.peers))
        except StopIteration:
            return found


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("task", LOADS)
@pytest.mark.parametrize("graph", [topology.ring(8), topology.path(5)], ids=["ring", "path"])
def test_peers_under_masks_end_with_the_extra_trees_of_their_pooled_data_bit_for_bit(graph, task):
    features, targets = LOADS[task](return_X_y=True)
    federation = shared_out(features, targets, classes=CLASSES[task], peers=len(graph.peers))
    model = trees(features, classes=CLASSES[task])
    pooled = masked_as_pooled(model, federation, graph, rounds=1)
    assert (pooled["feature"] >= 0).any(axis=1).all()


def test_totals_have_one_cut_of_each_feature_and_their_size_changes_nothing(monkeypatch):
    features, targets = datasets.load_wine(return_X_y=True)
    federation = shared_out(features, targets, classes=3, peers=3)
    model = trees(features, classes=3, least=1)
    assert sizes(model, federation)[4] == 6 * model.wanted * 2 * 3  # trees, features, sides, classes
    assert sum(sizes(model, federation)[4:]) < 0.3 * sum(
        sizes(trees(features, classes=3, least=1, extra=False), federation)[4:]
    )
    _, whole = trained(model, federation, rounds=1)
    monkeypatch.setattr("p2pfl.plugins.exact.trees.parallel_trees.MAX_TOTAL", 50)
    _, parts = trained(model, federation, rounds=1)
    assert all(np.array_equal(whole[name], parts[name]) for name in whole)


def test_cuts_differ_between_trees_and_lie_between_the_cuts_above_them():
    features = np.random.default_rng(0).normal(size=(3000, 1)).astype(np.float32)
    targets = (np.sin(6 * features[:, 0]) > 0).astype(int)
    model = trees(features, classes=2, n_estimators=40, max_bins=255)
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=2), rounds=1)
    roots = tensors["threshold"][:, 0]
    ranks = np.searchsorted(np.sort(features[:, 0]), roots) / len(features)
    assert len(np.unique(roots)) > 30
    assert abs(ranks.mean() - 0.5) < 0.15  # uniform over bins, which hold as many samples
    for tree in range(40):
        left = int(tensors["left"][tree, 0])
        for child, below in ((left, True), (left + 1, False)):
            if tensors["feature"][tree, child] >= 0:
                assert (tensors["threshold"][tree, child] < roots[tree]) == below


def test_samples_have_no_random_weights_unless_bootstrap_asks_for_them():
    features, targets = datasets.load_wine(return_X_y=True)
    federation = shared_out(features, targets, classes=3, peers=2)
    _, plain = trained(trees(features, classes=3), federation, rounds=1)
    _, weighted = trained(trees(features, classes=3, bootstrap=True), federation, rounds=1)
    assert (plain["count"][:, 0] == len(targets)).all()
    assert len(np.unique(weighted["count"][:, 0])) > 1


@pytest.mark.parametrize("task", LOADS)
def test_the_module_for_predictions_gives_the_outputs_of_the_learner_with_missing_values_too(task):
    features, targets = LOADS[task](return_X_y=True)
    features = features.astype(np.float32)
    features[np.random.default_rng(0).random(features.shape) < 0.1] = np.nan
    features[:, 0] = np.where(np.isnan(features[:, 0]), np.nan, 1)  # only whether there is a value
    federation = shared_out(np.nan_to_num(features), targets, classes=CLASSES[task], peers=3)
    federation.dataset.features[:] = torch.from_numpy(features)
    model = trees(features, classes=CLASSES[task], n_estimators=20)
    learner, tensors = trained(model, federation, rounds=1)
    assert tensors["lacking"].all()
    assert (tensors["feature"] == 0).any()
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=True)
    samples = Part(features, np.zeros(len(features), np.int64))
    found = module(torch.from_numpy(features)).numpy()
    assert np.allclose(found, learner.model.predicted(tensors, samples), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("extra", [False, True])
def test_what_totals_show_is_stated_for_the_trees_that_grow(extra):
    table = {
        "rounds": 1,
        "topology": {"kind": "ring", "peers": 4},
        "data": {"name": "wine"},
        "model": {"name": "forest", "options": {"extra": extra}},
        "privacy": {"mode": "pairwise"},
    }
    said = plan(read(table)).protection.totals
    assert ("lie in each bin of its features" in said) == (not extra)
    assert ("lie on either side of one drawn cut of each of its features" in said) == extra


def test_a_total_of_extra_trees_has_the_numbers_that_are_stated_and_no_more():
    features, targets = datasets.load_wine(return_X_y=True)
    model, federation = (
        trees(features, classes=3, max_features=4, least=1),
        shared_out(features, targets, classes=3, peers=2),
    )
    totals = sizes(model, federation)[4:]
    assert totals[0] == 6 * 4 * 2 * 3  # of six roots four features, two sides and three classes
    assert all(size % (4 * 2 * 3) == 0 for size in totals)


@pytest.mark.slow
def test_extra_trees_are_as_good_as_those_of_scikit_learn():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    train, test = order[:400], order[400:]
    model = trees(features, classes=2, n_estimators=40, max_depth=8, max_bins=64)
    _, tensors = trained(model, shared_out(features[train], targets[train], classes=2, peers=4), rounds=1)
    found = model.predicted(tensors, Part(features[test].astype(np.float32), targets[test]))
    oracle = ExtraTreesClassifier(40, random_state=0).fit(features[train], targets[train])
    assert (found.argmax(axis=1) == targets[test]).mean() > oracle.score(features[test], targets[test]) - 0.015
