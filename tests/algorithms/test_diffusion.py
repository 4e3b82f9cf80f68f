import numpy as np
import pytest
import torch
from convex import OPTIMUM, A, B, quadratics
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import SEED, classifier, play, stack, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import D2, Averaging, ExactDiffusion, FedAvg, Gossip, GradientTracking, Idle, State, diffusion
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.simulation import Faults

RATE = 0.05
PATH = topology.path(4)
W = topology.metropolis(PATH).matrix.toarray()


def gradient(x):
    return A * x + B


def test_d2_is_the_recursion_of_the_paper():
    before, x = np.zeros(4), W @ (0 - RATE * gradient(np.zeros(4)))
    for state in play(D2(), quadratics(), PATH, rounds=30)[1:]:
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-12)
        before, x = x, W @ (2 * x - before - RATE * gradient(x) + RATE * gradient(before))


def test_exact_diffusion_adapts_corrects_and_combines_as_the_paper_does():
    x, psi = [0.0] * 4, [0.0] * 4
    lazy = (np.eye(4) + W) / 2
    for state in play(ExactDiffusion(), quadratics(), PATH, rounds=30)[1:]:
        adapted = [x[k] - RATE * (A[k] * x[k] + B[k]) for k in range(4)]
        phi = [adapted[k] + x[k] - psi[k] for k in range(4)]
        x, psi = [sum(lazy[k, l] * phi[l] for l in range(4)) for k in range(4)], adapted
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-12)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("faults", [Faults(), Faults(absence=0.3)], ids=["everybody", "some absent"])
@pytest.mark.parametrize("algorithm", [D2(), ExactDiffusion(), ExactDiffusion(Gossip(3))], ids=["D2", "ED", "ED, 3"])
def test_they_end_at_the_optimum_to_ten_digits(algorithm, faults):
    ends = play(algorithm, quadratics(), PATH, rounds=700, faults=faults)[-1].rows
    assert (ends - OPTIMUM).abs().max() < 1e-10


@settings(FEW)
@given(st.sampled_from([D2(), ExactDiffusion(Gossip(2))]), st.integers(1, 4), st.sampled_from([0.0, 0.4]))
def test_what_combining_did_sums_to_zero(algorithm, steps, absence):
    for state in play(algorithm, quadratics(steps=steps), PATH, rounds=6, faults=Faults(absence=absence))[1:]:
        assert abs(float(state.extra["shift"].sum())) < 1e-12


def test_the_first_round_of_d2_is_fedavg_in_which_all_count_alike():
    learner, _ = classifier(wine(PATH.peers), batch=8)
    averaged = play(FedAvg(Averaging(PATH.peers, SEED, Gossip(), weighted=False)), learner, PATH, rounds=1)[-1].rows
    assert torch.equal(play(D2(), learner, PATH, rounds=1)[-1].rows, averaged)


TURNS = topology.one_peer_exponential(32)
WAYS = {"plain": Gossip(3), "Chebyshev": Gossip(4, 0.9)}


@pytest.mark.parametrize("gossip", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("lazy", [False, True], ids=["D2", "exact diffusion"])
def test_the_least_eigenvalue_of_a_round_is_below_that_of_its_matrix_and_close(gossip, lazy):
    weights = topology.metropolis(topology.ring(16)).matrix.toarray()
    weights = (weights + np.eye(16)) / 2 if lazy else weights
    before = now = np.eye(16)
    for omega in gossip.omegas:
        before, now = now, omega * weights @ now + (1 - omega) * before
    least = np.linalg.eigvalsh(now).min()
    found = diffusion._least(gossip, float(np.linalg.eigvalsh(weights)[0]))
    assert least - (0 if gossip.rho is None else 0.3) < found + 1e-9
    assert found <= least + 1e-9


def disagreement(algorithm, *, rounds):
    """How far rows that start apart lie apart after some rounds without training."""
    learner = quadratics(rate=0.0)
    rows = torch.arange(32.0, dtype=torch.float64).unsqueeze(-1)
    state, idle = State(rows, Public(rows)), Idle(learner)
    for round in range(rounds):
        state = run_without_loop(algorithm.round(state, idle, stack(TURNS, round=round, weigh=topology.natural), round))
    return float((state.rows - rows.mean()).norm())


@pytest.mark.slow
def test_on_graphs_in_turn_d2_flies_apart_so_that_it_is_refused():
    assert disagreement(D2(), rounds=60) > 1e6
    assert disagreement(ExactDiffusion(), rounds=400) > 1e6
    assert disagreement(GradientTracking(), rounds=40) < 1e-9


@pytest.mark.parametrize("name", ["d2", "exact_diffusion"])
@pytest.mark.parametrize(
    ("changes", "got"),
    [
        (
            ["topology.kind=one_peer_exponential"],
            "a schedule of 3 graphs does not work with {name}, .*; take one graph",
        ),
        (["topology.kind=base"], "a schedule of 2 graphs does not work with {name}, .*; take one graph"),
        (["topology.kind=exponential"], "an asymmetric matrix does not work with {name}, .*; take an undirected"),
    ],
)
def test_they_are_refused_where_weights_change_or_differ_at_the_ends_of_an_edge(name, changes, got):
    table = {"topology": {"peers": 8}, "data": {"name": "wine"}, "learning": {"algorithm": name}}
    with pytest.raises(ExperimentError, match=got.format(name=name)):
        plan(read(table, changes=changes))


def test_acceleration_under_which_rows_would_swing_is_refused():
    table = {"topology": {"peers": 32}, "data": {"name": "wine"}, "gossip": {"acceleration": "chebyshev", "steps": 2}}
    for name in "d2", "exact_diffusion":
        with pytest.raises(
            TopologyError, match=rf"{name} diverges if .* an eigenvalue of -0.[79].*without gossip.accel"
        ):
            plan(read(table | {"learning": {"algorithm": name}}))
        plan(read(table | {"learning": {"algorithm": name}}, changes=["topology.kind=complete"]))


def test_weights_with_which_d2_would_swing_for_ever_are_refused():
    table = {"topology": {"peers": 8}, "data": {"name": "wine"}, "learning": {"algorithm": "d2"}}
    with pytest.raises(
        TopologyError, match=r"of -0.3333, which is not above -1/3; take exact_diffusion, or gossip.steps"
    ):
        plan(read(table))
    for changes in ["gossip.steps=2"], ["topology.peers=7"], ["learning.algorithm=exact_diffusion"]:
        plan(read(table, changes=changes))
