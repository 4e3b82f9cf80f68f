"""Peers with few samples, and models with many coefficients, are refused before totals show single samples."""

import numpy as np
import pytest

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import GLM, Cox, Lasso
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out

MODELS = {
    "glm": lambda **options: GLM(features=8, classes=None, **options),
    "lasso": lambda **options: Lasso(features=8, classes=None, lambdas=3, **options),
    "cox": lambda **options: Cox(features=8, classes=None, horizon=9.0, **options),
}


def federation(samples):
    """Return the data of four peers with as many samples each."""
    rng = np.random.default_rng(0)
    count = sum(samples)
    targets = rng.uniform(1, 8, count).astype(np.float32)
    found = shared_out(rng.normal(size=(count, 8)), targets, classes=None, peers=4)
    found.train.update(zip(found.peers, np.split(np.arange(count), np.cumsum(samples)[:-1]), strict=True))
    return found


def run(model, samples):
    return simulate(Exact(), ExactLearner(model, federation(samples)), topology.ring(4), rounds=3, baselines=False)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("name", MODELS)
def test_a_peer_with_few_samples_takes_no_part(name):
    with pytest.raises(DataError, match=r"peer1 has 4 samples, fewer than model\.options\.least = 5"):
        run(MODELS[name](), [30, 4, 30, 30])
    run(MODELS[name](least=4), [30, 4, 30, 30])
    run(MODELS[name](), [30, 0, 30, 30])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_many_coefficients_for_all_samples_is_refused(name):
    with pytest.raises(LearningError, match=r"[89] coefficients for the 24 samples of all peers are more than"):
        run(MODELS[name](least=1), [6, 6, 6, 6])
    run(MODELS[name](least=1, coefficients_per_sample=0.5), [6, 6, 6, 6])


def test_a_peer_that_learns_alone_has_no_limits():
    learner = ExactLearner(GLM(features=8, classes=None), federation([20, 20, 20, 20]))
    rows = learner.fit(learner.start(["peer0"]), peers=["peer0"], round=0).rows
    assert (learner.tensors(rows[0])["weight"] != 0).all()


@pytest.mark.parametrize("options", [{"least": 0}, {"coefficients_per_sample": 0.0}])
@pytest.mark.parametrize("name", MODELS)
def test_limits_that_allow_no_model_are_refused(name, options):
    with pytest.raises(ModelError, match=r"allow no model; set least to at least 1"):
        MODELS[name](**options)
