"""Regressions from totals: those of statsmodels and scikit-learn, and of the pooled data bit for bit."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.regression.fits import coefficients
from p2pfl.plugins.exact.regression.glm import GLM
from p2pfl.plugins.exact.sums import numbers, summed
from p2pfl.simulation import simulate
from p2pfl.testing import check_algorithm
from plugins.exact.tables import adult, shared_out, trained

CLOSE = 1e-10


def fitted(model, features, targets, *, classes, graph=None):
    """Return the model that peers on a ring, some with a few samples, compute under masks without limits."""
    model = model.alone
    graph = graph or topology.ring(6)
    federation = shared_out(features, targets, classes=classes, peers=len(graph.peers))
    run = simulate(
        Exact(),
        ExactLearner(model, federation),
        graph,
        rounds=40,
        privacy=Pairwise(mask_graph="complete"),
        baselines=False,
    )
    return {name: tensor.numpy() for name, tensor in next(iter(run.models.values())).items()}


def assert_close(tensors, oracle, *, relative=CLOSE):
    """Compare estimates, standard errors, statistics, p-values, intervals and deviances with statsmodels."""
    beta = np.append(tensors["weight"], tensors["bias"])
    scale = np.abs(oracle.bse)
    assert tensors["converged"] == 1
    assert (np.abs(beta - oracle.params) / scale).max() < relative
    names = [str(number) for number in range(len(beta))]
    found = coefficients(beta, tensors["covariance"], names)
    assert np.allclose([each.error for each in found], oracle.bse, rtol=relative)
    assert np.allclose([each.z for each in found], oracle.tvalues, rtol=relative, atol=relative)
    assert np.allclose([each.p for each in found], oracle.pvalues, rtol=1e-8, atol=1e-12)
    assert np.allclose([[each.low, each.high] for each in found], oracle.conf_int(), rtol=1e-9, atol=1e-9 * scale.max())
    assert tensors["deviance"] == pytest.approx(oracle.deviance, rel=relative)
    assert tensors["null_deviance"] == pytest.approx(oracle.null_deviance, rel=relative)


def oracle_of(family, features, targets):
    design = np.column_stack([np.asarray(features, np.float32).astype(np.float64), np.ones(len(targets))])
    return sm.GLM(np.asarray(targets, np.float64), design, family=family).fit(
        tol=1e-15, tol_criterion="deviance", maxiter=200
    )


def clinic(seed=0, samples=400):
    """Return features of very different size, and predictors that are moderate."""
    rng = np.random.default_rng(seed)
    raw = np.column_stack([rng.normal(120, 15, samples), rng.integers(0, 2, samples), rng.normal(size=samples) * 1e-3])
    return raw.astype(np.float32), (raw - [120, 0.5, 0]) @ [0.02, 0.5, 300.0], rng


def test_logistic_regression_is_that_of_statsmodels():
    features, predictor, rng = clinic()
    targets = (rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))).astype(int)
    found = fitted(GLM(features=3, classes=2), features, targets, classes=2)
    assert_close(found, oracle_of(sm.families.Binomial(), features, targets))


def test_linear_regression_is_that_of_statsmodels():
    features, targets = datasets.load_diabetes(return_X_y=True)
    found = fitted(GLM(features=10, classes=None), features, targets, classes=None)
    assert_close(found, oracle_of(sm.families.Gaussian(), features, targets.astype(np.float32)), relative=1e-9)
    assert found["steps"] == 1


def test_poisson_regression_is_that_of_statsmodels():
    features, predictor, rng = clinic(1)
    targets = rng.poisson(np.exp(1 + predictor))
    found = fitted(GLM(features=3, classes=None, family="poisson"), features, targets, classes=None)
    assert_close(found, oracle_of(sm.families.Poisson(), features, targets))


def test_gamma_regression_is_that_of_statsmodels():
    features, predictor, rng = clinic(2)
    targets = (rng.gamma(2.0, np.exp(predictor) / 2) + 1e-3).astype(np.float32)
    found = fitted(GLM(features=3, classes=None, family="gamma"), features, targets, classes=None)
    assert_close(found, oracle_of(sm.families.Gamma(sm.families.links.Log()), features, targets))


@pytest.mark.slow
def test_ridge_is_that_of_scikit_learn():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    features = ((features - features.mean(0)) / features.std(0)).astype(np.float32)
    found = fitted(GLM(features=30, classes=2, ridge=1.0), features, targets, classes=2)
    oracle = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-14, max_iter=200).fit(
        features.astype(np.float64), targets
    )
    assert np.abs(found["weight"] - oracle.coef_).max() < CLOSE
    assert np.abs(found["bias"] - oracle.intercept_).max() < CLOSE


@pytest.mark.parametrize(
    "graph", [topology.path(5), topology.build("small_world", peers=12, seed=1, degree=4, rewire=0.3)]
)
def test_peers_end_with_the_model_of_their_pooled_data_bit_for_bit(graph):
    features, predictor, rng = clinic(3)
    targets = (rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))).astype(int)
    model = GLM(features=3, classes=2)
    found = fitted(model, features, targets, classes=2, graph=graph)
    _, pooled = trained(model, shared_out(features, targets, classes=2, peers=3), rounds=40)
    for name, value in pooled.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.slow
def test_unscaled_adult_is_that_of_statsmodels(data_dir):
    features, targets = adult(data_dir)
    found = fitted(GLM(features=14, classes=2), features, targets, classes=2, graph=topology.ring(16))
    assert_close(found, oracle_of(sm.families.Binomial(), features, targets), relative=1e-9)


def test_a_step_that_is_too_long_is_shortened():
    features = np.array([[0.0], [1.0], [2.0], [30.0]], np.float32)
    targets = np.array([1, 0, 1000, 2], np.float32)
    model = GLM(features=1, classes=None, family="poisson")
    found = fitted(model, features, targets, classes=None, graph=topology.ring(3))
    oracle = oracle_of(sm.families.Poisson(), features, targets)
    assert found["converged"] == 1
    assert found["deviance"] == pytest.approx(oracle.deviance, rel=1e-9)


def test_a_feature_that_others_determine_has_no_coefficient():
    features, predictor, rng = clinic(4)
    targets = (rng.random(len(predictor)) < 0.5).astype(int)
    twice = np.column_stack([features, features[:, 1]])
    found = fitted(GLM(features=4, classes=2), twice, targets, classes=2)
    beta = np.append(found["weight"], found["bias"])
    assert [each.name for each in coefficients(beta, found["covariance"], list("abcde")) if each.estimate is None] == [
        "d"
    ]


def test_separated_classes_are_refused():
    features = np.linspace(-1, 1, 40)[:, None]
    with pytest.raises(
        LearningError, match=r"separate the classes perfectly, most of all .x0., .*; set model\.options\.ridge"
    ):
        fitted(GLM(features=1, classes=2), features, (features[:, 0] > 0).astype(int), classes=2)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_quasi_complete_separation_is_noticed(family):
    rng = np.random.default_rng(7)
    group, age = np.arange(200) % 4 == 0, rng.normal(50, 9, 200)
    targets = np.where(group, 0, rng.integers(0, 2, 200))  # nobody of the group has the event
    model = GLM(features=2, classes=2 if family == "binomial" else None, family=family)
    said = r"no maximum, because .x1. separates some targets from all others.*; set model\.options\.ridge"
    with pytest.raises(LearningError, match=said):
        fitted(model, np.column_stack([age, group]), targets, classes=model.classes)


def test_a_rare_event_is_not_taken_for_separation():
    rng = np.random.default_rng(8)
    group, age = np.arange(4000) % 2 == 0, rng.normal(50, 9, 4000)
    targets = np.where(group, 0, rng.integers(0, 2, 4000))
    targets[0] = 1  # one event of 2,000 in the group
    features = np.column_stack([age, group]).astype(np.float32)
    assert_close(
        fitted(GLM(features=2, classes=2), features, targets, classes=2),
        oracle_of(sm.families.Binomial(), features, targets),
        relative=1e-8,
    )


def test_a_dispersion_needs_more_samples_than_coefficients():
    features, targets = np.random.default_rng(9).normal(size=(2, 4, 4))
    with pytest.raises(LearningError, match=r"no more samples than coefficients.*; use fewer features, or set"):
        fitted(GLM(features=4, classes=None), features, targets[0], classes=None, graph=topology.ring(3))
    found = fitted(GLM(features=4, classes=None, ridge=1.0), features, targets[0], classes=None, graph=topology.ring(3))
    beta = np.append(found["weight"], found["bias"])
    [first, *_] = coefficients(beta, found["covariance"], list("abcde"), penalised=True)
    assert np.isnan(found["dispersion"])
    assert first.estimate == found["weight"][0, 0]
    assert first.error is None


def test_errors_under_a_ridge_are_those_of_the_posterior_without_tests():
    features, predictor, rng = clinic(6)
    features = (features - features.mean(0)) / features.std(0)
    targets = (predictor + rng.normal(size=len(predictor))).astype(np.float32)
    found = fitted(GLM(features=3, classes=None, ridge=7.0), features, targets, classes=None)
    design = np.column_stack([features.astype(np.float64), np.ones(len(targets))])
    information = design.T @ design
    inverse = np.linalg.inv(information + np.diag([7.0, 7.0, 7.0, 0.0]))
    beta = inverse @ design.T @ targets
    scale = ((targets - design @ beta) ** 2).sum() / (len(targets) - 4)
    rows = coefficients(np.append(found["weight"], found["bias"]), found["covariance"], list("abcd"), penalised=True)
    assert [row.estimate for row in rows] == pytest.approx(beta, rel=1e-9)
    assert [row.error for row in rows] == pytest.approx(np.sqrt(scale * np.diag(inverse)), rel=1e-9)
    assert {row.z for row in rows} == {row.p for row in rows} == {None}


def test_a_peer_that_cannot_learn_alone_does_not_end_a_run_that_can():
    features, predictor, rng = clinic(10, samples=90)
    targets = (rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))).astype(int)
    federation = shared_out(features, targets, classes=2, peers=4)
    peer = federation.peers[0]
    few = np.concatenate([np.flatnonzero(targets)[:2], np.flatnonzero(targets == 0)[:2]])
    for other in federation.peers:
        federation.train[other] = np.setdiff1d(federation.train[other], few)
    federation.train[peer] = few
    run = simulate(Exact(), ExactLearner(GLM(features=3, classes=2, least=1), federation), topology.ring(4), rounds=30)
    assert run.summary["together"] > 0.5
    assert run.summary["per_peer"][peer]["alone"] is not None


def test_targets_that_a_family_does_not_allow_are_refused():
    with pytest.raises(DataError, match=r"has a negative count among its targets, which poisson does not allow"):
        fitted(GLM(features=1, classes=None, family="poisson"), np.ones((9, 1)), -np.ones(9), classes=None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": 3, "family": "binomial"}, "binomial takes two classes, multinomial more of them"),
        ({"classes": 2, "family": "poisson"}, "does not fit the target"),
        ({"classes": None, "family": "binomial"}, "does not fit the target"),
        (
            {"classes": None, "family": "tweedie"},
            "choose from binomial, multinomial, gaussian, poisson, gamma, negative_binomial",
        ),
        ({"classes": 2, "ridge": -1.0}, "ridge is -1.0; set it to a finite value of at least 0"),
        ({"classes": 2, "ridge": math.nan}, "ridge is nan; set it to a finite value of at least 0"),
        ({"classes": 2, "ridge": math.inf}, "ridge is inf; set it to a finite value of at least 0"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        GLM(features=2, **options)


@pytest.mark.slow
def test_the_contract_of_algorithms_holds():
    features, predictor, rng = clinic(5, samples=120)
    targets = (rng.random(len(predictor)) < 1 / (1 + np.exp(-predictor))).astype(int)
    check_algorithm(
        Exact(),
        learner=ExactLearner(GLM(features=3, classes=2, least=1), shared_out(features, targets, classes=2, peers=6)),
        rounds=3,
    )


def test_exact_sums_do_not_depend_on_the_order_or_the_owner_of_samples():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20_000, 3)) * 10.0 ** rng.uniform(-9, 9, (20_000, 1))
    whole = summed(20_000, 3, lambda where: values[where])
    parts = sum(summed(5_000, 3, lambda where, own=values[start::4]: own[where]) for start in range(4))
    assert np.array_equal(numbers(whole), numbers(parts))
    assert numbers(whole).tolist() == pytest.approx([math.fsum(column) for column in values.T], rel=1e-15)
