import math

import builds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.plugins.audit.attacks.canaries import one_run, plant
from p2pfl.privacy import Settings
from p2pfl.topology import ring

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("count", "guesses", "correct", "delta", "epsilon"),
    [
        (1000, 1000, 600, 0, 0.297468),
        (1000, 1000, 600, 1e-5, 0.297227),
        (1000, 100, 95, 1e-5, 2.165176),
        (1000, 100, 100, 0, 3.492965),
        (1000, 100, 100, 1e-5, 3.465376),
        (5000, 1500, 1429, 1e-5, 2.795364),
        (10000, 10000, 7311, 0, 0.962928),
        (10000, 10000, 7311, 1e-5, 0.962632),
        (200, 200, 150, 0, 0.821396),
    ],
)
def test_the_one_run_bound_has_its_published_values(count, guesses, correct, delta, epsilon):
    assert one_run(count, guesses=guesses, correct=correct, delta=delta) == pytest.approx(epsilon, abs=6e-7)


@given(st.integers(1, 200), st.data())
def test_more_right_guesses_never_prove_less(guesses, data):
    correct = data.draw(st.integers(1, guesses))
    delta = data.draw(st.sampled_from([0.0, 1e-6, 1e-4]))
    bound = one_run(guesses, guesses=guesses, correct=correct, delta=delta)
    assert 0 <= one_run(guesses, guesses=guesses, correct=correct - 1, delta=delta) <= bound
    assert bound <= one_run(guesses, guesses=guesses, correct=correct)


def planted(chosen, **changes):
    found = builds.observers(chosen, ring(8), colluders=2, adjacency=changes.pop("adjacency", "zero-out"))
    return plant(builds.target(chosen, ring(8)), found, size=2000, delta=1e-5, count=2000, **changes)


@pytest.mark.sampled(fast=0)
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_canaries_are_told_as_well_as_the_accountant_says(adjacency):
    chosen = Settings(clip=1.0, noise=0.6, mask=3.0)
    broker, _, worst, everyone = planted(chosen, adjacency=adjacency)
    for found in (broker, everyone):  # on a ring all peers are equally well off
        assert not found.broken
        assert found.measured == pytest.approx(found.accounted, rel=0.12)
        assert found.auc == pytest.approx((1 + math.erf(found.accounted / 2)) / 2, abs=0.03)
        assert found.epsilon < found.bound
    assert worst.accounted == everyone.accounted  # two neighbours leave one peer alone
    assert broker.measured < worst.measured < everyone.measured
    assert everyone.epsilon > 1


@pytest.mark.parametrize("chosen", [Settings(), Settings(mask=4.0)])
def test_without_private_noise_every_canary_is_found_in_the_sum(chosen):
    for found in planted(chosen):
        assert (found.auc, found.tpr_percent) == (1.0, 1.0)
        assert found.epsilon > 4
        assert not found.broken


def test_missing_noise_is_noticed_by_the_canaries_alone(monkeypatch):
    builds.missing_noise(monkeypatch)
    assert all(found.broken for found in planted(Settings(clip=1.0, noise=0.6, mask=3.0)))
