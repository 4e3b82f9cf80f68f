import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Clients, average, chosen, parabolas
from stacks import RATE, classifier, play, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import SCAFFOLD, FedAvg

GRAPH = topology.complete(5)
PEERS = GRAPH.peers
ROUNDING = 1e-10


def server(clients, *, option, eta_g, count, rounds, weights):
    """Karimireddy et al., Algorithm 1, with weights that sum to one for their 1 / N."""
    x = clients.start
    c, c_i = torch.zeros_like(x), {i: torch.zeros_like(x) for i in PEERS}
    for round in range(rounds):
        S = chosen(PEERS, count, round=round)
        share = sum(weights[i] for i in S)
        dx, dc = torch.zeros_like(x), torch.zeros_like(x)
        for i in S:
            y, K = clients.descend(i, x, round=round, correction=lambda _, i=i, c=c: c - c_i[i])
            new = clients.gradient(i, x) if option == "I" else c_i[i] - c + (x - y) / (K * RATE)
            dx, dc = dx + weights[i] / share * (y - x), dc + weights[i] * (new - c_i[i])
            c_i[i] = new
        x, c = x + eta_g * dx, c + dc
    return x, c


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("fraction", "count", "eta_g"), [(1.0, 5, 1.0), (0.4, 2, 1.0), (0.6, 3, 0.5)])
def test_on_the_complete_graph_it_is_the_algorithm_of_the_paper(option, weighted, fraction, count, eta_g):
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=8, epochs=2)
    mean = float(federation.samples(PEERS).double().mean())
    over = average(PEERS, fraction=fraction, weighted=weighted, mean_samples=mean)
    last = play(SCAFFOLD(over, option, eta_g), learner, GRAPH, rounds=5)[-1]
    clients = Clients(model, federation, epochs=2)
    weights = {i: clients.size(i) / (5 * mean) if weighted else 1 / 5 for i in PEERS}
    x, c = server(clients, option=option, eta_g=eta_g, count=count, rounds=5, weights=weights)
    assert (last.rows - x).abs().max() < ROUNDING
    assert (last.extra["common"] - c).abs().max() < ROUNDING


@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_the_first_round_knows_of_no_drift_and_is_fedavg_bit_for_bit(fraction):
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    over = average(PEERS, fraction=fraction)
    corrected = play(SCAFFOLD(over), learner, GRAPH, rounds=1)[-1].rows
    assert torch.equal(corrected, play(FedAvg(over), learner, GRAPH, rounds=1)[-1].rows)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize(
    ("graph", "exchanges"), [(topology.complete(4), 1), (topology.ring(4), 30)], ids=["complete", "ring"]
)
def test_with_ten_local_steps_it_ends_at_the_optimum_that_fedavg_misses(option, graph, exchanges):
    a, b = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0])
    learner = parabolas(a, b, rate=0.05, steps=10)
    over = average(graph.peers, exchanges=exchanges, weighted=False)
    ends = [play(kind, learner, graph, rounds=120)[-1].rows for kind in (SCAFFOLD(over, option), FedAvg(over))]
    assert ends[0].flatten().tolist() == pytest.approx([0.6153846153846154] * 4, abs=1e-12)
    assert ends[1].flatten().tolist() == pytest.approx([0.5984317101] * 4, abs=1e-10)


@settings(FEW)
@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.6, 1.0]), st.integers(1, 3))
def test_on_any_graph_the_mean_of_what_is_common_is_the_mean_of_all_control_variates(seed, fraction, exchanges):
    graph = topology.small_world(8, degree=4, rewire=0.5, seed=seed)
    learner = parabolas(np.linspace(0.5, 3, 8), np.linspace(-4, 5, 8), rate=0.1, steps=3)
    over = average(graph.peers, exchanges=exchanges, weighted=False, fraction=fraction)
    for state in play(SCAFFOLD(over), learner, graph, rounds=6)[1:]:
        if fraction == 1:  # else the mean of the rows is over those who take part
            assert (state.rows.mean() - state.public.rows.mean()).abs() < 1e-12
        assert (state.extra["common"].mean() - state.extra["own"].mean()).abs() < 1e-12
