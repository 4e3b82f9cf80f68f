import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting import divergence

EPSILONS = {
    1e-5: {
        0.05: 0.160042,
        0.1: 0.340669,
        0.25: 0.926342,
        0.5: 1.993091,
        1: 4.377178,
        2: 9.997256,
        3: 16.675494,
        5: 33.103732,
        10: 91.817290,
    },
    1e-6: {
        0.05: 0.189213,
        0.1: 0.396857,
        0.2: 0.834118,
        0.25: 1.060702,
        0.5: 2.254085,
        1: 4.886554,
        2: 10.997151,
        3: 18.163446,
        5: 35.566344,
        10: 96.717272,
    },
}
MUS = {
    1e-5: {0.1: 0.032521, 0.5: 0.142211, 1: 0.268051, 2: 0.501552, 4: 0.924931, 8: 1.666031, 10: 2.000446},
    1e-6: {0.1: 0.027545, 0.5: 0.124106, 1: 0.236704, 2: 0.448335, 4: 0.837859, 8: 1.531545, 10: 1.848132},
}


def rows(table):
    return [(delta, given, expected) for delta, row in table.items() for given, expected in row.items()]


def epsilon_of_rounds(mu, probability, rounds, delta):
    if probability == 1:
        return divergence.epsilon(mu * math.sqrt(rounds), delta=delta)
    return divergence.mixture_epsilon({(mu, probability): rounds}, delta=delta, interval=1e-4)


@pytest.mark.parametrize(("delta", "mu", "expected"), rows(EPSILONS))
def test_epsilon_of_mu_is_the_published_one(delta, mu, expected):
    assert divergence.epsilon(mu, delta=delta) == pytest.approx(expected, abs=6e-7)


@pytest.mark.parametrize(("delta", "epsilon", "expected"), rows(MUS))
def test_mu_of_epsilon_is_the_published_one(delta, epsilon, expected):
    assert divergence.mu(epsilon, delta=delta) == pytest.approx(expected, abs=6e-7)


def test_the_noise_for_epsilon_one_is_the_published_one():
    assert 1 / divergence.mu(1.0, delta=1e-5) == pytest.approx(3.730632, abs=6e-7)


@pytest.mark.parametrize(
    ("mu", "auc", "accuracy", "tpr"),
    [
        (0.1, 0.5282, 0.5199, 0.0130),
        (0.25, 0.5702, 0.5497, 0.0189),
        (0.5, 0.6382, 0.5987, 0.0339),
        (1, 0.7602, 0.6915, 0.0924),
        (2, 0.9214, 0.8413, 0.3721),
        (3, 0.9831, 0.9332, 0.7497),
    ],
)
def test_no_attack_does_better_than_its_ceiling(mu, auc, accuracy, tpr):
    found = divergence.ceilings(mu)
    assert (found.auc, found.accuracy, found.tpr) == pytest.approx((auc, accuracy, tpr), abs=6e-5)


@given(mu=st.floats(1e-3, 50), delta=st.sampled_from([1e-4, 1e-5, 1e-9]))
def test_epsilon_and_mu_undo_each_other_at_the_delta_of_the_formula(mu, delta):
    epsilon = divergence.epsilon(mu, delta=delta)
    if epsilon > 0:  # else delta alone covers it
        assert divergence.mu(epsilon, delta=delta) == pytest.approx(mu, rel=1e-6)
        theirs = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
        assert theirs == pytest.approx(delta, rel=1e-4)


def test_nothing_given_away_is_epsilon_zero_and_everything_infinity():
    assert divergence.epsilon(0.0, delta=1e-5) == 0
    assert divergence.epsilon(math.inf, delta=1e-5) == divergence.mu(math.inf, delta=1e-5) == math.inf
    assert divergence.mixture_epsilon({(math.inf, 0.1): 2}, delta=1e-5) == math.inf


@pytest.mark.sampled(fast=1, all=3)
@pytest.mark.parametrize(
    ("sigma", "probability", "rounds", "delta", "expected"),
    [
        (1, 1, 1, 1e-5, 4.377178),
        (2, 1, 1, 1e-5, 1.993091),
        (5, 1, 100, 1e-5, 9.997256),
        (10, 1, 1000, 1e-5, 17.856587),
        (1, 0.01, 1000, 1e-5, 1.828244),
        (1.1, 256 / 60000, 14063, 1e-5, 2.381779),
        (1, 0.004, 10000, 1e-5, 2.182259),
        (0.8, 0.02, 500, 1e-5, 4.668013),
        (4, 0.1, 200, 1e-6, 1.624252),
    ],
)
def test_secret_participation_amplifies_as_published(sigma, probability, rounds, delta, expected):
    found = epsilon_of_rounds(1 / sigma, probability, rounds, delta)
    assert found == pytest.approx(expected, abs=6e-7)


@pytest.mark.slow
def test_taking_part_nearly_always_is_nearly_composition():
    together = divergence.epsilon(1.0, delta=1e-5)
    nearly = divergence.mixture_epsilon({(0.1, 1 - 1e-9): 100}, delta=1e-5, interval=1e-4)
    assert nearly == pytest.approx(together, rel=1e-5)


@pytest.mark.sampled(fast=1, all=3)
@pytest.mark.parametrize(
    ("sigma", "probability", "rounds", "delta", "published"),
    [
        (1, 1, 1, 1e-5, 4.728507),
        (2, 1, 1, 1e-5, 2.165716),
        (5, 1, 100, 1e-5, 10.725510),
        (10, 1, 1000, 1e-5, 19.053598),
        (1, 0.01, 1000, 1e-5, 2.101367),
        (1.1, 256 / 60000, 14063, 1e-5, 2.596656),
        (1, 0.004, 10000, 1e-5, 2.389698),
        (0.8, 0.02, 500, 1e-5, 5.371863),
        (4, 0.1, 200, 1e-6, 1.755048),
    ],
)
def test_the_accountant_of_rounds_agrees_with_renyi_from_below(sigma, probability, rounds, delta, published):
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp  # noqa: PLC0415

    accountant, event = rdp.RdpAccountant(), GaussianDpEvent(sigma)
    accountant.compose(event if probability == 1 else PoissonSampledDpEvent(probability, event), rounds)
    found = epsilon_of_rounds(1 / sigma, probability, rounds, delta)
    assert found < accountant.get_epsilon(delta) == pytest.approx(published, abs=1e-6)


def test_what_the_textbook_says_of_concentrated_privacy_is_more():
    rho = 1.0**2 / 2  # Bun and Steinke 2016, proposition 1.3
    textbook = rho + 2 * math.sqrt(rho * math.log(1e5))
    assert textbook == pytest.approx(5.298526, abs=6e-7)
    assert divergence.epsilon(1.0, delta=1e-5) < textbook


@pytest.mark.slow
def test_many_rounds_of_few_who_join_cost_what_mcmahan_and_others_published_or_less():
    """Their language model: 5,000 of 763,430 users in each of 5,000 rounds; their accountant said 4.634."""
    found = divergence.mixture_epsilon({(1.0, 5000 / 763_430): 5000}, delta=1e-9, interval=1e-4)
    assert found == pytest.approx(3.8988, abs=5e-5)
    assert found < 4.634


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: divergence.epsilon(-1.0, delta=1e-5),
        lambda: divergence.epsilon(1.0, delta=0.0),
        lambda: divergence.epsilon(math.nan, delta=1e-5),
        lambda: divergence.mu(-1.0, delta=1e-5),
        lambda: divergence.ceilings(1.0, fpr=1.0),
    ],
)
def test_a_number_out_of_range_is_refused(wrong):
    with pytest.raises(InputError, match=r"^(the|mu|delta|epsilon) .*(must be|not between|not above) .*; "):
        wrong()


def test_without_dp_accounting_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match=r'pip install "p2pfl-mqtt\[privacy\]"'):
        divergence.epsilon(1.0, delta=1e-5)
