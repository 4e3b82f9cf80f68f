"""Boosting from totals: equal to pooled data bit for bit, and to scikit-learn and XGBoost up to their float32."""

import numpy as np
import pytest
import torch
import xgboost
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from p2pfl import compose, topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Part
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.exact import Boosting
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from p2pfl.testing import check_algorithm
from plugins.exact.tables import masked_as_pooled, shared_out, trained
from swarms import live

FLOAT32 = 1e-7
"""Difference of margins that gradients in single precision leave, as scikit-learn has them."""

GRAPHS = {
    "ring": topology.ring(8),
    "path": topology.path(5),
    "small world": topology.build("small_world", peers=16, seed=3, degree=4, rewire=0.3),
    "random": topology.build("erdos_renyi", peers=12, seed=5, probability=0.4),
}


def cancer():
    return datasets.load_breast_cancer(return_X_y=True)


def diabetes():
    return datasets.load_diabetes(return_X_y=True)


def boosting(features, *, classes, rounds=10, **options):
    settings = {"max_depth": 3, "max_leaf_nodes": None, "min_samples_leaf": 5, "max_bins": 32, "least": 1} | options
    return Boosting(features=np.asarray(features).shape[1], classes=classes, rounds=rounds, **settings)


def codes_of(model, tensors, features):
    """Return features as numbers of bins, which the libraries then bin as they are; NaN where a value is missing."""
    bins = model.bins(tensors)
    codes = bins.codes(np.asarray(features, np.float32)).T.astype(np.float64)
    return np.where(np.isnan(features), np.nan, codes)


def margins_of(model, tensors, features, targets):
    return model.margins(tensors, Part(np.asarray(features, np.float32), targets))


SETTINGS = {
    "level by level": {"max_depth": 4, "min_samples_leaf": 1, "l2_regularization": 1.0},
    "best first": {"max_depth": None, "max_leaf_nodes": 9},
    "best first with a depth": {"max_depth": 4, "max_leaf_nodes": 11, "l2_regularization": 0.5},
}


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_margins_are_those_of_scikit_learn(settings):
    features, targets = cancer()
    model = boosting(features, classes=2, rounds=20, **settings)
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=20)
    codes = codes_of(model, tensors, features)
    given = {key: getattr(model, key) for key in ("max_depth", "max_leaf_nodes", "min_samples_leaf")}
    oracle = HistGradientBoostingClassifier(
        max_iter=20, early_stopping=False, l2_regularization=model.l2_regularization, **given
    ).fit(codes, targets)
    found = margins_of(model, tensors, features, targets)[:, 0]
    assert np.abs(found - oracle.decision_function(codes)).max() < FLOAT32


def test_numbers_are_those_of_scikit_learn():
    features, targets = diabetes()
    model = boosting(features, classes=None, rounds=20)
    _, tensors = trained(model, shared_out(features, targets, classes=None, peers=3), rounds=20)
    codes = codes_of(model, tensors, features)
    oracle = HistGradientBoostingRegressor(
        max_iter=20, early_stopping=False, max_depth=3, max_leaf_nodes=None, min_samples_leaf=5
    ).fit(codes, targets)
    found = margins_of(model, tensors, features, targets)[:, 0]
    assert np.abs(found - oracle.predict(codes)).max() < 5e-6 * np.abs(targets).max()


def test_several_classes_are_those_of_scikit_learn():
    features, targets = datasets.load_wine(return_X_y=True)
    model = boosting(features, classes=3, rounds=15, min_samples_leaf=1, l2_regularization=1.0)
    _, tensors = trained(model, shared_out(features, targets, classes=3, peers=3), rounds=15)
    codes = codes_of(model, tensors, features)
    oracle = HistGradientBoostingClassifier(
        max_iter=15, early_stopping=False, max_depth=3, max_leaf_nodes=None, min_samples_leaf=1, l2_regularization=1.0
    ).fit(codes, targets)
    found = margins_of(model, tensors, features, targets)
    assert np.abs(found - oracle.decision_function(codes)).max() < FLOAT32


def test_missing_values_are_those_of_scikit_learn():
    features, targets = cancer()
    features = features.copy()
    features[np.random.default_rng(0).random(features.shape) < 0.2] = np.nan
    model = boosting(features, classes=2, rounds=15)
    federation = shared_out(np.nan_to_num(features), targets, classes=2, peers=3)
    federation.dataset.features[:] = torch.as_tensor(features, dtype=torch.float32)
    _, tensors = trained(model, federation, rounds=15)
    codes = codes_of(model, tensors, features)
    oracle = HistGradientBoostingClassifier(
        max_iter=15, early_stopping=False, max_depth=3, max_leaf_nodes=None, min_samples_leaf=5
    ).fit(codes, targets)
    found = margins_of(model, tensors, features, targets)[:, 0]
    assert np.abs(found - oracle.decision_function(codes)).max() < FLOAT32


def test_margins_and_trees_are_those_of_xgboost():
    features, targets = cancer()
    model = boosting(
        features, classes=2, rounds=20, max_depth=4, min_samples_leaf=1, l2_regularization=1.0, min_hessian=1.0
    )
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=20)
    codes = codes_of(model, tensors, features)
    settings = {"max_depth": 4, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1.0, "max_bin": 256}
    settings |= {"objective": "binary:logistic", "tree_method": "hist", "base_score": float(targets.mean())}
    oracle = xgboost.train(settings, xgboost.DMatrix(codes, targets), num_boost_round=20)
    found = margins_of(model, tensors, features, targets)[:, 0]
    assert np.abs(found - oracle.predict(xgboost.DMatrix(codes), output_margin=True)).max() < 1e-6
    nodes = oracle.trees_to_dataframe()
    split = nodes[nodes.Feature != "Leaf"]
    for tree in range(20):
        theirs = sorted(int(name[1:]) for name in split[split.Tree == tree].Feature)
        own = tensors["feature"][tree]
        assert theirs == sorted(own[own >= 0].astype(int).tolist())


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_peers_under_masks_end_with_the_model_of_their_pooled_data_bit_for_bit(graph, task):
    features, targets = cancer() if task == "classes" else diabetes()
    classes = 2 if task == "classes" else None
    federation = shared_out(features, targets, classes=classes, peers=len(graph.peers), validation=0.2)
    model = boosting(features, classes=classes, rounds=5)
    masked_as_pooled(model, federation, graph, rounds=5)


@pytest.mark.slow
async def test_live_peers_under_masks_end_with_the_model_of_their_pooled_data_bit_for_bit():
    features, targets = datasets.load_wine(return_X_y=True)
    graph = topology.path(5)
    federation = shared_out(features, targets, classes=3, peers=5)
    model = boosting(features, classes=3, rounds=3, max_bins=8)
    learner, pooled = trained(model, federation, rounds=3)
    resolved = compose(
        Exact(), ExactLearner(model, federation), graph, rounds=3, privacy=Pairwise(mask_graph="complete")
    )
    ended = await live(
        resolved.experiment, MemoryTransport(), resolved=resolved, source=SeededSource(1), names=graph.peers
    )
    for end in ended.values():
        found = learner.tensors(end.state.rows[0])
        for name in learner.layout.names:
            assert np.array_equal(found[name], pooled[name]), name


@pytest.mark.slow
def test_the_contract_of_algorithms_holds():
    features, targets = datasets.load_wine(return_X_y=True)
    federation = shared_out(features, targets, classes=3, peers=6)
    model = boosting(features, classes=3, rounds=10, max_bins=8)
    check_algorithm(Exact(), learner=ExactLearner(model, federation), rounds=3)


def test_training_stops_where_scikit_learn_stops():
    features, targets = cancer()
    federation = shared_out(features, targets, classes=2, peers=4, validation=0.3)
    model = boosting(features, classes=2, rounds=60, learning_rate=0.5, early_stopping=True, n_iter_no_change=3)
    run = simulate(Exact(), ExactLearner(model, federation), topology.ring(4), rounds=60, baselines=False)
    losses = run.models["peer0"]["validation_loss"].numpy()
    count = int(run.models["peer0"]["trees"])
    assert 0 < count < 60
    assert run.summary["rounds"] == count + 1  # the last round finds that the loss has stalled
    own = losses[: count + 1]
    falls = [bool((own[end - 3 : end] < own[end - 4] - model.tol).any()) for end in range(4, count + 2)]
    assert falls == [True] * (len(falls) - 1) + [False]


def test_early_stopping_without_samples_to_validate_on_is_refused():
    features, targets = cancer()
    model = boosting(features, classes=2, early_stopping=True)
    with pytest.raises(ModelError, match=r"set data\.validation above 0"):
        trained(model, shared_out(features, targets, classes=2, peers=2), rounds=1)


def test_one_target_of_zero_leaves_small_targets_their_precision():
    features, targets = diabetes()
    small = targets * 1e-9
    models = []
    for first in (small[0], 0.0):
        small[0] = first
        model = boosting(features, classes=None)
        _, tensors = trained(model, shared_out(features, small, classes=None, peers=1), rounds=10)
        models.append((tensors["scale"][0], margins_of(model, tensors, features, small)))
    (scale, before), (other, after) = models
    assert scale == other
    assert np.corrcoef(before[:, 0], after[:, 0])[0, 1] > 0.99


def test_targets_that_are_all_zero_are_predicted():
    features, targets = diabetes()
    model = boosting(features, classes=None)
    _, tensors = trained(model, shared_out(features, targets * 0, classes=None, peers=2), rounds=2)
    assert not margins_of(model, tensors, features, targets).any()


def test_the_module_for_predictions_gives_the_logits_of_the_learner():
    for load, classes in ((datasets.load_wine, 3), (datasets.load_breast_cancer, 2), (datasets.load_diabetes, None)):
        features, targets = load(return_X_y=True)
        model = boosting(features, classes=classes, rounds=6, max_depth=None, max_leaf_nodes=7)
        learner, tensors = trained(model, shared_out(features, targets, classes=classes, peers=2), rounds=6)
        module = model.module()
        module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=True)
        part = Part(np.asarray(features, np.float32), targets)
        found = module(torch.from_numpy(part.features)).numpy()
        assert np.allclose(found, learner.model.predicted(tensors, part), rtol=1e-12, atol=1e-12)


def test_a_feature_without_values_and_a_class_without_samples_do_no_harm():
    features = np.zeros((30, 2), np.float32)
    features[:, 0] = np.arange(30)
    federation = shared_out(features, np.zeros(30, int), classes=2, peers=3)
    model = boosting(features, classes=2, rounds=2)
    _, tensors = trained(model, federation, rounds=2)
    assert np.isfinite(tensors["value"]).all()
    assert tensors["base"][0] < -30


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_depth": None}, "trees need a bound"),
        ({"max_depth": 20}, "more than 32768 leaves"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; set it to a value above 0"),
        ({"max_bins": 256}, "max_bins is 256; set it to a value from 2 to 255"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        boosting(np.zeros((2, 2)), classes=2, **options)
