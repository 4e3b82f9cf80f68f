import numpy as np
import pytest
import torch
from convex import OPTIMUM, A, B, quadratics
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import SEED, classifier, play, push, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import SGP, Averaging, FedAvg, Gossip, RobustSGP, State
from p2pfl.core.errors import ExperimentError, TopologyError
from p2pfl.core.neighbourhood import Public
from p2pfl.core.rows import Layout
from p2pfl.experiment import plan, read
from p2pfl.simulation import Faults

RATE = 0.05
PEERS = topology.ring(4).peers
ONE_WAY = topology.Topology(  # a ring with two shortcuts: peers hear, and are heard by, one to three others
    PEERS,
    tuple((f"peer{a}", f"peer{b}") for a, b in [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)]),
    directed=True,
)
SENDS = {0: (1, 2, 3), 1: (2,), 2: (3,), 3: (0,)}
P = push(ONE_WAY).matrix.toarray()
ROW = Layout(("row",), ((1,),))


def test_gradient_push_is_the_algorithm_of_the_paper():
    x, w = np.zeros(4), np.ones(4)
    for state in play(SGP(), quadratics(), ONE_WAY, rounds=30, weigh=push)[1:]:
        z = x / w
        x, w = P @ (x - RATE * (A * z + B)), P @ w
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x / w, abs=1e-12)


@pytest.mark.parametrize("graph", [topology.complete(4), topology.hypercube(3)], ids=["complete", "hypercube"])
def test_where_masses_stay_one_it_is_fedavg_in_which_all_count_alike(graph):
    learner, _ = classifier(wine(graph.peers), batch=8)
    averaged = play(FedAvg(Averaging(graph.peers, SEED, Gossip(), weighted=False)), learner, graph, rounds=4)[-1].rows
    assert torch.equal(play(SGP(), learner, graph, rounds=4)[-1].rows, averaged)


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("algorithm", [SGP(), RobustSGP(ONE_WAY, ROW)], ids=["plain", "running sums"])
def test_with_falling_rates_a_directed_graph_comes_to_the_optimum(algorithm):
    learner = quadratics(rate=0.1, schedule="ExponentialLR", schedule_options={"gamma": 0.98})
    ends = play(algorithm, learner, ONE_WAY, rounds=300, weigh=push)[-1].rows
    assert (ends - OPTIMUM).abs().max() < 2e-3
    assert ends.max() - ends.min() < 1e-3


@pytest.mark.slow
def test_without_loss_running_sums_are_gradient_push():
    robust, plain = (
        play(algorithm, quadratics(), ONE_WAY, rounds=30, weigh=push)[-1]
        for algorithm in (RobustSGP(ONE_WAY, ROW), SGP())
    )
    assert (robust.rows - plain.rows).abs().max() < 1e-12
    assert (robust.extra["mass"] - plain.extra["mass"]).abs().max() < 1e-12


def test_under_loss_running_sums_are_those_of_the_paper_edge_by_edge():
    faults, weights = Faults(loss=0.3), push(ONE_WAY).matrix
    x, w = [0.0] * 4, [1.0] * 4
    sigma, rho = [np.zeros(2) for _ in range(4)], {(j, i): np.zeros(2) for i in SENDS for j in SENDS[i]}
    states = play(RobustSGP(ONE_WAY, ROW), quadratics(), ONE_WAY, rounds=40, weigh=push, faults=faults)
    lost = 0
    for round, state in enumerate(states[1:]):
        delivered = faults.senders(weights, seed=SEED, round=round, step=0).toarray() > 0
        held = {}
        for i in range(4):
            x[i] -= RATE * (A[i] * x[i] / w[i] + B[i])
            share = np.array([x[i], w[i]]) / (1 + len(SENDS[i]))
            sigma[i] = sigma[i] + share
            held[i] = share
        for (j, i), last in list(rho.items()):
            if delivered[j, i]:
                held[j] = held[j] + sigma[i] - last
                rho[j, i] = sigma[i]
            else:
                lost += 1
        x, w = [held[i][0] for i in range(4)], [held[i][1] for i in range(4)]
        assert state.rows.squeeze(-1).numpy() == pytest.approx(np.array(x) / np.array(w), abs=1e-11)
    assert lost > 40


@pytest.mark.slow
@settings(FEW)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.2]))
def test_under_loss_and_absence_the_exact_weighted_average_comes_out(seed, loss, absence):
    random = np.random.default_rng(seed)
    x, w = random.normal(size=(4, 1)), random.uniform(0.5, 2.0, size=(4, 1))
    rows = torch.from_numpy(x)
    begin = State(rows, Public(rows), extra={"mass": torch.from_numpy(w)})
    states = play(
        RobustSGP(ONE_WAY, ROW),
        quadratics(rate=0.0),
        ONE_WAY,
        rounds=200,
        weigh=push,
        faults=Faults(loss, absence),
        begin=begin,
    )
    mean = float((w * x).sum() / w.sum())
    assert (states[-1].rows - mean).abs().max() < 1e-10
    assert (states[1].rows - mean).abs().max() > 1e-3


@pytest.mark.slow
def test_plain_push_does_not_find_that_average():
    rows = torch.arange(4.0, dtype=torch.float64).unsqueeze(-1)
    begin = State(rows, Public(rows))
    faults = Faults(loss=0.3)
    ends = play(SGP(), quadratics(rate=0.0), ONE_WAY, rounds=300, weigh=push, faults=faults, begin=begin)[-1].rows
    assert ends.max() - ends.min() < 1e-9
    assert (ends - 1.5).abs().min() > 0.01


TABLE = {"topology": {"kind": "exponential", "peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sgp", "divides by masses"),
        ("robust_sgp", "sends running totals"),
        ("relay_sgd", "sums rows of different rounds"),
    ],
)
def test_what_cannot_be_hidden_says_why(name, why):
    table = TABLE | {"learning": {"algorithm": name}, "privacy": {"mode": "pairwise"}}
    with pytest.raises(ExperimentError, match=f"does not work with {name}, which {why}"):
        plan(read(table))


def test_running_sums_want_one_graph():
    with pytest.raises(TopologyError, match=r"robust_sgp does not work with a schedule of 2 graphs"):
        RobustSGP(topology.one_peer_exponential(4), ROW)
