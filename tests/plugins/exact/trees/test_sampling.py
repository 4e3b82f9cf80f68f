"""Random samples and features of boosting, drawn by public keys."""

import dataclasses

import numpy as np
import pytest
import xgboost
from sklearn import datasets

from p2pfl import topology
from p2pfl.core.errors import ExperimentError, ModelError
from p2pfl.experiment import plan, read
from p2pfl.learning import ExactLearner, Part, additive
from p2pfl.plugins.exact import Boosting
from plugins.exact.tables import masked_as_pooled, shared_out, trained

GRAPHS = {"ring": topology.ring(8), "path": topology.path(5)}
SHARES = {
    "samples": {"subsample": 0.6},
    "columns": {"colsample_bytree": 0.4},
    "all": {"subsample": 0.6, "colsample_bytree": 0.5},
}


def cancer():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    return np.asarray(features, np.float32), targets


def boosting(features, *, classes=2, rounds=8, **options):
    settings = {"max_depth": 3, "max_leaf_nodes": None, "min_samples_leaf": 1, "max_bins": 32, "seed": 7} | options
    return Boosting(features=features.shape[1], classes=classes, rounds=rounds, **{"least": 1} | settings)


def split_by(tensors, tree):
    features = tensors["feature"][tree]
    return {*features[features >= 0].astype(int).tolist()}


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_peers_under_masks_end_with_the_model_of_their_pooled_data_bit_for_bit(shares, graph):
    features, targets = cancer()
    federation = shared_out(features, targets, classes=2, peers=len(graph.peers), validation=0.2)
    model = boosting(features, rounds=4, **shares)
    masked_as_pooled(model, federation, graph, rounds=4)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("numbers", [False, True])
def test_trees_of_drawn_samples_and_columns_are_those_of_xgboost_on_them(numbers):
    features, targets = (
        datasets.load_diabetes(return_X_y=True) if numbers else datasets.load_breast_cancer(return_X_y=True)
    )
    features = np.asarray(features, np.float32)
    model = boosting(
        features,
        classes=None if numbers else 2,
        l2_regularization=1.0,
        min_hessian=1.0,
        subsample=0.6,
        colsample_bytree=0.5,
    )
    federation = shared_out(features, targets, classes=model.classes, peers=3)
    _, tensors = trained(model, federation, rounds=8)
    bins, part = model.bins(tensors), Part(features, federation.dataset.targets.numpy())
    codes = bins.codes(features).T.astype(np.float64)
    settings = {"max_depth": 3, "eta": 0.1, "lambda": 1.0, "min_child_weight": 1.0, "max_bin": 256, "base_score": 0.5}
    settings |= {"objective": "reg:squarederror" if numbers else "binary:logistic", "tree_method": "hist"}
    for round in range(8):
        before, after = (
            model.margins({**tensors, "trees": np.array([float(count)])}, Part(features, part.targets))[:, 0]
            for count in (round, round + 1)
        )
        drawn, columns = model.sampling.samples(part, round=round), model.sampling.features(bins, round=round)
        shown = np.zeros_like(codes)
        shown[:, columns] = codes[:, columns]
        matrix = xgboost.DMatrix(shown[drawn], targets[drawn], base_margin=before[drawn])
        oracle = xgboost.train(settings, matrix, num_boost_round=1)
        theirs = oracle.predict(xgboost.DMatrix(shown, base_margin=before), output_margin=True)
        assert np.abs(after - theirs).max() < 1e-6 * max(1.0, np.abs(targets).max())
        assert split_by(tensors, round) <= {*columns.tolist()}
        assert 0.5 < drawn.mean() < 0.7
        assert len(columns) == 15 - 10 * numbers


def test_totals_have_the_columns_of_a_tree_alone():
    features, targets = cancer()
    federation = shared_out(features, targets, classes=2, peers=2)

    def sizes(model):
        learner = ExactLearner(model, federation.pooled("all"))
        asking, found, total = additive(learner).asking(learner.start(["all"])[0], round=0), [], None
        try:
            while True:
                question = next(asking) if total is None else asking.send(total)
                found.append(question.size)
                total = question.answer("all")
        except StopIteration:
            return found[3:]  # after the bins and the classes

    whole, half = sizes(boosting(features, max_depth=1)), sizes(boosting(features, max_depth=1, colsample_bytree=0.5))
    assert len(whole) == len(half) == 1
    assert half[0] < 0.6 * whole[0]


def test_another_seed_draws_others_and_shares_of_one_draw_nothing():
    features, targets = cancer()
    federation = shared_out(features, targets, classes=2, peers=2)
    drawn = boosting(features, rounds=3, **SHARES["all"])
    one, two = (trained(dataclasses.replace(drawn, seed=seed), federation, rounds=3)[1] for seed in (1, 2))
    assert not np.array_equal(one["feature"], two["feature"])
    plain = boosting(features, rounds=3)
    one, two = (trained(dataclasses.replace(plain, seed=seed), federation, rounds=3)[1] for seed in (1, 2))
    assert np.array_equal(one["value"], two["value"])


def test_leaves_of_quantiles_follow_from_the_drawn_samples():
    features, targets = datasets.load_diabetes(return_X_y=True)
    features = np.asarray(features, np.float32)
    model = boosting(features, classes=None, loss="quantile", quantile=0.7, subsample=0.5, min_samples_leaf=5, rounds=1)
    _, tensors = trained(model, shared_out(features, targets, classes=None, peers=3), rounds=1)
    part = Part(features, np.float32(targets).astype(np.float64))
    drawn = model.sampling.samples(part, round=0)
    moved = (model.margins(tensors, part)[:, 0] - tensors["base"][0]) / model.learning_rate
    for value in np.unique(moved):
        residuals = part.targets[drawn & (moved == value)] - tensors["base"][0]
        assert abs(value - np.quantile(residuals, 0.7)) < 2**-7 * np.abs(residuals).max()


@pytest.mark.parametrize("option", ["subsample", "colsample_bytree"])
def test_trees_with_private_noise_draw_nothing_that_is_not_accounted(option):
    table = {"data": {"name": "breast_cancer"}, "model": {"name": "random_boosting", "options": {option: 0.5}}}
    table |= {"privacy": {"mode": "pairwise", "epsilon": 1.0}, "topology": {"kind": "ring", "peers": 4}}
    with pytest.raises(ExperimentError, match=f"random_boosting has no option {option}; its options are"):
        plan(read(table))


@pytest.mark.parametrize("option", ["subsample", "colsample_bytree"])
@pytest.mark.parametrize("share", [0.0, 1.5])
def test_shares_are_above_zero_and_at_most_one(option, share):
    with pytest.raises(ModelError, match=f"{option} is {share}; set it to a value above 0, at most 1"):
        boosting(np.zeros((2, 2)), **{option: share})
