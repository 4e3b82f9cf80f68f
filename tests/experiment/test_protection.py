import dataclasses
import math

import pytest

from p2pfl import topology as graphs
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.privacy.accounting import divergence
from p2pfl.privacy.accounting.accountant import account
from p2pfl.privacy.accounting.spending import Cost

RING = {
    "rounds": 12,
    "topology": {"kind": "ring", "peers": 16},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "privacy": {"mode": "pairwise"},
}


def resolved(*changes):
    return plan(read(RING, changes=changes)).protection


@pytest.mark.slow
def test_noises_for_an_epsilon_keep_it_exactly_over_all_rounds():
    protection = resolved("privacy.epsilon=8")
    spent = protection.spent({protection.cost: 12})
    assert 8 * (1 - 1e-6) < spent <= 8
    assert protection.affordable == 12


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("colluders", [0, 1, 3])
def test_more_colluders_cost_more_noise(colluders):
    dense = ("privacy.epsilon=8", "privacy.mask_graph=complete")
    fewer, more = (resolved(*dense, f"privacy.colluders={count}") for count in (colluders, colluders + 1))
    assert more.settings.noise > fewer.settings.noise


def test_independent_noise_is_that_of_the_gaussian_mechanism():
    protection = resolved("privacy.mode=independent", "privacy.epsilon=8", "privacy.clip=2")
    size = protection.size
    mu = divergence.mu(8.0, delta=1e-5) / math.sqrt(12)
    assert protection.settings.noise == pytest.approx((2 + 2**-20 * math.sqrt(size) / 2) / mu)
    assert protection.settings.mask == 0


def test_masks_between_two_peers_are_refused_unless_one_partner_is_enough():
    """On a ring of two, each peer has one mask partner, which knows its masks and so its model."""
    with pytest.raises(ExperimentError, match=r"each peer needs 2 mask partners .* gives peer0 only 1;"):
        resolved("topology.peers=2")
    assert resolved("topology.peers=2", "privacy.partners=1").partners == 1


def test_given_noises_make_epsilon_a_budget_for_fewer_rounds():
    protection = resolved("privacy.epsilon=8", "privacy.noise=0.5", "privacy.mask=10", "privacy.clip=1")
    rounds = protection.affordable
    assert 0 < rounds < 12
    assert protection.spent({protection.cost: rounds}) <= 8 < protection.spent({protection.cost: rounds + 1})


@pytest.mark.slow
def test_secret_participation_needs_less_noise_for_the_same_epsilon():
    always, sometimes = resolved("privacy.epsilon=2"), resolved("privacy.epsilon=2", "privacy.participation=0.3")
    assert sometimes.settings.noise < always.settings.noise
    assert sometimes.spent({sometimes.cost: 12}) == pytest.approx(2.0, rel=1e-3)


def test_a_budget_that_allows_no_round_is_refused():
    with pytest.raises(ExperimentError, match="does not suffice for one round"):
        resolved("privacy.epsilon=0.1", "privacy.noise=0.5", "privacy.clip=1")


def test_as_many_colluders_as_a_peer_has_mask_neighbours_are_refused():
    with pytest.raises(ExperimentError, match='"complete"'):
        resolved("privacy.epsilon=8", "privacy.colluders=2")


def test_a_budget_without_a_clip_is_refused():
    with pytest.raises(ExperimentError, match=r"privacy\.clip"):
        resolved("privacy.epsilon=1", "privacy.noise=0.5")


def test_without_noise_or_clip_nothing_is_claimed():
    protection = resolved()
    assert not protection.claimed
    assert protection.spent({Cost(1.0): 1}) is None


def test_on_a_complete_mask_graph_each_peer_masks_with_all_others():
    graph = resolved("privacy.mask_graph=complete").graph
    assert {len(graph.neighbours(peer)) for peer in graph.peers} == {15}


@pytest.mark.slow
def test_a_denser_mask_graph_hides_better_at_the_same_noises():
    noises = ("privacy.noise=0.5", "privacy.mask=2", "privacy.clip=1")
    ring, complete = resolved(*noises), resolved(*noises, "privacy.mask_graph=complete")
    assert complete.cost.mu < ring.cost.mu
    assert complete.cost.mu == pytest.approx(
        account(graphs.complete(16), clip=1.0, noise=0.5, mask=2.0, colluders=1, size=complete.size).mu
    )


@pytest.mark.slow
def test_what_calibration_found_is_what_the_accountant_finds():
    protection = resolved("privacy.epsilon=8")
    anew = dataclasses.replace(protection, calibrated=None).guarantee
    assert protection.guarantee.mu == pytest.approx(anew.mu, rel=1e-9)
    assert protection.guarantee.local == pytest.approx(anew.local, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pairwise", "independent"])
def test_pinned_noises_are_the_calibrated_ones_and_allow_as_many_rounds(mode):
    calibrated = plan(read(RING, changes=[f"privacy.mode={mode}", "privacy.epsilon=8"]))
    again = plan(calibrated.pinned)
    assert again.protection.settings == calibrated.protection.settings
    assert again.protection.affordable == 12
    assert again.facts["noises"] == calibrated.facts["noises"]
