"""Principal components with differential privacy: the total, what a sample changes, and its noise."""

import numpy as np
import pytest
from sklearn import datasets

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Own, Part
from p2pfl.plugins.exact import PCA, PrivatePCA
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained

FIELDS = (Field("age"), Field("ward", ("a", "b", "c")), Field("weight"))
BOUNDS = {"age": [0, 100], "weight": [30, 150]}
OPTIONS = {"features": 5, "bounds": BOUNDS, "fields": FIELDS}


def people(count, *, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(10, 90, count)
    ward = np.eye(3)[rng.choice(3, size=count, p=[0.5, 0.3, 0.2])]
    weight = (60 + 0.3 * age + rng.normal(0, 8, count)).clip(30, 150)
    return np.column_stack([age, ward, weight]).astype(np.float32), rng.integers(2, size=count)


@pytest.mark.parametrize("standardise", [False, True])
def test_without_noise_components_are_those_of_the_plain_model(standardise):
    federation = shared_out(*people(600), classes=2, peers=4)
    exact = trained(PCA(features=5, standardise=standardise), federation, rounds=1)[1]
    found = trained(PrivatePCA(standardise=standardise, **OPTIONS), federation, rounds=1)[1]
    assert found["samples"] == exact["samples"] == [600]
    assert np.allclose(found["mean"], exact["mean"], rtol=1e-4)
    assert np.allclose(
        found["variance"][:4], exact["variance"][:4] * 599 / (600 if not standardise else 599), rtol=1e-3
    )
    assert found["variance"][4] == pytest.approx(0, abs=1e-3)  # one level follows from the others
    assert np.allclose(found["components"][:4], exact["components"][:4], atol=1e-3)


def test_no_sample_changes_the_total_by_more_than_is_declared():
    model = PrivatePCA(**OPTIONS)
    worst = np.array(
        [[100, 1, 0, 0, 150], [1e9, 0, 1, 0, -1e9], [0, 1, 1, 1, 30], [50, 0, 0, 1, 90], [np.nan] * 5], np.float32
    )
    nothing, norms = Part(worst[:0], np.zeros(0, np.int64)), []
    for row in worst:
        own = Own(Part(row[None], np.array([1])), nothing)
        question = next(model.round(model.start(), lambda _, own=own: own))
        norms.append(np.linalg.norm(question.answer("ada").astype(float)) / question.change)
    assert max(norms) <= 1
    assert norms[0] > 0.999  # the bound is reached
    assert norms[3] < 0.5


def test_noise_is_calibrated_charged_and_leaves_the_first_components_of_many_samples():
    features, targets = datasets.load_breast_cancer(return_X_y=True)
    features = np.repeat((features[:, :4] - features[:, :4].mean(0)) / features[:, :4].std(0), 20, axis=0)
    federation = shared_out(features, np.repeat(targets, 20), classes=2, peers=4)
    model = PrivatePCA(features=4, bounds={f"x{number}": [-5, 5] for number in range(4)})
    exact = trained(PCA(features=4), federation, rounds=1)[1]
    run = simulate(
        Exact(),
        ExactLearner(model, federation),
        topology.complete(4),
        rounds=1,
        baselines=False,
        privacy=Pairwise(mask_graph="complete", epsilon=2.0),
    )
    assert run.summary["privacy"]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    found = {name: tensor.numpy() for name, tensor in run.models["peer0"].items()}
    assert not np.array_equal(found["components"], exact["components"])
    assert abs(found["components"][0] @ exact["components"][0]) > 0.99
    assert found["variance"][0] == pytest.approx(exact["variance"][0], rel=0.1)


def test_noise_that_exceeds_the_samples_and_missing_bounds_are_refused():
    model = PrivatePCA(**OPTIONS)
    with pytest.raises(LearningError, match="the noise exceeds the number of samples"):
        model._estimated(np.full(15, -3.0))
    with pytest.raises(ModelError, match='those of "weight" are missing'):
        PrivatePCA(**OPTIONS | {"bounds": {"age": [0, 100]}})
