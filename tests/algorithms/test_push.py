import numpy as np
import pytest
import torch
from convex import OPTIMUM, A, B, quadratics
from stacks import SEED, classifier, play, push, wine

from p2pfl import topology
from p2pfl.algorithms import SGP, Averaging, FedAvg, Gossip, State
from p2pfl.core.errors import ExperimentError
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
def test_with_falling_rates_a_directed_graph_comes_to_the_optimum():
    learner = quadratics(rate=0.1, schedule="ExponentialLR", schedule_options={"gamma": 0.98})
    ends = play(SGP(), learner, ONE_WAY, rounds=300, weigh=push)[-1].rows
    assert (ends - OPTIMUM).abs().max() < 2e-3
    assert ends.max() - ends.min() < 1e-3


@pytest.mark.slow
def test_under_loss_push_does_not_find_the_average():
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
        ("relay_sgd", "sums rows of different rounds"),
    ],
)
def test_what_cannot_be_hidden_says_why(name, why):
    table = TABLE | {"learning": {"algorithm": name}, "privacy": {"mode": "pairwise"}}
    with pytest.raises(ExperimentError, match=f"does not work with {name}, which {why}"):
        plan(read(table))
