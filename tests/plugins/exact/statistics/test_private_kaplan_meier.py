"""Survival curves with differential privacy: the total, what a sample changes, noise, and what intervals promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import topology
from p2pfl.algorithms import Exact
from p2pfl.data.data_description import Field
from p2pfl.experiment.modes import Pairwise
from p2pfl.learning import ExactLearner, Own, Part
from p2pfl.plugins.exact import KaplanMeier, PrivateKaplanMeier
from p2pfl.plugins.exact.statistics.private_kaplan_meier import SPARE, _departures, _falling
from p2pfl.plugins.exact.statistics.survival_results import survival
from p2pfl.plugins.exact.sums import NOISY_FRACTION
from p2pfl.simulation import simulate
from plugins.exact.tables import shared_out, trained

FIELDS = (Field("age"), Field("arm", ("old", "new")))
OPTIONS = {"features": 3, "classes": None, "horizon": 20.0, "fields": FIELDS, "group": "arm"}


def patients(count, *, seed=0):
    """Return features, and times that are negative where censored."""
    rng = np.random.default_rng(seed)
    arm = rng.integers(2, size=count)
    times, censored = rng.exponential(12 + 6 * arm), rng.uniform(2, 40, count)
    features = np.column_stack([rng.uniform(30, 80, count), arm == 0, arm == 1]).astype(np.float32)
    return features, np.where(times <= censored, times, -censored)


def test_without_noise_the_curves_are_those_of_the_plain_model():
    federation = shared_out(*patients(300), classes=None, peers=4)
    plain, private = KaplanMeier(**OPTIONS), PrivateKaplanMeier(**OPTIONS)
    exact = survival(trained(plain, federation, rounds=1)[1], plain)
    found = survival(trained(private, federation, rounds=1)[1], private)
    assert found["groups"] == exact["groups"]
    assert (found["private"], found["p"], found["sparse"]) == (True, None, 0)


def test_a_sample_changes_the_total_by_what_is_declared_and_a_peer_with_few_samples_takes_part():
    model = PrivateKaplanMeier(**OPTIONS)
    features, nothing = patients(1)[0], Part(np.zeros((0, 3), np.float32), np.zeros(0))
    for target in (0.0, 7.5, -7.5, 20.0, 1e9, -1e9):
        own = Own(Part(features, np.array([target])), nothing)
        question = next(model.round(model.start(), lambda _, own=own: own))
        assert np.linalg.norm(question.answer("ada").astype(float)) == question.change == 2.0**NOISY_FRACTION


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30))
def test_departures_are_whole_not_negative_and_near_the_noisy_sums(noisy):
    values = np.array(noisy)
    found = _departures(values)
    assert (found >= 0).all()
    assert (found == np.rint(found)).all()
    falling = _falling(values)
    assert (np.diff(falling) <= 1e-9).all()
    assert falling.sum() == pytest.approx(values.sum(), abs=1e-9)
    assert ((falling - values) * falling).sum() == pytest.approx(0, abs=1e-6)  # the projection on a cone


def test_noise_is_calibrated_and_charged():
    federation = shared_out(*patients(2000), classes=None, peers=4)
    model = PrivateKaplanMeier(**OPTIONS)
    run = simulate(
        Exact(),
        ExactLearner(model, federation),
        topology.complete(4),
        rounds=1,
        baselines=False,
        privacy=Pairwise(mask_graph="complete", epsilon=1.0),
    )
    assert run.summary["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert "of each single sample" in run.summary["privacy"]["statement"]
    found = run.models["peer0"]
    assert float(found["noise"][0]) == pytest.approx(run.summary["privacy"]["noise"] * 2, rel=0.2)
    assert float(found["samples"][0]) == pytest.approx(2000, abs=200)


@pytest.mark.slow
def test_intervals_include_the_noise():
    """In 300 studies of 500 patients the intervals cover the truth; those without the noise do not."""
    model, rng, sigma = PrivateKaplanMeier(**OPTIONS | {"group": None}), np.random.default_rng(3), 8.0
    covered = np.zeros(2)
    for seed in range(300):
        rng_study = np.random.default_rng(seed)
        times, censored = rng_study.exponential(15, 500), rng_study.uniform(2, 40, 500)
        part = Part(np.zeros((500, 3), np.float32), np.where(times <= censored, times, -censored))
        counts = model._added(Own(part, Part(part.features[:0], part.targets[:0]))) * 2.0**-NOISY_FRACTION
        noisy, spare = counts + rng.normal(size=len(counts)) * sigma, rng.normal(size=SPARE) * sigma
        tensors = model._estimated(noisy, np.sqrt(np.mean(spare**2)))
        for place, given_noise in enumerate((tensors["noise"], np.zeros(1))):
            [group] = survival({**tensors, "noise": given_noise}, model)["groups"]
            at = np.searchsorted(group["times"], 9.0, side="right") - 1
            truth = np.exp(-(np.floor(9.0) + 1) / 15)
            covered[place] += group["low"][at] <= truth <= group["high"][at]
    assert len(counts) == 2 * model.cells
    assert covered[0] >= 0.93 * 300
    assert covered[1] < 0.85 * 300
