from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import SEED, classifier, mixed, play, wine

from p2pfl import topology
from p2pfl.algorithms import (
    D2,
    DPSGD,
    IFCA,
    SCAFFOLD,
    SGP,
    Averaging,
    Choco,
    Compressed,
    Ditto,
    ExactDiffusion,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    FedPer,
    FedProx,
    FedRep,
    FedYogi,
    FineTuning,
    Gossip,
    GossipLearning,
    GradientTracking,
    MultiTask,
    PartialSharing,
    PerFedAvg,
    PFedMe,
    PowerGossip,
    Propagation,
    QGDSGDm,
)
from p2pfl.core.codecs import Half
from p2pfl.core.rows import Layout
from p2pfl.simulation import Faults

GRAPH = topology.small_world(8, degree=4, rewire=0.3, seed=1)
PLAIN = Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)
LAYOUT = Layout(("1.weight", "1.bias"), ((3, 13), (3,)))  # of softmax regression on wine
ALGORITHMS = {
    "FedAvg": FedAvg(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "FedAvg, all alike": FedAvg(Averaging(GRAPH.peers, SEED, Gossip(2), weighted=False)),
    "FedAvg, Chebyshev": FedAvg(Averaging(GRAPH.peers, SEED, Gossip(3, 0.6), weighted=False)),
    "D-PSGD": DPSGD(),
    "FedProx": FedProx(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "SCAFFOLD": SCAFFOLD(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "SCAFFOLD, option I": SCAFFOLD(Averaging(GRAPH.peers, SEED, Gossip(2), weighted=False), "I"),
    "FedNova": FedNova(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "FedAvgM": FedAvgM(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "FedAdam": FedAdam(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "FedYogi": FedYogi(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0)),
    "fine-tuning": FineTuning(PLAIN, rounds=6, last=2),
    "Ditto": Ditto(PLAIN),
    "pFedMe": PFedMe(PLAIN, steps=2, inner=2),
    "Per-FedAvg": PerFedAvg(PLAIN, steps=2, variant="hf"),
    "FedPer": FedPer(PLAIN, LAYOUT, ("1.bias",)),
    "FedRep": FedRep(PLAIN, LAYOUT, ("1.bias",)),
    "multi-task": MultiTask(),
    "propagation": Propagation(PLAIN, alone=3, smoothing=0.7),
    "IFCA": IFCA(PLAIN, LAYOUT, SEED),
    "gossip learning, in step": GossipLearning(),
    "gradient tracking": GradientTracking(),
    "D2": D2(),
    "exact diffusion": ExactDiffusion(Gossip(2)),
    "quasi-global momentum": QGDSGDm(),
    "SGP": SGP(),
    "PowerGossip": PowerGossip(GRAPH, (topology.metropolis(GRAPH),), LAYOUT, SEED, Gossip(2)),
    "CHOCO-SGD": Choco(),
    "FedAvg, float16": Compressed(FedAvg(Averaging(GRAPH.peers, SEED, Gossip(2), weighted=False)), Half()),
    "partial sharing": PartialSharing(Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=17.0), SEED, 0.3),
}


@pytest.fixture(scope="module")
def learner():
    return classifier(wine(GRAPH.peers), batch=8)[0]


@pytest.mark.sampled(fast=6)
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_faults_that_never_happen_change_nothing(algorithm, learner):
    plain = play(algorithm, learner, GRAPH, rounds=3)[-1].rows
    assert torch.equal(play(algorithm, learner, GRAPH, rounds=3, faults=Faults(0.0, 0.0))[-1].rows, plain)
    rare = play(algorithm, learner, GRAPH, rounds=3, faults=Faults(1e-12, 1e-12))[-1].rows
    assert torch.allclose(rare, plain, rtol=0, atol=1e-14)


@given(st.floats(0.0, 0.95), st.floats(0.0, 0.95), st.integers(0, 2**32), st.integers(0, 50))
def test_what_is_missed_falls_to_the_own_row(loss, absence, seed, round):
    whole = topology.metropolis(GRAPH).matrix
    left = Faults(loss, absence).senders(whole, seed=seed, round=round, step=0).toarray()
    whole = whole.toarray()
    assert np.allclose(left.sum(1), 1, rtol=0, atol=1e-15)
    beside = ~np.eye(8, dtype=bool)
    assert (((left == whole) | (left == 0)) | ~beside).all()
    assert (left.diagonal() >= whole.diagonal()).all()


@pytest.mark.sampled(fast=6)
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_rows_of_absent_peers_do_not_move_and_those_of_the_others_do(algorithm, learner):
    faults = Faults(absence=0.4)
    states = play(algorithm, learner, GRAPH, rounds=6, faults=faults)
    seen = set()
    for round, (before, after) in enumerate(pairwise(states)):
        there = faults.present(GRAPH.peers, seed=SEED, round=round)
        moved = (after.rows - before.rows).abs().amax(-1)
        assert (moved[~there] < 1e-14).all()
        assert (moved[there] > 1e-6).all()
        seen |= set(there.tolist())
    assert seen == {True, False}


def test_nobody_hears_an_absent_peer():
    faults = Faults(absence=0.4)
    there = faults.present(GRAPH.peers, seed=SEED, round=0)
    rows = torch.where(there, 0.0, 1.0).unsqueeze(-1).double()
    assert torch.equal(mixed(Gossip(5), GRAPH, rows, faults=faults), rows)


def test_losses_are_drawn_afresh_for_every_exchange_and_again_alike_for_every_run():
    faults = Faults(loss=0.5)
    weights = topology.metropolis(GRAPH).matrix
    first, again, next_step, next_round = (
        faults.senders(weights, seed=SEED, round=round, step=step).toarray()
        for round, step in [(0, 0), (0, 0), (0, 1), (1, 0)]
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, next_step)
    assert not np.array_equal(first, next_round)


def test_as_many_rows_are_lost_as_the_probability_says():
    complete = topology.metropolis(topology.complete(40)).matrix
    left = Faults(loss=0.25).senders(complete, seed=SEED, round=0, step=0)
    heard = left.nnz - 40
    assert heard / (40 * 39) == pytest.approx(0.75, abs=0.04)  # three deviations


def test_peers_still_agree_over_a_network_that_loses_a_third():
    rows = torch.arange(8.0, dtype=torch.float64).unsqueeze(-1)
    after = mixed(Gossip(200), GRAPH, rows, faults=Faults(loss=1 / 3))
    assert after.max() - after.min() < 1e-9
    assert 0 < after.mean() < 7
