import math

import numpy as np
import pytest

from p2pfl.plugins.audit import statistical_tests

DEVIATION = 2.0**20


def noise(seed, shape=(60, 3000)):
    drawn = np.random.default_rng(seed).standard_normal(shape)
    return np.rint(drawn * DEVIATION).astype(np.int64)


TESTS = {
    "deviation": lambda points: statistical_tests.deviation(points, expected=DEVIATION),
    "distribution": lambda points: statistical_tests.distribution(points, expected=DEVIATION),
    "low bits": lambda points: statistical_tests.low_bits(points, expected=DEVIATION),
    "places": lambda points: statistical_tests.every_position(points, expected=DEVIATION),
    "shared": statistical_tests.find_shared_noise,
    "repeated": statistical_tests.find_repeated_noise,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_correct_noise_is_far_from_every_limit_in_most_of_many_draws(name):
    found = [TESTS[name](noise(seed)) for seed in range(40)]
    assert all(each.measured <= each.allowed for each in found)
    assert np.median([each.measured / each.allowed for each in found]) < 0.85


def zeroed(points, place):
    points[place] = 0
    return points


WRONG = {
    "deviation": lambda points: np.rint(points * 0.97).astype(np.int64),
    "distribution": lambda points: np.clip(points, int(-3 * DEVIATION), int(3 * DEVIATION)),
    "low bits": lambda points: points & ~3,
    "places": lambda points: zeroed(points, np.s_[:, -1]),
    "shared": lambda points: np.vstack([points, points[7] - points[3]]),
    "repeated": lambda points: np.hstack([points, points[:, :500]]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_noise_is_beyond_the_limit(name):
    found = TESTS[name](WRONG[name](noise(0)))
    assert found.measured > found.allowed


def test_one_release_without_noise_among_many_is_found():
    assert TESTS["places"](zeroed(noise(0), 17)).measured > 100


def test_one_false_alarm_in_a_hundred_thousand_is_what_a_limit_allows():
    limit = statistical_tests.normal(tests=1)
    assert math.erfc(limit / 2**0.5) == pytest.approx(statistical_tests.FALSE_ALARM_RATE)


def test_noise_that_is_no_larger_than_a_point_has_no_low_bits_to_look_at():
    assert statistical_tests.low_bits(noise(0), expected=1.0) == statistical_tests.StatisticalResult(0.0, 0.0)
