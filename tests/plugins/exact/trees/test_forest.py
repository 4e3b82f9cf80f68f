"""Random forests from totals: equal to pooled data bit for bit, and as good as those of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from p2pfl import compose, topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Part
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import RandomForest
from p2pfl.plugins.exact.trees.draws import weights
from p2pfl.plugins.exact.trees.tree_model import leaves
from p2pfl.privacy.keys import SeededSource
from p2pfl.testing import check_algorithm
from plugins.exact.tables import adult, masked_as_pooled, shared_out, trained
from swarms import live

GRAPHS = {
    "ring": topology.ring(8),
    "path": topology.path(5),
    "small world": topology.build("small_world", peers=16, seed=3, degree=4, rewire=0.3),
    "random": topology.build("erdos_renyi", peers=12, seed=5, probability=0.4),
}
FORTY = topology.build("random_regular", peers=40, seed=2, degree=4)
LOADS = {"classes": datasets.load_breast_cancer, "numbers": datasets.load_diabetes, "several": datasets.load_wine}
CLASSES = {"classes": 2, "numbers": None, "several": 3}


def forest(features, *, classes, rounds=1, **options):
    settings = {"n_estimators": 6, "max_depth": 4, "max_bins": 16, "least": 1} | options
    return RandomForest(features=np.asarray(features).shape[1], classes=classes, rounds=rounds, **settings)


def part(features):
    return Part(np.asarray(features, np.float32), np.zeros(len(features), np.int64))


@pytest.mark.sampled(fast=2, all=5)
@pytest.mark.parametrize("graph", [*GRAPHS.values(), FORTY], ids=[*GRAPHS, "forty peers"])
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_peers_under_masks_end_with_the_forest_of_their_pooled_data_bit_for_bit(graph, task):
    features, targets = LOADS[task](return_X_y=True)
    federation = shared_out(features, targets, classes=CLASSES[task], peers=len(graph.peers))
    model = forest(features, classes=CLASSES[task], rounds=2)
    pooled = masked_as_pooled(model, federation, graph, rounds=2)
    assert (pooled["feature"] >= 0).any(axis=1).all()


@pytest.mark.slow
async def test_live_peers_under_masks_end_with_the_forest_of_their_pooled_data_bit_for_bit():
    features, targets = datasets.load_wine(return_X_y=True)
    graph = topology.path(4)
    federation = shared_out(features, targets, classes=3, peers=4)
    model = forest(features, classes=3, rounds=2, max_bins=8)
    learner, pooled = trained(model, federation, rounds=2)
    privacy = Pairwise(mask_graph="complete")
    resolved = compose(Exact(), ExactLearner(model, federation), graph, rounds=2, privacy=privacy)
    ended = await live(
        resolved.experiment, MemoryTransport(), resolved=resolved, source=SeededSource(1), names=graph.peers
    )
    for end in ended.values():
        found = learner.tensors(end.state.rows[0])
        assert all(np.array_equal(found[name], pooled[name]) for name in learner.layout.names)


def test_the_number_of_rounds_and_the_size_of_totals_do_not_change_the_forest(monkeypatch):
    features, targets = datasets.load_wine(return_X_y=True)
    federation = shared_out(features, targets, classes=3, peers=2)
    _, once = trained(forest(features, classes=3, n_estimators=7), federation, rounds=1)
    _, thrice = trained(forest(features, classes=3, n_estimators=7, rounds=3), federation, rounds=3)
    monkeypatch.setattr("p2pfl.plugins.exact.trees.parallel_trees.MAX_TOTAL", 2000)
    _, small = trained(forest(features, classes=3, n_estimators=7), federation, rounds=1)
    assert once["trees"] == 7
    for name in once:
        assert np.array_equal(once[name], thrice[name])
        assert np.array_equal(once[name], small[name])


@pytest.mark.slow
def test_the_contract_of_algorithms_holds():
    features, targets = datasets.load_wine(return_X_y=True)
    model = forest(features, classes=3, rounds=3, max_bins=8)
    federation = shared_out(features, targets, classes=3, peers=6)
    check_algorithm(Exact(), learner=ExactLearner(model, federation), rounds=3)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_one_tree_of_all_samples_and_features_is_the_decision_tree_of_scikit_learn(kind):
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1200, 5)).astype(np.float32)
    score = np.sin(2 * features[:, 0]) + features[:, 1] * features[:, 2] + rng.normal(size=1200) / 3
    settings = {"max_depth": 4, "min_samples_leaf": 20}
    classes = 3 if kind == "classes" else None
    targets = np.digitize(score, [-0.5, 0.4]) if classes else score.astype(np.float32)
    given = {"n_estimators": 1, "max_features": 1.0, "bootstrap": False, "max_bins": 64}
    model = forest(features, classes=classes, **given, **settings)
    _, tensors = trained(model, shared_out(features, targets, classes=classes, peers=3), rounds=1)
    codes = model.bins(tensors).codes(features).T
    found = model.predicted(tensors, part(features))
    if classes:
        oracle = DecisionTreeClassifier(**settings).fit(codes, targets)
        assert np.allclose(np.exp(found), np.maximum(oracle.predict_proba(codes), 2.0**-30), atol=1e-12)
    else:
        oracle = DecisionTreeRegressor(**settings).fit(codes, targets)
        assert np.allclose(found[:, 0], oracle.predict(codes), atol=1e-7)


def test_weights_of_samples_are_poisson_and_follow_from_their_values():
    features = np.arange(20_000, dtype=np.float32).reshape(-1, 2)
    whole = Part(features, np.zeros(10_000, np.int64))
    found = weights(whole, seed=1, tree=2)
    shares = np.bincount(found, minlength=5)[:5] / 10_000
    assert np.allclose(shares, np.exp(-1) / np.array([1, 1, 2, 6, 24]), atol=0.012)
    some = Part(features[::-3].copy(), np.zeros(len(features[::-3]), np.int64))
    assert np.array_equal(weights(some, seed=1, tree=2), found[::-3])
    for other in ({"seed": 1, "tree": 3}, {"seed": 2, "tree": 2}):
        assert abs(np.corrcoef(weights(whole, **other), found)[0, 1]) < 0.04
    changed = Part(features, np.ones(10_000, np.int64))
    assert abs(np.corrcoef(weights(changed, seed=1, tree=2), found)[0, 1]) < 0.04


def test_the_shares_of_leaves_are_those_of_their_samples():
    features, targets = datasets.load_wine(return_X_y=True)
    model = forest(features, classes=3)
    _, tensors = trained(model, shared_out(features, targets, classes=3, peers=2), rounds=1)
    leaf = (tensors["feature"] < 0) & (tensors["count"] > 0)
    assert np.allclose(tensors["value"][leaf].sum(axis=-1), 1.0)
    samples = Part(features.astype(np.float32), targets)
    for tree in range(6):
        used = weights(samples, seed=0, tree=tree).sum()
        assert tensors["count"][tree, 0] == used
        assert tensors["count"][tree][leaf[tree]].sum() == used


@pytest.mark.parametrize("task", LOADS)
def test_the_module_for_predictions_gives_the_outputs_of_the_learner_with_missing_values_too(task):
    features, targets = LOADS[task](return_X_y=True)
    features = features.astype(np.float32)
    features[np.random.default_rng(0).random(features.shape) < 0.1] = np.nan
    federation = shared_out(np.nan_to_num(features), targets, classes=CLASSES[task], peers=3)
    federation.dataset.features[:] = torch.from_numpy(features)
    model = forest(features, classes=CLASSES[task])
    learner, tensors = trained(model, federation, rounds=1)
    assert tensors["lacking"].all()
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=True)
    found = module(torch.from_numpy(features)).numpy()
    assert np.allclose(found, learner.model.predicted(tensors, part(features)), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_forest_is_as_good_as_that_of_scikit_learn():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    train, test = order[:400], order[400:]
    model = forest(features, classes=2, n_estimators=40, max_depth=8, max_bins=64)
    _, tensors = trained(model, shared_out(features[train], targets[train], classes=2, peers=4), rounds=1)
    found = model.predicted(tensors, part(features[test]))
    oracle = RandomForestClassifier(40, random_state=0).fit(features[train], targets[train])
    assert (found.argmax(axis=1) == targets[test]).mean() > oracle.score(features[test], targets[test]) - 0.015


@pytest.mark.nightly
def test_a_forest_on_adult_is_as_good_as_that_of_scikit_learn(data_dir):
    features, targets = adult(data_dir)
    order = np.random.default_rng(0).permutation(len(targets))
    train, test = order[: int(0.7 * len(order))], order[int(0.7 * len(order)) :]
    model = RandomForest(features=14, classes=2, rounds=1)
    _, tensors = trained(model, shared_out(features[train], targets[train], classes=2, peers=4), rounds=1)
    found = model.predicted(tensors, part(features[test]))
    oracle = RandomForestClassifier(100, random_state=0).fit(features[train], targets[train])
    area = roc_auc_score(targets[test], oracle.predict_proba(features[test])[:, 1])
    assert roc_auc_score(targets[test], found[:, 1] - found[:, 0]) > area
    assert (found.argmax(axis=1) == targets[test]).mean() > oracle.score(features[test], targets[test]) - 0.01


def test_features_without_values_do_no_harm():
    features = np.zeros((30, 3), np.float32)
    federation = shared_out(features, np.arange(30) % 2, classes=2, peers=3)
    model = forest(features, classes=2)
    _, tensors = trained(model, federation, rounds=1)
    assert (tensors["feature"] == -1).all()
    assert (tensors["count"][:, 0] == 0).any()  # both values have weight 0 in some trees
    assert np.allclose(tensors["value"][:, 0].sum(axis=-1), 1.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_depth": 16}, "max_depth is 16; set it to a value from 1 to 15"),
        ({"max_features": "log2"}, "max_features is 'log2'; set it to a value of \"sqrt\""),
        ({"max_features": 0}, "max_features is 0"),
        ({"n_estimators": 0}, "n_estimators is 0; set it to a value at least 1"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        forest(np.zeros((2, 4)), classes=2, **options)


def test_a_damaged_tree_that_leads_in_circles_ends():
    tree = {name: np.zeros(3) for name in ("feature", "threshold", "left", "missing")}
    assert set(leaves(tree, np.full((4, 1), -1.0, np.float32))) <= {0, 1}
