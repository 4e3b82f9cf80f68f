"""Importances of features: those of XGBoost and scikit-learn."""

import dataclasses

import numpy as np
import pytest
import xgboost
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from p2pfl.learning.learner import Explains
from p2pfl.plugins.exact import Boosting, RandomForest
from plugins.exact.tables import shared_out, trained

LOADS = {"classes": (datasets.load_breast_cancer, 2), "numbers": (datasets.load_diabetes, None)}
LOADS["several"] = (datasets.load_wine, 3)


def loaded(task):
    load, classes = LOADS[task]
    features, targets = load(return_X_y=True)
    return np.asarray(features, np.float32), targets, classes


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_gains_and_splits_of_boosting_are_those_of_xgboost(task):
    features, targets, classes = loaded(task)
    options = {"max_depth": 4, "max_leaf_nodes": None, "min_samples_leaf": 1, "max_bins": 32, "least": 1}
    options |= {"l2_regularization": 1.0, "min_hessian": 1.0}
    model = Boosting(features=features.shape[1], classes=classes, rounds=15, **options)
    learner, tensors = trained(model, shared_out(features, targets, classes=classes, peers=3), rounds=15)
    codes = model.bins(tensors).codes(features).T.astype(np.float64)
    settings = {"max_depth": 4, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1.0, "max_bin": 256}
    settings |= {"objective": "binary:logistic" if classes else "reg:squarederror"}
    settings |= {"tree_method": "hist", "base_score": float(targets.mean())}
    names = [f"x{number}" for number in range(features.shape[1])]
    oracle = xgboost.train(settings, xgboost.DMatrix(codes, targets, feature_names=names), num_boost_round=15)
    assert isinstance(learner, Explains)
    found = learner.explained(learner._row(tensors)).importances
    gains, weights = (oracle.get_score(importance_type=kind) for kind in ("total_gain", "weight"))
    assert {each.name for each in found} == {*gains}
    for each in found:
        assert each.total_gain == pytest.approx(gains[each.name], rel=1e-4)
        assert each.weight == weights[each.name]
        assert each.importance == pytest.approx(gains[each.name] / sum(gains.values()), rel=1e-4)
    assert [each.importance for each in found] == sorted((each.importance for each in found), reverse=True)


@pytest.mark.parametrize("task", LOADS)
def test_importances_of_a_tree_are_those_of_scikit_learn(task):
    features, targets, classes = loaded(task)
    options = {"max_depth": 3, "min_samples_leaf": 15}
    width = features.shape[1]
    model = RandomForest(
        features=width, classes=classes, rounds=1, n_estimators=1, bootstrap=False, max_features=1.0, **options
    )
    learner, tensors = trained(model, shared_out(features, targets, classes=classes, peers=3), rounds=1)
    codes = model.bins(tensors).codes(features).T
    kind = DecisionTreeClassifier if classes else DecisionTreeRegressor
    oracles = [kind(**options, random_state=seed).fit(codes, targets).feature_importances_ for seed in range(20)]
    found = {each.name: each.importance for each in learner.explained(learner._row(tensors)).importances}
    own = np.array([found.get(f"x{number}", 0.0) for number in range(width)])
    assert sum(found.values()) == pytest.approx(1.0)
    assert min(np.abs(own - each).max() for each in oracles) < 1e-6  # scikit-learn draws which of equal splits it takes


@pytest.mark.slow
def test_importances_of_forests_agree_with_those_of_scikit_learn_as_its_own_seeds_do():
    features, targets, _ = loaded("classes")
    own, theirs = [], []
    for seed in range(4):
        model = RandomForest(features=30, classes=2, rounds=2, n_estimators=60, max_depth=8, seed=seed)
        learner, tensors = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=2)
        found = {each.name: each.importance for each in learner.explained(learner._row(tensors)).importances}
        own.append([found.get(f"x{number}", 0.0) for number in range(30)])
        assert sum(own[-1]) == pytest.approx(1.0)
        oracle = RandomForestClassifier(60, max_depth=8, random_state=seed).fit(features, targets)
        theirs.append(oracle.feature_importances_)
    among = np.corrcoef(theirs)[np.triu_indices(4, 1)].min()
    assert np.corrcoef(np.mean(own, axis=0), np.mean(theirs, axis=0))[0, 1] > among


def test_gains_of_numbers_do_not_depend_on_where_the_unit_of_sums_lies():
    features, targets, _ = loaded("numbers")
    for model in (
        Boosting(features=10, classes=None, rounds=3),
        RandomForest(features=10, classes=None, rounds=1, n_estimators=3, max_depth=4, bootstrap=False),
    ):
        totals = []
        for factor in (1.0, 2.0**-20):
            federation = shared_out(features, targets * factor, classes=None, peers=2)
            learner, tensors = trained(dataclasses.replace(model), federation, rounds=model.rounds)
            found = learner.explained(learner._row(tensors)).importances
            totals.append({each.name: each.total_gain / factor**2 for each in found})
        assert totals[0] == pytest.approx(totals[1], rel=1e-9)


def test_columns_of_a_table_name_the_features_and_a_model_without_trees_has_none():
    features, targets, _ = loaded("classes")
    model = Boosting(features=30, classes=2, rounds=2)
    learner, tensors = trained(model, shared_out(features, targets, classes=2, peers=2), rounds=1)
    assert learner.explained(learner._row(tensors)).importances
    assert learner.explained(learner.start(["all"])[0]).importances == ()
