import math

import builds
import numpy as np
import pytest

from p2pfl.core.draws import draw
from p2pfl.experiment import plan, read
from p2pfl.experiment.parts.learner_parts import learner
from p2pfl.plugins.audit.attacks.membership_inference import MIN_SAMPLES, MIXED_MODEL, _halves, _ratio, infer
from p2pfl.plugins.audit.pipeline import OPEN_OBSERVER
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting import divergence


def planned(**learning):
    """Four peers, each of which learns about forty samples by heart if it is let."""
    table = {"topology": {"kind": "complete", "peers": 4}, "data": {"name": "digits", "test": 0.9}}
    return plan(read({**table, "model": {"hidden": [64]}, "learning": {"device": "cpu", **learning}}))


def inferred(settings, *, epochs=1, rounds=1, shadows=8, seed=0, colluders=1, adjacency="zero-out"):
    resolved = planned(epochs=epochs, rate=0.2, batch=8)
    graph = resolved.topology
    return infer(
        builds.target(settings, graph, resolved.weights, seed=seed),
        builds.observers(settings, graph, colluders=colluders, adjacency=adjacency),
        federation=resolved.federation,
        train=lambda federation: learner(resolved.experiment, federation),
        rounds=rounds,
        shadows=shadows,
    )


def areas(found, attack="shadows"):
    return {each.observer: each.auc for each in found if each.attack == attack}


@pytest.fixture(scope="module")
def by_heart():
    return inferred(Settings(), epochs=60, shadows=32)


@pytest.mark.slow
def test_what_was_learned_by_heart_is_told_by_loss_and_better_by_shadows(by_heart):
    assert areas(by_heart, "loss")[OPEN_OBSERVER] > 0.6
    assert areas(by_heart)[OPEN_OBSERVER] > areas(by_heart, "loss")[OPEN_OBSERVER]


@pytest.mark.slow
def test_what_nothing_hides_the_broker_sees_as_it_is(by_heart):
    assert areas(by_heart)["broker"] == pytest.approx(areas(by_heart)[OPEN_OBSERVER], abs=1e-9)
    assert not any(each.broken for each in by_heart)
    assert {each.ceiling for each in by_heart} == {1.0}


@pytest.mark.slow
def test_noise_brings_every_observer_below_his_ceiling_and_the_shadows_to_chance():
    settings = Settings(clip=1.0, noise=5.0, mask=20.0)
    found = inferred(settings, epochs=60)
    for each in found:
        assert not each.broken
        if each.observer not in {OPEN_OBSERVER, MIXED_MODEL}:
            assert each.auc == pytest.approx(0.5, abs=4 * each.error)
            assert each.ceiling < 0.65


@pytest.mark.slow
def test_the_ceiling_is_that_of_replacing_an_update_and_grows_with_the_rounds():
    settings = Settings(clip=1.0, noise=2.0, mask=3.0)
    for adjacency, twice in (("zero-out", 2), ("replace", 1)):
        found = inferred(settings, rounds=2, shadows=2, adjacency=adjacency)
        promise = builds.observers(settings, planned().topology, adjacency=adjacency)[0]
        for each in found:
            if each.observer in {"broker", MIXED_MODEL}:
                whole = twice * promise.promised * math.sqrt(each.round)
                assert each.ceiling == pytest.approx(divergence.ceilings(whole).auc)


def test_every_sample_is_in_half_of_the_shadows():
    halves = _halves(50, 6, seed=1, purpose="test", peer="ada")
    assert halves.shape == (6, 50)
    assert (halves.sum(0) == 3).all()
    assert len({row.tobytes() for row in halves}) == 6


def test_the_likelihood_ratio_finds_what_moves_by_membership_where_a_threshold_does_not():
    rng = draw(1, "odds")
    hard = 5 * rng.standard_normal(400)  # how hard samples are differs far more than what membership adds
    inside = _halves(400, 16, seed=1, purpose="test", peer="ada")
    shadows = hard + 1.0 * inside + 0.5 * rng.standard_normal((16, 400))
    member = _halves(400, 2, seed=2, purpose="test", peer="ada")[0]
    seen = hard + 1.0 * member + 0.5 * rng.standard_normal(400)
    ratio = _ratio(seen, shadows, inside)
    assert np.mean((ratio > 0) == member) > 0.8


def test_peers_with_hardly_any_samples_are_left_alone():
    resolved = planned()
    few = {peer: part[: MIN_SAMPLES - 1] for peer, part in resolved.federation.train.items()}
    found = infer(
        builds.target(Settings(), resolved.topology, resolved.weights),
        [],
        federation=type(resolved.federation)(resolved.federation.dataset, few, {}, resolved.federation.test),
        train=lambda federation: learner(resolved.experiment, federation),
    )
    assert found == []
