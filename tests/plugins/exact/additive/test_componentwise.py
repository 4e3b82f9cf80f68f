"""Component-wise boosting from totals: the authors' stored fit, closed forms, and the model of the pooled data."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.interpolate import BSpline
from sklearn import datasets

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner
from p2pfl.plugins.exact import Componentwise
from p2pfl.plugins.exact.additive.base_learners import BaseLearner, penalty_for, splines
from p2pfl.simulation import simulate
from plugins.exact.hospitals import FIRST, RISKS, chosen, hashed, hospitals
from plugins.exact.tables import shared_out, trained


def played(model, federation, graph, **options):
    run = simulate(Exact(), ExactLearner(model, federation), graph, rounds=model.rounds, baselines=False, **options)
    return {name: tensor.numpy() for name, tensor in run.models["peer0"].items()}, run


@pytest.mark.slow
def test_the_first_steps_are_those_of_the_stored_fit(data_dir):
    federation, options = hospitals(data_dir)
    assert [len(own) for own in federation.train.values()] == [303, 292, 116, 140]
    model = Componentwise(**options, rounds=3, every=70)
    found, _ = played(model, federation, topology.ring(4), privacy=Pairwise(mask_graph="complete"))
    assert found["offset"][0] == pytest.approx(-0.88848845, abs=1e-8)
    assert found["site_penalty"][0] == pytest.approx(185.811021, abs=1e-6)
    stored = {"age": 10930.3079, "sex": 0, "cp": 321.3832, "trestbps": 7024.7919, "restecg": 234.7561}
    stored |= {"thalach": 8700.9467, "exang": 0, "oldpeak": 3058.1596}
    assert found["penalty"] == pytest.approx([stored[learner.column] for learner in model.learners], abs=1e-4)
    assert [found["risks"][step] for step in (0, 1, 69, 200)] == pytest.approx([*RISKS.values()][:4], abs=1e-9)
    names = chosen(model, found["choices"])
    assert [names[0], names[68], names[199]] == ["exang-onehot-site", "cp-onehot-shared", "sex-onehot-site"]


@pytest.mark.slow
def test_the_first_thousand_choices_are_those_of_the_stored_fit(data_dir):
    federation, options = hospitals(data_dir)
    model = Componentwise(**options, rounds=10)
    found, _ = played(model, federation, topology.complete(4))
    assert hashed(chosen(model, found["choices"])) == FIRST


def diabetes():
    features, targets = datasets.load_diabetes(return_X_y=True)
    features = (100 * features[:, :4]).astype(np.float32)
    return features, targets.astype(np.float32)


@pytest.mark.slow
def test_straight_lines_end_at_least_squares():
    features, targets = diabetes()
    names = tuple(f"x{number}" for number in range(4))
    model = Componentwise(features=4, classes=None, rounds=1, every=800, learning_rate=0.5, linear=names)
    found, _ = played(model, shared_out(features, targets, classes=None, peers=3), topology.ring(3))
    slopes = found["coefficients"][:, 1]
    oracle = sm.OLS(targets.astype(float), sm.add_constant(features.astype(float))).fit()
    assert np.allclose(slopes, oracle.params[1:], rtol=1e-5)
    assert found["offset"][0] + found["coefficients"][:, 0].sum() == pytest.approx(oracle.params[0], rel=1e-7)


@pytest.mark.parametrize("least", [5, 1])
def test_a_piece_of_a_spline_at_an_end_of_its_values_has_people_enough(least):
    """The product of a piece with the residuals is the residual of a person who is alone in it."""
    values = np.append(np.random.default_rng(0).uniform(0, 1, 199), 40.0).astype(np.float32)[:, None]
    model = Componentwise(features=1, classes=None, rounds=1, every=1, least=least)
    found, _ = played(model, shared_out(values, values[:, 0], classes=None, peers=3), topology.ring(3))
    basis = model.learners[0].basis(values, low=found["low"][0], high=found["high"][0])
    assert (min(count for count in (basis > 0).sum(axis=0).tolist() if count) >= 5) == (least == 5)


def test_without_site_effects_the_model_is_that_of_the_pooled_data():
    features, targets = diabetes()
    model = Componentwise(features=4, classes=None, rounds=4, every=20, knots=6, df=3.0)
    federation = shared_out(features, targets, classes=None, peers=6)
    found, run = played(model, federation, topology.ring(6), privacy=Pairwise(mask_graph="complete"))
    learner, pooled = trained(model, federation, rounds=4)
    assert np.array_equal(found["choices"], pooled["choices"])
    assert np.allclose(found["coefficients"], pooled["coefficients"], rtol=1e-9, atol=1e-9)
    part = learner._part(np.arange(50))
    module = model.module()
    module.load_state_dict(next(iter(run.models.values())))
    outputs = module(torch.as_tensor(features[:50]))
    assert np.allclose(outputs.numpy(), model.predicted(found, part), rtol=1e-12)
    assert run.metrics[-1].training_loss < run.metrics[0].training_loss


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("sites", [0.0, 2.0])
def test_steps_stop_where_the_loss_of_all_validation_parts_no_longer_falls(sites):
    features, targets = diabetes()
    options = {"features": 4, "classes": None, "learning_rate": 1.0, "df": 6.0, "knots": 30, "site_df": sites}
    model = Componentwise(**options, rounds=6, every=20, early_stopping=True, n_iter_no_change=4, tol=0.0)
    federation = shared_out(features, targets, classes=None, peers=6, validation=0.3)
    found, _ = played(model, federation, topology.ring(6), privacy=Pairwise(mask_graph="complete"))
    taken, losses = int(found["steps"][0]), found["validation"]
    assert 4 < taken < 120
    assert (losses[taken - 3 : taken + 1] >= losses[taken - 4]).all()  # none of the last four is better
    assert all((losses[at - 4 : at] < losses[at - 5]).any() for at in range(5, taken + 1))
    learner = ExactLearner(model, federation)
    gaps = [
        model.personal(found, learner.own(peer), learner.own(peer).validation)[:, 0]
        - learner.own(peer).validation.targets
        for peer in federation.peers
    ]
    assert losses[taken] == pytest.approx(np.square(np.concatenate(gaps)).mean() / 2, rel=1e-9)


def test_early_stopping_needs_validation_samples():
    features, targets = diabetes()
    model = Componentwise(features=4, classes=None, rounds=1, early_stopping=True)
    with pytest.raises(ModelError, match=r"early_stopping needs samples to validate on; set data\.validation above 0"):
        played(model, shared_out(features, targets, classes=None, peers=3), topology.ring(3))


def test_a_peer_that_starts_again_finds_its_own_effects_from_the_log(data_dir):
    federation, options = hospitals(data_dir)
    model = Componentwise(**options, rounds=4, every=15)
    found, run = played(model, federation, topology.ring(4))
    again = ExactLearner(model, federation)
    peers = federation.peers
    row = again._row(found).repeat(4, 1)
    scores = again.evaluate(row, peers=peers, part="test")
    assert float(scores["accuracy"].mean()) == pytest.approx(run.summary["together"], abs=1e-12)
    part = again._part(federation.test[peers[2]])
    own = model.personal(found, again.own(peers[2]), part)
    assert np.abs(own - model.predicted(found, part)).max() > 0.1


@pytest.mark.parametrize("size", [4, 9, 14])
def test_splines_are_those_of_scipy(size):
    values = np.linspace(-2.0, 5.0, 97)
    width = 7.0 / (size - 3)
    knots = -2.0 + width * np.arange(-3, size + 1)
    inner = values[:-1]  # scipy leaves the end out of the last interval
    oracle = BSpline.design_matrix(inner, knots, 3).toarray()
    assert np.allclose(splines(inner, low=-2.0, high=5.0, size=size), oracle, atol=1e-12)
    assert splines(values, low=-2.0, high=5.0, size=size).sum(1) == pytest.approx(1)


@pytest.mark.parametrize("df", [2.2, 4.0, 6.5])
def test_penalties_leave_the_degrees_of_freedom(df):
    values = np.random.default_rng(0).normal(size=200)
    learner = BaseLearner("x", "spline", 0, 12)
    basis = splines(values, low=values.min(), high=values.max(), size=12)
    strength = penalty_for(basis.T @ basis, learner.penalty, df=df)
    smoother = basis @ np.linalg.solve(basis.T @ basis + strength * learner.penalty, basis.T)
    assert 2 * np.trace(smoother) - (smoother * smoother).sum() == pytest.approx(df, rel=1e-8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": 3}, "predicts two classes or a number, not 3"),
        ({"n_iter_no_change": 0}, "n_iter_no_change = 0 and tol = 1e-07 stop at no step"),
        ({"every": 0}, "every = 0, .* cannot be; set every"),
        ({"site_df": -1.0}, "site_df is -1.0; set it"),
        ({"linear": ("sex",)}, 'names the column "sex", which has no numbers; choose from age'),
    ],
)
def test_options_that_cannot_be_are_refused(options, said):
    columns = (Field("age"), Field("sex", ("f", "m")))
    with pytest.raises(ModelError, match=said):
        Componentwise(**{"features": 3, "classes": 2, "rounds": 1, "fields": columns} | options)


def test_one_class_alone_is_refused():
    federation = shared_out(np.ones((20, 1)), np.ones(20), classes=2, peers=3)
    with pytest.raises(LearningError, match="all samples are of one class"):
        played(Componentwise(features=1, classes=2, rounds=1, least=1), federation, topology.ring(3))
