"""Statistics with differential privacy: the totals, what a sample changes, noise, and its account."""

import math

import numpy as np
import pytest

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.core.errors import ModelError
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Own, Part
from p2pfl.plugins.exact import PrivateDescription
from p2pfl.plugins.exact.sums import NOISY_FRACTION
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out

FIELDS = (Field("age"), Field("sex", ("f", "m")), Field("weight"))
BOUNDS = {"age": [0, 100], "weight": [30, 150]}
OPTIONS = {"features": 4, "classes": 2, "bounds": BOUNDS, "fields": FIELDS, "bins": 10}


def people(count, *, seed=0):
    """Return ages (some missing), sexes as two columns, weights, and classes."""
    rng = np.random.default_rng(seed)
    age, male = rng.uniform(5, 95, count), rng.integers(2, size=count)
    weight = rng.normal(75, 12, count).clip(35, 140)
    age[:: max(1, count // 20)] = np.nan
    return np.column_stack([age, 1 - male, male, weight]).astype(np.float32), rng.integers(2, size=count)


def described(features, targets, *, epsilon=None, **options):
    model = PrivateDescription(**OPTIONS | options)
    federation = shared_out(features, targets, classes=2, peers=4)
    mode = {} if epsilon is None else {"privacy": Pairwise(mask_graph="complete", epsilon=epsilon)}
    run = simulate(Exact(), ExactLearner(model, federation), topology.complete(4), rounds=1, baselines=False, **mode)
    return model, {name: value.numpy() for name, value in run.models["peer0"].items()}, run


def test_without_noise_statistics_are_those_of_numpy():
    features, targets = people(400)
    model, found, _ = described(features, targets)
    age, weight = features[:, 0].astype(float), features[:, 3].astype(float)
    assert found["samples"] == [400]
    assert found["present"].tolist() == [380, 400, 400, 400, 400, 400]
    assert found["mean"][[0, 3]] == pytest.approx([np.nanmean(age), weight.mean()], abs=1e-4)
    assert found["deviation"][[0, 3]] == pytest.approx([np.nanstd(age, ddof=1), weight.std(ddof=1)], abs=1e-3)
    assert found["mean"][[1, 2]] == pytest.approx(features[:, 1:3].mean(axis=0))
    assert found["mean"][4:] == pytest.approx(np.bincount(targets) / 400)
    assert found["counts"][3].tolist() == np.histogram(weight, bins=10, range=(30, 150))[0].tolist()
    halves = np.abs(found["quantiles"][3] - np.quantile(weight, [0.05, 0.25, 0.5, 0.75, 0.95]))
    assert halves.max() < 12  # the width of a bin
    assert model.module().state_dict().keys() == found.keys()


def test_no_sample_changes_the_total_by_more_than_is_declared():
    model = PrivateDescription(**OPTIONS)
    worst = np.array([[100.0, 1.0, 0.0, 150.0], [1e9, 1.0, 1.0, -1e9], [np.nan, 0.2, 0.2, 75.0]], np.float32)
    nothing = Part(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    norms = []
    for row in worst:
        own = Own(Part(row[None], np.array([1])), nothing)
        added = model._added(lambda _, own=own: own, "ada") * 2.0**-NOISY_FRACTION
        norms.append(math.sqrt((added * added).sum()))
    assert max(norms) <= model.change
    assert norms[0] > 0.999 * model.change  # the bound is reached
    assert norms[2] < norms[0]


def test_noise_is_calibrated_charged_and_has_the_promised_size():
    features, targets = people(4000)
    _, exact, _ = described(features, targets)
    model, found, run = described(features, targets, epsilon=1.0)
    assert run.summary["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert "of each single sample" in run.summary["privacy"]["statement"]
    deviation = run.summary["privacy"]["noise"] * model.change * math.sqrt(4)
    off = (found["counts"] - exact["counts"])[[0, 3]].ravel()
    assert 0.4 * deviation < off.std() < 2 * deviation
    assert np.abs(found["mean"] - exact["mean"])[[0, 3]].max() < 2.0
    assert (found["counts"] >= 0).all()


@pytest.mark.parametrize("target", [None, 2])
def test_a_description_of_noise_alone_is_sound(target):
    features, targets = people(2)
    federation = shared_out(features, targets.astype(float) if target is None else targets, classes=target, peers=2)
    bounds = BOUNDS if target else BOUNDS | {"target": [0, 1]}
    model = PrivateDescription(**OPTIONS | {"classes": target, "bounds": bounds})
    learner = ExactLearner(model, federation)
    for sums in (np.full(200, -5.0), np.full(200, 5.0)):
        found = model._estimated(sums[: 1 + sum(model.sizes)])
        assert (found["samples"] >= 0) & (found["present"] >= 0).all()
        assert (found["present"] <= found["samples"]).all()
        known = found["mean"][[0, 3]]
        assert ((np.array([0, 30]) <= known) & (known <= np.array([100, 150])) | np.isnan(known)).all()
    assert learner.layout.size == sum(np.size(value) for value in found.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bounds": {"age": [0, 100]}}, 'those of "weight" are missing'),
        ({"bounds": BOUNDS | {"sex": [0, 1]}}, 'there is no number "sex"; choose from age, weight'),
        ({"bounds": BOUNDS | {"age": [100, 0]}}, r'those of "age" are \[100, 0\]; write'),
        ({"classes": None}, 'those of "target" are missing'),
        ({"bins": 0}, "bins = 0"),
    ],
)
def test_invalid_options_are_refused(options, said):
    with pytest.raises(ModelError, match=said):
        PrivateDescription(**OPTIONS | options)
