"""Published and measured figures of boosting on Adult and a9a, in the settings of their sources."""

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Part
from p2pfl.plugins.exact import Boosting
from p2pfl.simulation import simulate
from plugins.exact.tables import a9a, adult, shared_out, trained

pytestmark = pytest.mark.slow


def margins(model, tensors, features, targets):
    return model.margins(tensors, Part(features.astype(np.float32), targets))[:, 0]


def test_twenty_trees_on_adult_are_those_of_scikit_learn_and_xgboost(data_dir):
    features, targets = adult(data_dir)
    settings = {"max_depth": 4, "max_leaf_nodes": None, "min_samples_leaf": 1}
    exact = settings | {"least": 1}
    model = Boosting(features=14, classes=2, rounds=20, max_bins=64, l2_regularization=1.0, min_hessian=1.0, **exact)
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=4), rounds=20)
    codes = model.bins(tensors).codes(features.astype(np.float32)).T.astype(float)
    own = margins(model, tensors, features, targets)

    trees = {"max_depth": 4, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1.0, "max_bin": 256, "tree_method": "hist"}
    trees |= {"objective": "binary:logistic", "base_score": float(targets.mean())}
    theirs = xgboost.train(trees, xgboost.DMatrix(codes, targets), num_boost_round=20)
    assert np.abs(own - theirs.predict(xgboost.DMatrix(codes), output_margin=True)).max() < 1e-6
    nodes = theirs.trees_to_dataframe()
    inner = nodes[nodes.Feature != "Leaf"]
    same = [
        sorted(int(name[1:]) for name in inner[inner.Tree == tree].Feature)
        == sorted(tensors["feature"][tree][tensors["feature"][tree] >= 0].astype(int).tolist())
        for tree in range(20)
    ]
    assert sum(same) == 20

    oracle = HistGradientBoostingClassifier(max_iter=20, early_stopping=False, l2_regularization=1.0, **settings)
    other = Boosting(features=14, classes=2, rounds=20, max_bins=64, l2_regularization=1.0, **exact)
    _, tensors = trained(other, shared_out(features, targets, classes=2, peers=4), rounds=20)
    found = margins(other, tensors, features, targets)
    assert np.abs(found - oracle.fit(codes, targets).decision_function(codes)).max() < 1e-7


def test_forty_peers_on_adult_end_with_the_trees_of_pooled_data_bit_for_bit(data_dir):
    features, targets = adult(data_dir)
    graph = topology.build("random_regular", peers=40, seed=2, degree=4)
    federation = shared_out(features, targets, classes=2, peers=40)
    model = Boosting(features=14, classes=2, rounds=4, max_depth=4, max_leaf_nodes=None, max_bins=64)
    learner, pooled = trained(model, federation, rounds=4)
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=4, privacy=Pairwise(), baselines=False)
    for tensors in run.models.values():
        assert all(np.array_equal(tensors[name].numpy(), pooled[name]) for name in learner.layout.names)


def test_a9a_at_the_settings_of_fedtree_reaches_its_area_under_the_curve(data_dir):
    """FedTree publishes .914 on the training part (docs/source/Experiments.rst): 50 trees, depth 6, rate .1.

    XGBoost itself reaches .9151 and .9034 from the mean, as here, and .9142 and .9030 from its default base score .5.
    """
    parts = [a9a(data_dir, part) for part in ("p0", "p1")]
    features, targets = (np.concatenate(each) for each in zip(*parts, strict=True))
    model = Boosting(
        features=123,
        classes=2,
        rounds=50,
        least=1,
        max_depth=6,
        max_leaf_nodes=None,
        min_samples_leaf=1,
        min_hessian=1.0,
        l2_regularization=1.0,
        max_bins=255,
    )
    _, tensors = trained(model, shared_out(features, targets, classes=2, peers=2), rounds=50)
    assert roc_auc_score(targets, margins(model, tensors, features, targets)) == pytest.approx(0.9151, abs=1e-4)
    features, targets = a9a(data_dir, "test")
    assert roc_auc_score(targets, margins(model, tensors, features, targets)) == pytest.approx(0.9034, abs=1e-4)
