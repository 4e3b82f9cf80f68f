"""Regressions with differential privacy: what a sample changes, the fits without noise, and errors that count it."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from sklearn.metrics import roc_auc_score

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Own, Part
from p2pfl.plugins.exact import PrivateGLM
from p2pfl.plugins.exact.regression.private_glm import raised
from p2pfl.privacy.keys import SecretSource, SeededSource
from p2pfl.simulation import simulate
from plugins.exact.tables import ADULT, adult_columns, shared_out, trained

FIELDS = (Field("age"), Field("ward", ("east", "north", "west")), Field("dose"))
BOUNDS = {"age": [0, 100], "dose": [-2, 2]}
OPTIONS = {"features": 5, "bounds": BOUNDS, "fields": FIELDS}
SLOPES = np.array([0.02, 0.8, -0.5, 0.0, 0.7])


def patients(count, *, seed=0):
    """Return ages, wards as three columns, and doses; and the predictor."""
    rng = np.random.default_rng(seed)
    ward = np.eye(3)[rng.integers(3, size=count)]
    features = np.column_stack([rng.uniform(20, 90, count), ward, rng.normal(size=count).clip(-2, 2)])
    features = features.astype(np.float32)
    return features, features.astype(float) @ SLOPES - 1.2, rng


def logistic(rounds=10, **options):
    return PrivateGLM(classes=2, rounds=rounds, **OPTIONS | options)


def linear(**options):
    return PrivateGLM(classes=None, rounds=1, **OPTIONS | {"bounds": BOUNDS | {"target": [-5, 5]}} | options)


def fitted(model, features, targets, *, epsilon=None, colluders=0, peers=4, seed=0, source=None):
    federation = shared_out(features, targets, classes=model.classes, peers=peers)
    run = simulate(
        Exact(),
        ExactLearner(model, federation),
        topology.complete(peers),
        rounds=model.rounds,
        privacy=Pairwise(mask_graph="complete", epsilon=epsilon, colluders=colluders),
        baselines=False,
        source=source or SeededSource(seed),
    )
    return {name: value.numpy() for name, value in next(iter(run.models.values())).items()}, run


def oracle(family, features, targets):
    """Return the fit of statsmodels without the last level, in the order of the features, the intercept last."""
    design = np.column_stack([features[:, [0, 1, 2, 4]].astype(float), np.ones(len(targets))])
    return sm.GLM(targets, design, family=family).fit(tol=1e-15, tol_criterion="deviance", maxiter=200)


def told(tensors):
    """Return the coefficients that a row has, and their standard errors."""
    kept = [0, 1, 2, 4, 5]
    beta = np.append(tensors["weight"], tensors["bias"])[kept]
    return beta, np.sqrt(np.diag(tensors["covariance"]))[kept]


def test_without_noise_a_linear_model_and_its_errors_are_those_of_statsmodels():
    features, predictor, rng = patients(500)
    targets = (predictor + rng.normal(size=500)).clip(-5, 5).astype(np.float32)
    found, run = fitted(linear(), features, targets)
    expected = oracle(sm.families.Gaussian(), features, targets.astype(float))
    beta, errors = told(found)
    assert np.abs((beta - expected.params) / expected.bse).max() < 1e-3  # terms are rounded to 2**-20
    assert errors == pytest.approx(expected.bse, rel=1e-4)
    assert found["dispersion"][0] == pytest.approx(expected.scale, rel=1e-4)
    assert found["samples"][0] == 500
    assert found["weight"][0, 3] == found["covariance"][3, 3] == 0  # the level with which the others are compared
    assert run.summary["rounds"] == 1


def test_without_noise_a_logistic_model_approaches_that_of_statsmodels_with_its_errors():
    features, predictor, rng = patients(800, seed=1)
    targets = (rng.random(800) < 1 / (1 + np.exp(-predictor))).astype(int)
    found, _ = fitted(logistic(rounds=60), features, targets)
    expected = oracle(sm.families.Binomial(), features, targets)
    beta, errors = told(found)
    assert np.abs((beta - expected.params) / expected.bse).max() < 1e-3
    assert errors == pytest.approx(expected.bse, rel=1e-3)


def test_peers_end_with_the_model_of_their_pooled_data_bit_for_bit():
    features, predictor, rng = patients(300, seed=2)
    targets = (rng.random(300) < 1 / (1 + np.exp(-predictor))).astype(int)
    for model, given in ((logistic(clip=1.5), targets), (linear(), predictor.astype(np.float32))):
        found, _ = fitted(model, features, given, peers=6)
        federation = shared_out(features, given, classes=model.classes, peers=3)
        _, pooled = trained(model, federation, rounds=model.rounds)
        assert all(np.array_equal(found[name], pooled[name]) for name in pooled)


WORST = np.array(
    [[100, 1, 0, 0, 2], [1e9, 1, 1, 1, -1e9], [np.nan, 0.2, 0.2, 0, 0], [np.inf, -5, 0, 3e38, -np.inf]], np.float32
)


@pytest.mark.parametrize("clip", [None, 1.0, 10.0], ids=str)
@pytest.mark.parametrize("kind", [linear, logistic])
def test_no_sample_changes_a_total_by_more_than_is_declared(kind, clip):
    model = kind() if clip is None else kind(clip=clip)
    nothing = Part(WORST[:0], np.zeros(0, np.int64))
    targets = [0, 1] if model.classes else [-5.0, 1e30, 0.0, np.inf]
    largest = [0.0] * model.rounds
    for row in WORST:
        for target in targets:
            own = Own(Part(row[None], np.array([target])), nothing)
            tensors = dict(model.start())
            for round in range(model.rounds):
                asking = model.round(tensors, lambda _, own=own: own)
                question = next(asking)
                answer = question.answer("ada")
                norm = float(np.linalg.norm(answer.astype(float)))
                assert norm <= question.change
                largest[round] = max(largest[round], norm / question.change)
                with pytest.raises(StopIteration) as ended:
                    asking.send(answer * (-1000 if round else 1))  # the model that others make of it
                tensors = ended.value.value.tensors
    assert largest[0] > {None: 0.999, 1.0: 0.6, 10.0: 0.01}[clip]  # the bound is reached


def test_a_long_row_weighs_less_instead_of_bending_the_model():
    features, predictor, rng = patients(3000, seed=3)
    targets = (predictor + rng.normal(size=3000)).clip(-5, 5).astype(np.float32)
    found, _ = fitted(linear(clip=1.4), features, targets)
    beta, _ = told(found)
    expected = oracle(sm.families.Gaussian(), features, targets.astype(float))
    assert found["samples"][0] < 2999
    assert np.abs((beta - expected.params) / expected.bse).max() < 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [linear, logistic])
def test_intervals_under_noise_cover_the_truth(kind):
    """Of 60 independent intervals of 95 %, fewer than 52 cover the truth once in 300 times."""
    covered = wider = 0
    for seed in range(12):
        features, predictor, rng = patients(6000, seed=10 + seed)
        if kind is linear:
            targets = (predictor + 0.5 * rng.normal(size=6000)).astype(np.float32)
        else:
            targets = (rng.random(6000) < 1 / (1 + np.exp(-predictor))).astype(int)
        found, run = fitted(kind(), features, targets, epsilon=8.0, seed=seed)
        beta, errors = told(found)
        truth = np.append(SLOPES[[0, 1, 2, 4]], -1.2)
        covered += int((np.abs(beta - truth) < 1.96 * errors).sum())
        plain, without = told(fitted(kind(), features, targets)[0])
        wider += int((errors > without).sum())
        assert found["noise"][0] == pytest.approx(run.summary["privacy"]["noise"] * math.sqrt(4), rel=0.2)
        assert np.isfinite(plain).all()
    assert covered >= 52
    assert wider == 60


def test_a_fit_with_secret_noise_states_the_epsilon_that_it_was_given():
    features, predictor, _ = patients(300, seed=5)
    _, run = fitted(linear(), features, predictor.astype(np.float32), epsilon=8.0, source=SecretSource())
    assert run.summary["privacy"]["epsilon"] == pytest.approx(8.0, rel=1e-6)


def test_a_model_of_noise_alone_is_finite():
    features, predictor, _ = patients(3, seed=4)
    for model, targets in ((linear(), predictor.astype(np.float32)), (logistic(rounds=4), np.array([0, 1, 1]))):
        found, _ = fitted(model, features, targets, epsilon=0.1)
        assert all(np.isfinite(value).all() for value in found.values())
        assert found["ridge"][0] > 0
        module = model.module()
        module.load_state_dict({name: torch.from_numpy(value) for name, value in found.items()}, strict=True)
        part = Part(features, targets)
        assert np.allclose(module(torch.from_numpy(features)).numpy(), model.predicted(found, part), rtol=1e-9)


def test_a_ridge_lifts_eigenvalues_above_the_noise():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 60)) / math.sqrt(2)
    noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.normal(size=60))
    matrix, ridge = raised(noise, noise=1.0)
    assert np.linalg.eigvalsh(matrix)[0] == pytest.approx(math.sqrt(120), rel=1e-9)
    assert ridge == pytest.approx(2 * math.sqrt(120), rel=0.2)


@pytest.mark.nightly
@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.885), (1.0, 0.890)])
def test_adult_keeps_most_of_its_area_under_the_curve(epsilon, least, data_dir):
    """Sixteen peers, one colluder, public bounds; without noise scikit-learn's logistic regression reaches .899."""
    features, targets, fields = adult_columns(data_dir)
    bounds = {name: given[:2] for name, given in ADULT.items()}
    names = [field.name for field in fields for _ in field.levels or [""]]
    for name in ("capital_gain", "capital_loss"):
        place = names.index(name)
        features[:, place] = np.log1p(features[:, place])
        bounds[name] = [0, math.log1p(bounds[name][1])]
    train, test = np.split(np.random.default_rng(1).permutation(len(targets)), [int(0.7 * len(targets))])
    model = PrivateGLM(features=features.shape[1], classes=2, rounds=20, bounds=bounds, fields=fields)
    found, _ = fitted(model, features[train], targets[train], epsilon=epsilon, peers=16, colluders=1)
    outputs = model.predicted(found, Part(features[test], targets[test]))
    assert roc_auc_score(targets[test], outputs[:, 1]) >= least


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: PrivateGLM(classes=3, rounds=9, **OPTIONS), "two classes or a number, not 3 classes; use"),
        (lambda: PrivateGLM(classes=None, rounds=5, **OPTIONS), "takes one total, .* set rounds = 1"),
        (lambda: logistic(rounds=2), "takes 3 totals or more, not 2; set rounds"),
        (lambda: logistic(clip=0.0), r"model\.options\.clip is 0\.0; set it"),
        (lambda: linear(bounds=BOUNDS), 'those of "target" are missing'),
        (lambda: logistic(bounds=BOUNDS | {"target": [0, 1]}), 'no number "target"; choose from age, dose'),
        (lambda: logistic(fields=(Field("age", missing=math.nan), *FIELDS[1:])), 'column "age" keeps missing values'),
    ],
)
def test_invalid_options_are_refused(make, said):
    with pytest.raises(ModelError, match=said):
        make()
