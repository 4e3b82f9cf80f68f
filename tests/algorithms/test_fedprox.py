import numpy as np
import pytest
import torch
from servers import Clients, average, chosen, parabolas
from stacks import classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import FedAvg, FedProx

GRAPH = topology.complete(5)
PEERS = GRAPH.peers
ROUNDING = 1e-10


def server(clients, *, mu, count, rounds):
    """Li et al., Algorithm 2, each device solving inexactly by the gradient steps that it gets round to."""
    w = clients.start
    for round in range(rounds):
        total, samples = 0.0, 0
        for k in chosen(PEERS, count, round=round):
            w_k, _ = clients.descend(k, w, round=round, correction=lambda y, w=w: mu * (y - w))
            total, samples = total + clients.size(k) * w_k, samples + clients.size(k)
        w = total / samples
    return w


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("stragglers", [0.0, 0.7])
@pytest.mark.parametrize(("mu", "fraction", "count"), [(1.0, 1.0, 5), (0.1, 0.4, 2), (3.0, 0.6, 3)])
def test_on_the_complete_graph_it_is_the_algorithm_of_the_paper(mu, fraction, count, stragglers):
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=8, epochs=4, stragglers=stragglers)
    size = float(federation.samples(PEERS).double().mean())
    states = play(FedProx(average(PEERS, fraction=fraction, mean_samples=size), mu), learner, GRAPH, rounds=4)
    clients = Clients(model, federation, epochs=4, stragglers=stragglers)
    assert (states[-1].rows - server(clients, mu=mu, count=count, rounds=4)).abs().max() < ROUNDING


@pytest.mark.parametrize("graph", [GRAPH, topology.ring(5)], ids=["complete", "ring"])
def test_without_a_leash_it_is_fedavg_bit_for_bit(graph):
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    free = play(FedProx(average(PEERS), 0.0), learner, graph, rounds=3)[-1].rows
    assert torch.equal(free, play(FedAvg(average(PEERS)), learner, graph, rounds=3)[-1].rows)


@pytest.mark.slow
def test_with_exact_local_solutions_it_ends_where_the_moreau_envelopes_balance():
    a, b, mu = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0]), 1.5
    four = topology.complete(4)
    learner = parabolas(a, b, rate=0.2, steps=80)
    states = play(FedProx(average(four.peers, weighted=False), mu), learner, four, rounds=60)
    expected = -(b / (a + mu)).sum() / (a / (a + mu)).sum()
    assert states[-1].rows.squeeze(-1).tolist() == pytest.approx([expected] * 4, abs=ROUNDING)


def test_the_tighter_the_leash_the_less_a_round_moves():
    learner, _ = classifier(wine(PEERS), batch=8, epochs=5)
    ends = [play(FedProx(average(PEERS), mu), learner, GRAPH, rounds=1) for mu in (0.0, 0.1, 1.0, 3.0)]
    moved = [float((end.rows - start.rows).norm()) for start, end in ends]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < moved[0] / 2
