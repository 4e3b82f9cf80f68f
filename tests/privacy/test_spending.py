"""What rounds cost together, and what a round may cost."""

import math

import pytest

from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.examples import SampledSteps, compose_epsilon
from p2pfl.privacy.accounting.spending import Cost, affordable, per_round, spent

MANY = {"delta": 1e-5, "rounds": 1000, "probability": 0.01}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # where Opacus begins to look
def test_the_noise_for_many_rounds_of_few_who_join_is_that_of_opacus():
    """Opacus by its PRV accountant, to its tolerance of .01 in epsilon; by Rényi's it asks for .86548."""
    from opacus.accountants.utils import get_noise_multiplier  # noqa: PLC0415 (it imports half of torch)

    multiplier = get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.01, steps=1000, accountant="prv", epsilon_tolerance=0.01
    )
    assert multiplier == pytest.approx(0.81543, abs=1e-5)
    assert spent({Cost(1 / multiplier, 0.01): 1000}, delta=1e-5) == pytest.approx(3.0, abs=0.02)
    assert 1 / per_round(epsilon=3.0, **MANY) == pytest.approx(multiplier, rel=3e-3)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize(("epsilon", "rounds", "probability"), [(8.0, 16, 0.5), (1.0, 300, 0.01), (8.0, 16, 1.0)])
def test_a_round_costs_what_lets_all_of_them_keep_epsilon_and_hardly_less(epsilon, rounds, probability):
    mu = per_round(epsilon=epsilon, delta=1e-5, rounds=rounds, probability=probability)
    assert spent({Cost(mu, probability): rounds}, delta=1e-5) <= epsilon * (1 + 1e-9)
    assert spent({Cost(1.001 * mu, probability): rounds}, delta=1e-5) > epsilon
    assert affordable(Cost(mu, probability), budget=epsilon * (1 + 1e-6), delta=1e-5, rounds=rounds) == rounds


@pytest.mark.parametrize(("mu", "rounds"), [(3.0, 1000), (2.0, 100_000), (math.inf, 3)])
def test_what_is_hopeless_is_overstated_and_not_convolved(mu, rounds):
    whole = divergence.epsilon(mu * math.sqrt(rounds), delta=1e-5)
    loose = math.inf if math.isinf(mu) else divergence.renyi({(mu, 0.5): rounds}, delta=1e-5)
    assert spent({Cost(mu, 0.5): rounds}, delta=1e-5) == pytest.approx(min(whole, loose))


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_round_that_is_calibrated_keeps_its_epsilon_beside_the_cut_of_the_noise(rounds):
    mu = per_round(epsilon=60.0, delta=1e-6, rounds=rounds)
    assert spent({Cost(mu): rounds}, delta=1e-6) == pytest.approx(60.0, rel=1e-7)
    assert spent({Cost(mu): rounds}, delta=1e-6) <= 60.0 * (1 + 1e-12)


def test_the_cut_of_the_noise_of_totals_counts_for_single_samples_as_well():
    totals = {SampledSteps(1 / 3.0, 1.0, 1): 4}
    assert compose_epsilon(totals, delta=1e-5) == pytest.approx(spent({Cost(3.0): 4}, delta=1e-5), rel=1e-3)
    assert (
        compose_epsilon({SampledSteps(1 / 8.0, 1.0, 1): 1}, delta=1e-5) == spent({Cost(8.0): 1}, delta=1e-5) == math.inf
    )
