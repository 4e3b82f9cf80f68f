"""The other computations of an audit agree with libraries and closed forms, and notice what differs from training."""

import math

import builds
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutants import RING, SAMPLED

from p2pfl.experiment import plan, read
from p2pfl.plugins.audit.accounting_claims import accounts
from p2pfl.plugins.audit.claims import SUMS, TRAINING, uniform
from p2pfl.plugins.audit.dp_sgd_claims import check_training
from p2pfl.plugins.audit.live.tap import EncryptionRecord, record_ciphers
from p2pfl.plugins.audit.second_accountant import gaussian_epsilon, models_mu, sampled_epsilon, sums_mu, worst_mu
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.accountant import account
from p2pfl.privacy.keys import SenderKey
from p2pfl.topology import complete, ring


@given(st.floats(0.01, 20.0), st.sampled_from([1e-10, 1e-5, 1e-2]))
def test_epsilon_of_a_gaussian_mechanism_is_that_of_the_accountant(mu, delta):
    assert gaussian_epsilon(mu, delta=delta) == pytest.approx(divergence.epsilon(mu, delta=delta), rel=1e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "steps", "noise"),
    [(0.2, 15, 1.0), (0.01, 1000, 1.0), (0.5, 100, 2.0), (1.0, 20, 3.0), (1e-3, 10_000, 0.6), (1e-4, 100_000, 0.5)],
)
def test_epsilon_of_secret_samples_is_hardly_less_than_that_of_google(rate, steps, noise):
    ours = sampled_epsilon({(1 / noise, rate): steps}, delta=1e-5)
    theirs = divergence.mixture_epsilon({(1 / noise, rate): steps}, delta=1e-5)
    assert ours <= theirs * 1.001
    assert ours >= 0.98 * theirs or steps > 10_000


def test_what_costs_nothing_or_everything():
    assert gaussian_epsilon(0.0, delta=1e-5) == sampled_epsilon({}, delta=1e-5) == 0.0
    assert gaussian_epsilon(math.inf, delta=1e-5) == sampled_epsilon({(math.inf, 0.5): 1}, delta=1e-5) == math.inf
    assert sums_mu(np.ones((3, 3)), change=1.0, noise=1.0, colluders=[]) == 0.0


@pytest.mark.parametrize("graph", [ring(7), complete(5)])
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_the_worst_colluders_are_those_of_the_accountant(graph, colluders):
    found = account(graph, clip=1.0, noise=0.5, mask=3.0, bits=20, colluders=colluders)
    numbers = {"change": 1.0, "noise": 0.5, "mask": 3.0}
    assert worst_mu(graph, **numbers, colluders=found.colluders) == pytest.approx(found.mu)
    assert models_mu(graph, **numbers, colluders=graph.peers[:-1]) == pytest.approx(2.0)


def test_bits_that_are_always_zero_are_noticed():
    rows = [np.frombuffer(builds.fresh(0).bytes(8 * 2048, purpose="rows", peer="ada"), np.uint64)]
    assert not uniform(SUMS, "terms are masked", rows).broken
    assert uniform(SUMS, "terms are masked", [rows[0] & ~np.uint64(1)]).broken
    assert uniform(SUMS, "terms are masked", []).broken


def test_two_messages_under_one_key_and_nonce_are_counted_over_runs_and_one_that_repeats_is_not():
    sealed = EncryptionRecord()
    for run, (key, data) in enumerate([(b"a", b"one"), (b"a", b"one"), (b"b", b"two"), (b"a", b"two")]):
        with record_ciphers(lambda *each, run=run: sealed.note(run, *each)):
            SenderKey(key * 32).seal(data, stream=0, sequence=1, header=b"")
        assert sealed.count_repeats() == (run == 3)
    SenderKey(b"a" * 32).seal(b"three", stream=0, sequence=1, header=b"")
    assert sealed.count_repeats() == 1  # nothing is recorded any more
    assert [len(sealed.keys(run)) for run in range(5)] == [1, 1, 1, 1, 0]


def test_training_without_noise_and_runs_without_a_claim_have_nothing_to_check():
    resolved = plan(read(RING))
    assert check_training(resolved, fresh=builds.fresh) == []
    assert accounts(resolved, stated=resolved.protection.observers()) == []


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("learning", [{}, {"batch": 1, "steps": 5}, {"batch": 64, "epochs": 3, "example_noise": 0.3}])
def test_training_as_it_is_breaks_no_claim(learning):
    resolved = plan(read(SAMPLED | {"learning": SAMPLED["learning"] | learning}))
    found = check_training(resolved, fresh=builds.fresh)
    assert [claim.name for claim in found if claim.broken] == []
    assert {claim.part for claim in found} == {TRAINING}
    assert len(found) == 16
