"""Lasso paths from totals are those of scikit-learn and statsmodels on the pooled data."""

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import datasets
from sklearn.linear_model import ElasticNet, LogisticRegression

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact.regression.lasso import Lasso
from p2pfl.simulation import simulate
from plugins.exact.tables import played, shared_out, trained


def fitted(model, features, targets, *, classes, validation=0.0):
    """Return the path that peers on a ring compute under masks, after a comparison with that of the pooled data."""
    model = model.alone
    federation = shared_out(features, targets, classes=classes, peers=6, validation=validation)
    privacy = Pairwise(mask_graph="complete")
    learner = ExactLearner(model, federation)
    run = simulate(Exact(), learner, topology.ring(6), rounds=model.lambdas, privacy=privacy, baselines=False)
    _, pooled = trained(model, federation, rounds=model.lambdas)
    found = {name: tensor.numpy() for name, tensor in run.models["peer1"].items()}
    assert all(np.array_equal(found[name], value, equal_nan=True) for name, value in pooled.items())
    assert found["converged"] == 1
    return found


@pytest.mark.slow
@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_the_path_of_a_linear_model_is_that_of_scikit_learn(ratio):
    features, targets = datasets.load_diabetes(return_X_y=True)
    features, targets = (20 * features).astype(np.float32), targets.astype(np.float32)
    found = fitted(Lasso(features=10, classes=None, lambdas=5, l1_ratio=ratio), features, targets, classes=None)
    assert found["penalties"][-1] == pytest.approx(1e-3 * found["penalties"][0], rel=1e-12)
    assert (found["path"][0, :-1] == 0).all()
    for penalty, beta in zip(found["penalties"][1:], found["path"][1:], strict=True):
        oracle = ElasticNet(alpha=penalty, l1_ratio=ratio, tol=1e-14, max_iter=10**6)
        oracle.fit(features.astype(float), targets.astype(float))
        assert np.allclose(beta[:-1], oracle.coef_, atol=1e-6)
        assert ((beta[:-1] == 0) == (oracle.coef_ == 0)).all()
        assert beta[-1] == pytest.approx(oracle.intercept_, rel=1e-9)


@pytest.mark.parametrize("penalties", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_the_path_of_a_linear_model_takes_one_total_of_products_for_all_penalties(penalties):
    features, targets = datasets.load_diabetes(return_X_y=True)
    model = Lasso(features=10, classes=None, lambdas=penalties).alone
    federation = shared_out(20 * features, targets, classes=None, peers=3, validation=0.3)
    learner = ExactLearner(model, federation.pooled("all"))
    sizes, step = played(learner, learner.start(["all"])[0], "all")
    assert step.over
    assert len([size for size in sizes if size > 4 * model.width]) == 1
    assert len(sizes) == 3  # samples and means, the deviance of the mean alone, and products
    found = learner.tensors(step.row)
    features, targets = federation.dataset.features.double().numpy(), federation.dataset.targets.double().numpy()
    for part, stated in (("train", found["deviances"]), ("validation", None)):
        held = np.concatenate([getattr(federation, part)[peer] for peer in federation.peers])
        gaps = targets[held] - features[held] @ found["path"][-1, :-1] - found["path"][-1, -1]
        deviance = stated[-1] if stated is not None else found["validation"][-1] * len(held)
        assert deviance == pytest.approx(float(gaps @ gaps), rel=1e-9)


@pytest.mark.slow
def test_the_path_of_a_logistic_model_is_that_of_scikit_learn():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    features = ((features - features.mean(0)) / features.std(0))[:, :8].astype(np.float32)
    found = fitted(Lasso(features=8, classes=2, lambdas=4, smallest=0.01), features, targets, classes=2)
    strength = 1 / (found["penalties"][1] * len(targets))
    oracle = LogisticRegression(l1_ratio=1.0, C=strength, solver="saga", tol=1e-8, max_iter=100_000)
    oracle.fit(features.astype(float), targets)
    beta = found["path"][1]
    assert np.allclose(beta[:-1], oracle.coef_[0], atol=1e-6)
    assert ((beta[:-1] == 0) == (oracle.coef_[0] == 0)).all()
    assert beta[-1] == pytest.approx(oracle.intercept_[0], abs=1e-6)


def test_a_poisson_model_meets_the_conditions_of_its_optimum():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 6)).astype(np.float32)
    targets = rng.poisson(np.exp(0.5 + features[:, 0] - 0.5 * features[:, 1]))
    model = Lasso(features=6, classes=None, family="poisson", lambdas=4, smallest=0.05)
    found = fitted(model, features, targets, classes=None)
    for penalty, beta, deviance in zip(found["penalties"], found["path"], found["deviances"], strict=True):
        means = np.exp(features.astype(float) @ beta[:-1] + beta[-1])
        slope = features.T.astype(float) @ (targets - means) / len(targets)
        used = beta[:-1] != 0
        assert np.allclose(slope[used], penalty * np.sign(beta[:-1][used]), atol=1e-10)
        assert (np.abs(slope[~used]) <= penalty * (1 + 1e-9)).all()
        assert abs((targets - means).sum()) < 1e-7
        assert deviance == pytest.approx(sm.families.Poisson().deviance(targets, means), rel=1e-10)


@pytest.mark.slow
def test_validation_data_choose_the_penalty():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(120, 30)).astype(np.float32)
    targets = (features[:, 0] + rng.normal(size=120)).astype(np.float32)
    found = fitted(Lasso(features=30, classes=None, lambdas=12), features, targets, classes=None, validation=0.4)
    chosen = int(found["chosen"][0])
    assert chosen == found["validation"].argmin()
    assert 0 < chosen < 11
    assert np.array_equal(found["weight"][0], found["path"][chosen, :-1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ridge": 1.0}, "ridge has no effect with lasso"),
        ({"l1_ratio": 0.0}, "make no path; set l1_ratio to above 0"),
        ({"lambdas": 1}, "make no path"),
        ({"smallest": float("nan")}, "make no path"),
    ],
)
def test_options_that_make_no_path_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        Lasso(features=2, classes=2, **options)
