import numpy as np
import pytest
import torch
from convex import OPTIMUM, A, B, quadratics
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import SEED, classifier, play, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, GradientTracking
from p2pfl.experiment import read
from p2pfl.simulation import Faults, simulate

RATE = 0.05
RING = topology.ring(4)
W = topology.metropolis(RING).matrix.toarray()


def gradient(x):
    return A * x + B


def test_one_step_a_round_is_diging_in_its_adapt_then_combine_form():
    x, y = np.zeros(4), gradient(np.zeros(4))
    for state in play(GradientTracking(), quadratics(), RING, rounds=30)[1:]:
        before = x
        x = W @ (x - RATE * y)
        y = W @ y + gradient(x) - gradient(before)
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-12)


@pytest.mark.slow
def test_several_steps_a_round_are_those_of_the_paper_peer_by_peer():
    K, x, c = 5, [0.0] * 4, [0.0] * 4
    for state in play(GradientTracking(), quadratics(steps=K), RING, rounds=30)[1:]:
        after = list(x)
        for i in range(4):
            for _ in range(K):
                after[i] -= RATE * (A[i] * after[i] + B[i] + c[i])
        z = [(x[i] - after[i]) / (K * RATE) for i in range(4)]
        c = [c[i] - z[i] + sum(W[i, j] * z[j] for j in range(4)) for i in range(4)]
        x = [sum(W[i, j] * after[j] for j in range(4)) for i in range(4)]
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-11)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize(
    "graph",
    [RING, topology.one_peer_exponential(4), topology.path(4)],
    ids=["ring", "schedule", "path"],
)
def test_it_ends_at_the_optimum_however_many_local_steps_and_whatever_the_graph(graph, steps):
    rate = RATE if steps == 1 else 0.01
    ends = play(GradientTracking(), quadratics(rate=rate, steps=steps), graph, rounds=450)[-1].rows
    assert pytest.approx(0.6153846154, abs=1e-10) == OPTIMUM
    assert (ends - OPTIMUM).abs().max() < 1e-10


@pytest.mark.slow
def test_absent_peers_do_not_move_the_optimum():
    ends = play(GradientTracking(), quadratics(), RING, rounds=700, faults=Faults(absence=0.3))[-1].rows
    assert (ends - OPTIMUM).abs().max() < 1e-10


def test_the_first_round_is_fedavg_in_which_all_count_alike():
    learner, _ = classifier(wine(RING.peers), batch=8)
    tracked = play(GradientTracking(), learner, RING, rounds=1)[-1].rows
    averaged = play(FedAvg(Averaging(RING.peers, SEED, Gossip(), weighted=False)), learner, RING, rounds=1)[-1].rows
    assert torch.equal(tracked, averaged)


@settings(FEW)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.9]))
def test_corrections_sum_to_zero(steps, exchanges, absence, momentum):
    learner = quadratics(steps=steps, options={"momentum": momentum})
    for state in play(GradientTracking(Gossip(exchanges)), learner, RING, rounds=6, faults=Faults(absence=absence))[1:]:
        assert abs(float(state.extra["correction"].sum())) < 1e-12


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize("name", ["gradient_tracking", "exact_diffusion", "d2", "qg_dsgdm"])
def test_one_row_a_round_leaves_under_masks(name):
    table = {
        "rounds": 8,
        "topology": {"kind": "complete", "peers": 6},
        "data": {"name": "wine", "split": "dirichlet"},
        "model": {"name": "linear"},
        "learning": {"algorithm": name, "rate": 0.05, "algorithm_options": {}},
        "gossip": {"steps": 12},  # a lazy exchange leaves half of a mask
        "privacy": {"mode": "pairwise"},
    }
    hidden = simulate(read(table), baselines=False).summary["together"]
    plain = simulate(read(table, changes=["privacy.mode=none"]), baselines=False).summary["together"]
    assert hidden == pytest.approx(plain, abs=0.05)
