"""The default deviation of a mask, from public numbers."""

import math

import numpy as np
import pytest

import p2pfl
from p2pfl.privacy.mask_size import mask_deviation, update_size


def deviation(**sections) -> float:
    table = {"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}} | sections
    return p2pfl.plan(p2pfl.read(table)).protection.settings.mask


def test_an_update_is_at_most_its_steps_at_a_gradient_of_norm_one_and_at_most_the_initial_parameters():
    assert update_size(norm=9.0, size=100, rate=0.1, steps=20) == pytest.approx(2.0 / 10)
    assert update_size(norm=1.5, size=100, rate=0.1, steps=20) == pytest.approx(1.5 / 10)
    assert update_size(norm=1.5, size=100, rate=0.1, steps=None) == pytest.approx(1.5 / 10)
    assert update_size(norm=9.0, size=100, rate=0.01, steps=5, optimizer="adam") == pytest.approx(0.05)
    assert update_size(norm=9.0, size=100, rate=0.1, steps=2, momentum=0.9) == pytest.approx(2.0 / 10)


def test_parameters_that_start_at_zero_and_a_rate_of_zero_still_give_a_mask():
    assert update_size(norm=0.0, size=4, rate=0.1, steps=3) == pytest.approx(0.15)
    assert update_size(norm=2.0, size=4, rate=0.0, steps=3) == pytest.approx(1.0)
    assert update_size(norm=0.0, size=4, rate=0.1, steps=None) == pytest.approx(0.5)


@pytest.mark.parametrize(("peers", "degree"), [(3, 2), (8, 4), (16, 2)])
def test_the_masks_of_a_dead_peer_move_an_average_of_all_by_one_update(peers, degree):
    update, size = 0.02, 50_000
    mask = mask_deviation(update, size=size, peers=peers, degree=degree)
    noise = mask * np.random.default_rng(7).standard_normal((degree, size))
    assert float(np.std(noise.sum(axis=0) / peers)) == pytest.approx(update, rel=0.06)  # rounded to two digits


def test_a_mask_hides_where_gossip_averages_little_and_is_no_longer_than_the_update():
    assert mask_deviation(0.01, size=10_000, peers=16, degree=2, unmixed=1.0) == pytest.approx(0.02)
    assert mask_deviation(0.01, size=10_000, peers=100_000, degree=2) == pytest.approx(1.0)


def test_the_default_follows_from_public_numbers_and_a_given_one_stays():
    norm = math.sqrt(p2pfl.plan(p2pfl.read({})).learner.start(("peer0",)).double().pow(2).sum())
    wide = deviation(learning={"rate": 1.0, "epochs": 10})
    assert wide == pytest.approx(norm / math.sqrt(4810) * 4 / math.sqrt(2), rel=0.05)
    assert deviation(learning={"rate": 0.01}) < wide
    assert deviation(privacy={"mode": "pairwise", "mask": 0.25}) == 0.25
    assert deviation(privacy={"mode": "pairwise", "noise": 2.0, "clip": 3.0}) == 3.0


def test_a_device_that_has_its_own_data_alone_computes_the_same():
    experiment = p2pfl.read({"topology": {"kind": "ring", "peers": 4}, "privacy": {"mode": "pairwise"}})
    whole = p2pfl.plan(experiment).protection.settings
    assert p2pfl.plan(experiment, only=["peer2"]).protection.settings == whole
    assert p2pfl.plan(p2pfl.plan(experiment).pinned).protection.settings == whole
