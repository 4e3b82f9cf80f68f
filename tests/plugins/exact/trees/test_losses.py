"""Losses of boosting: those of scikit-learn, and functions of the user's."""

import sys
import types

import numpy as np
import pytest
import torch
import xgboost
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import mean_gamma_deviance, mean_pinball_loss, mean_poisson_deviance

from p2pfl import topology
from p2pfl.core.errors import DataError, ModelError
from p2pfl.learning import ExactLearner, Part
from p2pfl.plugins.exact import Boosting
from p2pfl.plugins.exact.sketch import quantiles
from plugins.exact.tables import masked_as_pooled, shared_out, trained

GRAPHS = {"ring": topology.ring(8), "path": topology.path(5)}


def measured():
    return datasets.load_diabetes(return_X_y=True)


def counted():
    """Return features, and counts whose means depend on them."""
    features, targets = measured()
    return features, np.random.default_rng(0).poisson(targets / 60.0).astype(np.float64)


DATA = {"poisson": counted, "gamma": measured, "quantile": measured, "absolute_error": measured}
OPTIONS = {"quantile": {"quantile": 0.8}}


def boosting(features, loss, *, rounds=10, classes=None, **options):
    settings = {"max_depth": 3, "max_leaf_nodes": None, "min_samples_leaf": 5, "max_bins": 32, "least": 1}
    return Boosting(
        features=features.shape[1],
        classes=classes,
        rounds=rounds,
        loss=loss,
        **settings | OPTIONS.get(loss, {}) | options,
    )


def fitted(loss, *, rounds=20, **options):
    """Return features, targets, the model, its tensors and its margins."""
    features, targets = DATA[loss]()
    model = boosting(features, loss, rounds=rounds, **options)
    _, tensors = trained(model, shared_out(features, targets, classes=None, peers=3), rounds=rounds)
    margins = model.margins(tensors, Part(np.asarray(features, np.float32), targets))[:, 0]
    return features, targets, model, tensors, margins


def codes_of(model, tensors, features):
    return model.bins(tensors).codes(np.asarray(features, np.float32)).T.astype(np.float64)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("options", [{}, {"l2_regularization": 1.0, "max_depth": None, "max_leaf_nodes": 9}])
@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_margins_of_means_with_a_logarithm_are_those_of_scikit_learn(loss, options):
    features, targets, model, tensors, margins = fitted(loss, **options)
    given = {key: getattr(model, key) for key in ("max_depth", "max_leaf_nodes", "min_samples_leaf")}
    codes = codes_of(model, tensors, features)
    oracle = HistGradientBoostingRegressor(
        loss=loss, max_iter=20, early_stopping=False, l2_regularization=model.l2_regularization, **given
    ).fit(codes, targets)
    assert np.abs(margins - np.log(oracle.predict(codes))).max() < 1e-6
    predicted = model.predicted(tensors, Part(np.asarray(features, np.float32), targets))
    assert np.allclose(predicted[:, 0], oracle.predict(codes), rtol=1e-6)


def test_margins_of_counts_are_those_of_xgboost():
    features, targets, model, tensors, margins = fitted("poisson", min_samples_leaf=1, l2_regularization=1.0)
    codes = codes_of(model, tensors, features)
    settings = {"max_depth": 3, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1e-3, "max_bin": 256}
    settings |= {"objective": "count:poisson", "tree_method": "hist", "base_score": float(targets.mean())}
    settings |= {"max_delta_step": 0.0}  # by default XGBoost multiplies second derivatives by exp(0.7)
    oracle = xgboost.train(settings, xgboost.DMatrix(codes, targets), num_boost_round=20)
    theirs = oracle.predict(xgboost.DMatrix(codes), output_margin=True)
    assert np.abs(margins - theirs).max() < 2e-6


@pytest.mark.parametrize("loss", ["quantile", "absolute_error"])
def test_the_first_tree_of_quantiles_splits_where_that_of_scikit_learn_does(loss):
    features, targets, model, tensors, _ = fitted(loss, rounds=1)
    codes = codes_of(model, tensors, features)
    share = model.objective.quantile
    above = np.where(targets >= tensors["base"][0], -share, 1 - share)
    oracle = HistGradientBoostingRegressor(
        max_iter=1, early_stopping=False, max_depth=3, max_leaf_nodes=None, min_samples_leaf=5
    ).fit(codes, -above)  # the trees of these derivatives with h = 1
    ours = tensors["feature"][0]
    theirs = oracle._predictors[0][0].nodes
    assert sorted(ours[ours >= 0].astype(int)) == sorted(theirs["feature_idx"][theirs["is_leaf"] == 0])


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize(("loss", "share"), [("quantile", 0.8), ("absolute_error", 0.5)])
def test_quantiles_are_as_good_as_those_of_scikit_learn(loss, share):
    features, targets, model, tensors, margins = fitted(loss, rounds=60)
    codes = codes_of(model, tensors, features)
    oracle = HistGradientBoostingRegressor(
        loss=loss,
        quantile=share if loss == "quantile" else None,
        max_iter=60,
        early_stopping=False,
        max_depth=3,
        max_leaf_nodes=None,
        min_samples_leaf=5,
    ).fit(codes, targets)
    theirs = oracle.predict(codes)
    lost, found = (mean_pinball_loss(targets, each, alpha=share) for each in (theirs, margins))
    assert abs(found / lost - 1) < 0.02
    assert abs((targets <= margins).mean() - share) < 0.04
    assert np.corrcoef(margins, theirs)[0, 1] > 0.98


def test_values_of_leaves_are_quantiles_of_residuals_to_within_a_cell():
    features, targets, model, tensors, _ = fitted("quantile", rounds=1)
    part = Part(np.asarray(features, np.float32), targets)
    moved = (model.margins(tensors, part)[:, 0] - tensors["base"][0]) / model.learning_rate
    assert abs(tensors["base"][0] / np.quantile(targets, 0.8) - 1) < 2**-7
    for value in np.unique(moved):
        residuals = targets[moved == value] - tensors["base"][0]
        assert abs(value - np.quantile(residuals, 0.8)) < 2**-7 * np.abs(residuals).max()


def test_quantiles_by_group_are_those_of_numpy_to_within_a_cell():
    rng = np.random.default_rng(1)
    group, value = rng.integers(0, 5, 3000), rng.normal(size=3000) * 10.0 ** rng.integers(-3, 4, 3000)
    value[group == 3] = 0.0
    group[group == 4] = 2
    held = {"ada": slice(0, 100), "bob": slice(100, 100), "cy": slice(100, 3000)}
    asked = quantiles(lambda peer: (group[held[peer]], value[held[peer]]), groups=5, share=0.3)
    question = next(asked)
    try:
        while True:
            question = asked.send(sum(question.answer(peer) for peer in held))
    except StopIteration as stop:
        counts, found, unit = stop.value
    assert counts.tolist() == np.bincount(group, minlength=5).tolist()
    for number in range(3):
        assert abs(found[number] / np.quantile(value[group == number], 0.3) - 1) < 2**-7
    assert found[3] == found[4] == 0.0
    assert np.abs(value).max() <= unit < 2 * np.abs(value).max() + 1e-9


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("loss", [*DATA, "exact.trees.test_losses:cubed"])
def test_peers_under_masks_end_with_the_model_of_their_pooled_data_bit_for_bit(loss, graph):
    features, targets = DATA.get(loss, counted)()
    options = {} if loss in DATA else {"loss_bound": 4.0}
    federation = shared_out(features, targets, classes=None, peers=len(graph.peers), validation=0.2)
    model = boosting(features, loss, rounds=4, **options)
    masked_as_pooled(model, federation, graph, rounds=4)


def cubed(margins, targets):
    """Return the derivatives of a smooth loss whose slope is never above 4."""
    rest = margins - targets
    return 4 * np.tanh(rest), 4 / np.cosh(np.minimum(np.abs(rest), 300.0)) ** 2


def test_a_loss_of_the_users_own_is_that_of_xgboost():
    features, targets = counted()
    model = boosting(
        features, "exact.trees.test_losses:cubed", loss_bound=4.0, l2_regularization=1.0, min_samples_leaf=1, rounds=15
    )
    _, tensors = trained(model, shared_out(features, targets, classes=None, peers=3), rounds=15)
    margins = model.margins(tensors, Part(np.asarray(features, np.float32), targets))[:, 0]
    matrix = xgboost.DMatrix(codes_of(model, tensors, features), targets)
    settings = {"max_depth": 3, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1e-3, "max_bin": 256}
    settings |= {"tree_method": "hist", "base_score": 0.0}
    oracle = xgboost.train(settings, matrix, num_boost_round=15, obj=lambda found, held: cubed(found, held.get_label()))
    assert np.abs(margins - oracle.predict(matrix, output_margin=True)).max() < 2e-6


@pytest.mark.slow
def test_a_loss_of_the_users_own_has_one_margin_for_two_classes():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    federation = shared_out(features, targets, classes=2, peers=3)
    model = boosting(features, "exact.trees.test_losses:logistic", classes=2, loss_bound=1.0, rounds=30)
    learner, _ = trained(model, federation, rounds=30)
    rows = learner.start(["all"])
    for round in range(30):
        fitted = learner.fit(rows, peers=["all"], round=round)
        rows = fitted.rows
    assert float(learner.evaluate(rows, peers=["all"])["accuracy"][0]) > 0.95


def logistic(margins, targets):
    chances = 1 / (1 + np.exp(-margins))
    return chances - targets, chances * (1 - chances)


def wrong(name, function):
    module = types.ModuleType("clinic_losses")
    setattr(module, name, function)
    sys.modules["clinic_losses"] = module
    return f"clinic_losses:{name}"


def returning(slopes, curves):
    return lambda margins, targets: (slopes + 0 * margins, curves + 0 * targets)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (np.subtract, "two arrays"),
        (returning(7.0, 1.0), "loss_bound = 5"),
        (returning(np.nan, 1.0), "loss_bound = 5"),
        (returning(0.0, -1.0), "negative second derivative"),
        (lambda margins, targets: (margins[:3], targets[:3]), "shape"),
    ],
)
def test_derivatives_that_cannot_be_encoded_are_refused(function, said):
    features, targets = counted()
    model = boosting(features, wrong("odd", function), loss_bound=5.0)
    with pytest.raises(ModelError, match=said):
        trained(model, shared_out(features, targets, classes=None, peers=2), rounds=1)


@pytest.mark.parametrize(
    ("loss", "options", "said"),
    [
        ("huber", {}, 'loss is "huber"; for targets that are numbers, set it to squared_error or'),
        ("log_loss", {}, "for targets that are numbers"),
        ("poisson", {"classes": 2}, "for targets that are classes, set it to log_loss"),
        ("quantile", {"quantile": None}, "belong together"),
        ("quantile", {"quantile": 1.0}, "above 0 and below 1"),
        ("poisson", {"quantile": 0.5}, "belong together"),
        ("poisson", {"loss_bound": 1.0}, "belongs to no other one"),
        ("clinic:loss", {}, "loss_bound is the largest derivative"),
        ("clinic:loss", {"loss_bound": 0.0}, "set it to a number above 0"),
        ("clinic:loss", {"loss_bound": 1.0, "early_stopping": True}, "returns its derivatives alone"),
        ("clinic:loss", {"loss_bound": 1.0, "classes": 3}, "3 classes need one each"),
        ("quantile", {"monotonic_cst": [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]}, "need not follow the order"),
    ],
)
def test_losses_that_do_not_fit_are_refused(loss, options, said):
    with pytest.raises(ModelError, match=said):
        boosting(np.zeros((2, 10)), loss, **options)


def test_a_loss_that_cannot_be_imported_is_refused_before_training():
    model = boosting(np.zeros((2, 1)), "nowhere:loss", loss_bound=1.0)
    with pytest.raises(ModelError, match="cannot be imported"):
        model.check()


@pytest.mark.parametrize(("loss", "value"), [("poisson", -1.0), ("gamma", 0.0)])
def test_targets_without_a_logarithm_of_a_mean_are_refused(loss, value):
    features, targets = counted()
    targets = targets + 1.0
    targets[3] = value
    with pytest.raises(DataError, match=f'as model.options.loss = "{loss}" needs'):
        trained(boosting(features, loss), shared_out(features, targets, classes=None, peers=1), rounds=1)


def test_counts_that_are_all_zero_are_refused():
    features, targets = counted()
    with pytest.raises(ModelError, match="all targets are 0"):
        trained(boosting(features, "poisson"), shared_out(features, targets * 0, classes=None, peers=1), rounds=1)


DEVIANCES = {
    "poisson": lambda targets, found: mean_poisson_deviance(targets, found) / 2,
    "gamma": lambda targets, found: mean_gamma_deviance(targets, found) / 2,
    "quantile": lambda targets, found: mean_pinball_loss(targets, found, alpha=0.8),
}


@pytest.mark.parametrize("loss", DEVIANCES)
def test_the_score_named_loss_is_that_of_the_trees_and_falls(loss):
    features, targets = DATA[loss]()
    model = boosting(features, loss)
    federation = shared_out(features, targets, classes=None, peers=3)
    learner, tensors = trained(model, federation, rounds=10)
    part = Part(np.asarray(features, np.float32), federation.dataset.targets.double().numpy())
    row = learner._row(tensors)
    score = learner.evaluate(row[None], peers=["all"])
    found = model.predicted(tensors, part)[:, 0]
    assert float(score["loss"][0]) == pytest.approx(DEVIANCES[loss](part.targets, found), rel=1e-9)
    assert (np.diff(tensors["training_loss"]) < 0).all()
    before = model.predicted({**tensors, "trees": np.array([9.0])}, part)[:, 0]
    assert tensors["training_loss"][9] == pytest.approx(DEVIANCES[loss](part.targets, before), rel=1e-5)


@pytest.mark.parametrize("loss", ["poisson", "gamma", "quantile"])
def test_the_module_for_predictions_predicts_numbers(loss):
    features, targets, model, tensors, _ = fitted(loss, rounds=4)
    module = model.module()
    module.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=True)
    part = Part(np.asarray(features, np.float32), targets)
    found = module(torch.from_numpy(part.features)).numpy()
    assert np.allclose(found, model.predicted(tensors, part), rtol=1e-12, atol=1e-12)


def test_what_totals_show_has_the_residuals_of_quantiles():
    assert "residuals of each leaf" in Boosting.shown({"loss": "quantile"})
    assert "residuals of each leaf" in Boosting.shown({"loss": "absolute_error", "edges": "even"})
    assert "residuals" not in Boosting.shown({"loss": "poisson"})


def test_a_test_sample_without_a_logarithm_of_a_mean_is_refused_before_it_is_scored():
    features, targets = counted()
    federation = shared_out(features, targets + 1.0, classes=None, peers=1)
    federation.train[federation.peers[0]] = np.arange(10, len(targets))
    federation.dataset.targets[3] = 0.0
    learner = ExactLearner(boosting(features, "gamma"), federation)
    with pytest.raises(DataError, match="has a target that is not above 0"):
        learner.fit(learner.start(federation.peers), peers=federation.peers, round=0)
