import numpy as np
import pytest
import torch
from servers import Clients, average, chosen, parabolas
from stacks import RATE, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import FedAvg, FedNova

GRAPH = topology.complete(5)
PEERS = GRAPH.peers
A, B = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0])


def server(clients, *, count, rounds):
    """Wang et al., equations 9 and 10, for steps of plain gradient descent."""
    x = clients.start
    for round in range(rounds):
        S = chosen(PEERS, count, round=round)
        n = sum(clients.size(i) for i in S)
        d, tau = torch.zeros_like(x), 0.0
        for i in S:
            p, (y, tau_i) = clients.size(i) / n, clients.descend(i, x, round=round)
            d, tau = d + p * (x - y) / (RATE * tau_i), tau + p * tau_i
        x = x - tau * RATE * d
    return x


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("stragglers", [0.0, 0.7])
@pytest.mark.parametrize(("fraction", "count"), [(1.0, 5), (0.4, 2), (0.6, 3)])
def test_on_the_complete_graph_it_is_the_algorithm_of_the_paper(fraction, count, stragglers):
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=8, epochs=4, stragglers=stragglers)
    size = float(federation.samples(PEERS).double().mean())
    states = play(FedNova(average(PEERS, fraction=fraction, mean_samples=size)), learner, GRAPH, rounds=4)
    expected = server(Clients(model, federation, epochs=4, stragglers=stragglers), count=count, rounds=4)
    assert (states[-1].rows - expected).abs().max() < 1e-10


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("graph", [GRAPH, topology.ring(5), topology.star(5)], ids=["complete", "ring", "star"])
def test_where_all_take_equally_many_steps_it_is_fedavg_bit_for_bit(graph, weighted):
    federation = wine(PEERS)
    learner, _ = classifier(federation, batch=8, steps=7)
    over = average(PEERS, weighted=weighted, mean_samples=float(federation.samples(PEERS).double().mean()))
    normalised = play(FedNova(over), learner, graph, rounds=4)[-1].rows
    assert torch.equal(normalised, play(FedAvg(over), learner, graph, rounds=4)[-1].rows)


@pytest.mark.slow
def test_with_unequal_work_it_ends_near_the_optimum_and_fedavg_elsewhere():
    four, rate, work = topology.complete(4), 0.01, [1, 4, 2, 8]
    learner = parabolas(A, B, rate=rate, copies=work, batch=1)
    over = average(four.peers, weighted=False)
    ends = [play(kind, learner, four, rounds=600)[-1].rows.squeeze(-1) for kind in (FedNova(over), FedAvg(over))]
    pull = 1 - (1 - rate * A) ** work
    for end, weights in zip(ends, (pull / work, pull), strict=True):
        assert end.tolist() == pytest.approx([-(weights * B / A).sum() / weights.sum()] * 4, abs=1e-10)
    optimum = -B.sum() / A.sum()
    assert abs(float(ends[0][0]) - optimum) < 0.07
    assert abs(float(ends[1][0]) - optimum) > 0.3
