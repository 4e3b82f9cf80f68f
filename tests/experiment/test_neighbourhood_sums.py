import math

import numpy as np
import pytest

from p2pfl.cli.planning import privacy
from p2pfl.core.errors import ExperimentError, InputError
from p2pfl.experiment import neighbourhood_sums, plan, read
from p2pfl.experiment.neighbourhood_sums import least, ring_width
from p2pfl.privacy.accounting import divergence
from p2pfl.topology import metropolis, random_regular

TABLE = {
    "rounds": 4,
    "seed": 5,
    "topology": {"kind": "random_regular", "peers": 10, "degree": 4},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "gossip": {"steps": 1},
    "privacy": {"mode": "secagg", "noise": 0.5, "clip": 1.0},
}
COMPLETE = "topology.kind=complete"


def resolved(*changes):
    return plan(read(TABLE, changes=changes))


# Exact


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_noise_for_an_epsilon_keeps_it_exactly_over_all_rounds(adjacency):
    found = resolved("privacy.noise=0", "privacy.epsilon=8", f"privacy.adjacency={adjacency}").protection
    assert 8 * (1 - 1e-6) < found.spent({found.cost: 4}) <= 8 * (1 + 1e-9)
    assert found.affordable == 4


@pytest.mark.parametrize("colluders", [1, 3])
def test_on_the_complete_graph_noise_is_the_curators_of_all_honest_peers(colluders):
    found = resolved(COMPLETE, "privacy.noise=0", "privacy.epsilon=8", f"privacy.colluders={colluders}").protection
    alone = divergence.mu(8.0, delta=1e-5) / math.sqrt(4)
    change = 1.0 + 2**-20 * math.sqrt(found.size) / 2
    assert found.settings.noise == pytest.approx(change / alone / math.sqrt(10 - colluders))


def test_given_noise_makes_epsilon_a_budget_for_fewer_rounds():
    found = resolved("privacy.epsilon=8").protection
    assert 0 < found.affordable < 4
    assert found.spent({found.cost: found.affordable}) <= 8 < found.spent({found.cost: found.affordable + 1})


def test_observers_are_the_broker_each_receiver_colluders_and_everyone_else():
    found = resolved("topology.kind=hypercube", "topology.peers=16", "privacy.colluders=2").protection.observers()
    assert [given.observer for given in found] == [
        "broker",
        "broker and one neighbour",
        "broker and 2 colluders",
        "broker and everyone else",
    ]
    mus = [given.mu for given in found]
    assert mus == sorted(mus)
    assert mus[0] == 0
    assert mus[-1] == found[0].local


def test_without_noise_nothing_is_claimed():
    found = resolved("privacy.noise=0").protection
    assert not found.claimed
    assert found.observers()[1].mu == math.inf


def test_the_command_says_what_sums_promise():
    experiment = read(TABLE, changes=["privacy.noise=0", "privacy.epsilon=8"])
    found = privacy.facts(privacy.resolve(experiment))
    names, promised = ([each[key] for each in found["observers"]] for key in ("observer", "promised"))
    assert names == [
        "broker that only listens",
        "1 neighbour, broker listens",
        "broker that lies",
        "1 neighbour, broker lies",
        "everyone else",
    ]
    assert promised == [False, True, False, False, False]
    assert found["observers"][0]["epsilon"] == 0
    assert found["observers"][1]["epsilon"] == pytest.approx(8.0)
    assert "sums" in privacy.describe(found)
    assert "exact sum of its neighbours' models and no single one" in found["statement"]


# Oracle: what is recorded from the algorithms


def test_what_a_receiver_sees_of_dpsgd_is_written_from_its_definition():
    found = resolved("learning.algorithm=dpsgd", "rounds=2")
    W = found.weights[0].matrix.toarray()
    seen = found.protection.sums.seen
    assert seen.shape == (2, 10, 2, 10)
    for round, (first, second) in enumerate([(W, 0 * W), (W @ W, W)]):
        np.testing.assert_allclose(seen[round, :, 0], first, atol=1e-14)
        np.testing.assert_allclose(seen[round, :, 1], second, atol=1e-14)


def test_masses_of_fedavg_weigh_what_is_released_again():
    found = resolved("rounds=2", "data.split=dirichlet")
    W = found.weights[0].matrix.toarray()
    samples = found.learner.samples(found.topology.peers).double().numpy()
    masses = samples / samples.mean()
    again = W @ np.diag(masses / (W @ masses)) @ W
    np.testing.assert_allclose(found.protection.sums.seen[1, :, 0], again, atol=1e-14)
    np.testing.assert_allclose(found.protection.sums.seen[1, :, 1], W, atol=1e-14)


LIKE_FEDAVG = ["fedprox", "ditto", "per_fedavg", "fedper", "fedrep", "fine_tuning"]


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("name", LIKE_FEDAVG)
def test_whoever_averages_what_it_releases_is_seen_as_fedavg_is(name):
    hidden = ("model.name=mlp", "rounds=2", "data.split=dirichlet")
    plain, found = (resolved(*hidden, f"learning.algorithm={each}").protection.sums for each in ("fedavg", name))
    rounds = len(found.seen)  # fine-tuning is silent in its last
    assert rounds == (1 if name == "fine_tuning" else 2)
    np.testing.assert_allclose(found.seen, plain.seen[:rounds], atol=1e-14)


def test_momentum_shows_again_what_was_released_before():
    plain, found = (
        resolved("rounds=2", f"learning.algorithm={each}").protection.sums.seen for each in ("fedavg", "fedavgm")
    )
    np.testing.assert_allclose(found[0], plain[0], atol=1e-14)
    np.testing.assert_allclose(found[1, :, 1], plain[1, :, 1], atol=1e-14)
    np.testing.assert_allclose(found[1, :, 0], plain[1, :, 0], atol=1e-14)  # the first step has no momentum yet
    three = resolved("rounds=3", "learning.algorithm=fedavgm", "learning.weighted=false")
    W = three.weights[0].matrix.toarray()
    before, now = W, W @ W  # factors of the first release in what all hold after one round, and two
    again = W @ (now + 0.9 * before)  # and its share of the second step's momentum
    np.testing.assert_allclose(three.protection.sums.seen[2, :, 0], again, atol=1e-14)


def test_without_noise_what_is_looked_at_is_one_round():
    found = resolved("privacy.noise=0", "privacy.clip=inf")
    np.testing.assert_array_equal(found.protection.sums.seen[0, :, 0], found.weights[0].matrix.toarray())


# Refused


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (["topology.kind=ring"], r"at least 3 senders, and peer0 receives from 2"),
        (["topology.kind=star"], "at least 3 senders, and peer1 receives from 1"),
        (
            ["privacy.colluders=3"],
            "at least 5 senders, 2 of which may collude with the receiver, and peer0 receives from 4",
        ),
        (["gossip.steps=2"], "gossip.steps = 2 does not work with .*, because each further gossip step"),
        (
            ["gossip.acceleration=chebyshev"],
            'gossip.acceleration = "chebyshev" does not work with .*, because there is one gossip step',
        ),
        (
            ["topology.kind=epidemic_local"],
            "topology.kind: a schedule of .* graphs does not work with .*; take one graph for all rounds",
        ),
        (
            ["learning.stop=0.1"],
            "learning.stop = 0.1 .*, because it shows others how far each model moved; leave it out",
        ),
        (["learning.fraction=0.5"], "learning.fraction = 0.5 does not work .*; set it to 1, or"),
        (["privacy.participation=0.5"], "privacy.participation = 0.5 does not work .*; set it to 1, or"),
        (["privacy.colluders=0"], "privacy.colluders = 0 does not work .*; set it to 1 or more, or"),
        (["privacy.clip=inf", "privacy.epsilon=1"], "privacy.clip"),
    ],
)
def test_what_sums_cannot_hide_is_refused_with_its_reason(changes, why):
    with pytest.raises(ExperimentError, match=why):
        resolved(*changes)


def test_two_receivers_whose_neighbourhoods_differ_by_one_peer_are_refused_where_they_may_collude():
    near = ["topology.kind=small_world", "topology.peers=16", "topology.degree=6", "learning.algorithm=dpsgd", "seed=0"]
    alone = resolved(*near)
    assert alone.protection.cost.mu < alone.protection.local.mu
    hears = [{*alone.topology.neighbours(peer)} - {"peer02", "peer03"} for peer in ("peer02", "peer03")]
    assert hears[0] ^ hears[1] == {"peer15"}
    with pytest.raises(
        ExperimentError, match=r"the model of peer15 .* peer02, peer03 together .* lower privacy.colluders"
    ):
        resolved(*near, "privacy.colluders=2")


def test_keys_of_other_masks_are_said_to_change_nothing():
    with pytest.raises(InputError, match="masks are uniform"):
        resolved("privacy.mask=2")


def test_views_that_are_too_large_are_refused_where_several_sums_could_show_a_row(monkeypatch):
    monkeypatch.setattr(neighbourhood_sums, "MAX_VIEW_SIZE", 50)
    alone = resolved().protection
    assert alone.cost == alone.local
    with pytest.raises(ExperimentError, match="because they have too many sums"):
        resolved("privacy.colluders=2")


# Parts


def test_with_several_colluders_a_sum_needs_all_neighbours():
    weights = metropolis(random_regular(10, degree=6, seed=0))
    assert least(weights, colluders=1).tolist() == [4] * 10
    assert least(weights, colluders=2).tolist() == [6] * 10


@pytest.mark.parametrize(
    ("changes", "given", "bits"),
    [
        (["learning.algorithm=dpsgd"], {}, 32),
        ([], {"masses": (0.5, 1.5)}, 32),
        ([], {"masses": (0.001, 20.0)}, 64),
        ([], {"masses": (0.0, 1.0)}, 64),
        (["learning.algorithm=dpsgd"], {"clip": math.inf}, 64),
        (["learning.algorithm=d2", "topology.kind=complete"], {}, 32),
        (["learning.algorithm=fedavgm"], {}, 64),
        (["learning.algorithm=dpsgd"], {"rounds": 10_000}, 64),
        (["learning.algorithm=dpsgd", "privacy.bits=30"], {}, 64),
    ],
)
def test_the_ring_is_small_where_the_settings_bound_every_row(changes, given, bits):
    found = resolved(*changes)
    numbers = {"start": 1.0, "clip": 1.0, "noise": 0.5, "rounds": 4} | given
    assert ring_width(found.asked, found.weights[0], **numbers) == bits


def test_there_is_one_gossip_step_whatever_the_tolerance():
    table = {key: value for key, value in TABLE.items() if key != "gossip"}
    assert plan(read(table)).gossip.steps == 1
    with pytest.raises(InputError, match=r"gossip\.tolerance = 0\.01 has no effect, .*one gossip step per round"):
        read(table, changes=["gossip.tolerance=0.01"])
