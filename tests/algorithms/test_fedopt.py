import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Clients, average, chosen, parabolas
from stacks import classifier, play, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi

GRAPH = topology.complete(5)
PEERS = GRAPH.peers
HOW_TO = Path(__file__).parents[2] / "docs" / "add-an-algorithm.md"
ETA, TAU = 0.05, 0.01
KINDS = {
    "FedAdam": (FedAdam, 0.9, lambda v, d, b: b * v + (1 - b) * d * d, {"beta2": 0.95}),
    "FedYogi": (FedYogi, 0.8, lambda v, d, b: v - (1 - b) * d * d * torch.sign(v - d * d), {"beta2": 0.95}),
    "FedAdagrad": (FedAdagrad, 0.3, lambda v, d, _: v + d * d, {}),
}


def changes(clients, x, *, count, round):
    """The mean of what those who take part have changed."""
    S = chosen(PEERS, count, round=round)
    n = sum(clients.size(i) for i in S)
    return sum(clients.size(i) / n * (clients.descend(i, x, round=round)[0] - x) for i in S)


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(("fraction", "count"), [(1.0, 5), (0.4, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_on_the_complete_graph_every_peer_is_the_server_of_the_paper(kind, fraction, count):
    make, beta1, second, options = KINDS[kind]
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=8, epochs=2)
    size = float(federation.samples(PEERS).double().mean())
    over = average(PEERS, fraction=fraction, mean_samples=size)
    algorithm = make(over, global_rate=ETA, beta1=beta1, tau=TAU, **options)
    states = play(algorithm, learner, GRAPH, rounds=6)
    clients = Clients(model, federation, epochs=2)
    x, m, v = clients.start, 0.0, torch.full_like(clients.start, TAU**2)
    for round in range(6):
        d = changes(clients, x, count=count, round=round)
        m, v = beta1 * m + (1 - beta1) * d, second(v, d, 0.95)
        x = x + ETA * m / (v.sqrt() + TAU)
    assert (states[-1].rows - x).abs().max() < 1e-10
    assert (states[-1].rows - states[0].rows).abs().max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_ring_peers_come_as_near_to_each_other_as_their_averages_do(kind):
    make, beta1, _, options = KINDS[kind]
    ring = topology.ring(5)
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    apart = []
    for exchanges in (2, 8, 24):
        over = average(PEERS, exchanges=exchanges, graph=ring)
        rows = play(make(over, beta1=beta1, **options), learner, ring, rounds=15)[-1].rows
        apart.append(float((rows - rows.mean(0)).abs().max()))
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 1e-3  # what Yogi asks of a number is a sign, which may differ


def test_fedavgm_is_a_server_that_runs_torchs_sgd_with_momentum():
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=8, epochs=2)
    size = float(federation.samples(PEERS).double().mean())
    over = average(PEERS, fraction=0.6, mean_samples=size)
    last = play(FedAvgM(over, global_rate=0.7, momentum=0.8), learner, GRAPH, rounds=5)[-1].rows
    clients = Clients(model, federation, epochs=2)
    x = torch.nn.Parameter(clients.start.clone())
    optimizer = torch.optim.SGD([x], lr=0.7, momentum=0.8)
    for round in range(5):
        x.grad = -changes(clients, x.detach(), count=3, round=round)
        optimizer.step()
    assert (last - x).abs().max() < 1e-10


@pytest.mark.parametrize("graph", [GRAPH, topology.ring(5)], ids=["complete", "ring"])
def test_fedavgm_without_momentum_is_fedavg_bit_for_bit(graph):
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    over = average(PEERS, graph=graph)
    plain = play(FedAvgM(over, momentum=0.0), learner, graph, rounds=4)[-1].rows
    assert torch.equal(plain, play(FedAvg(over), learner, graph, rounds=4)[-1].rows)


@settings(FEW)
@given(st.integers(0, 2**32), st.floats(0.0, 0.95))
def test_on_any_graph_the_mean_moves_as_under_a_server_with_momentum(seed, momentum):
    graph = topology.small_world(8, degree=4, rewire=0.5, seed=seed)
    learner = parabolas(np.ones(8), np.linspace(-4, 5, 8), rate=0.1, steps=3)  # one curvature, so that means suffice
    states = play(FedAvgM(average(graph.peers, weighted=False), momentum=momentum), learner, graph, rounds=6)
    x, m = 0.0, 0.0
    for state in states[1:]:
        m = momentum * m + (0.9**3 - 1) * (x + 0.5)
        x = x + m
        assert float(state.rows.mean()) == pytest.approx(x, abs=1e-12)


def test_what_the_how_to_shows_is_fedavgm_bit_for_bit():
    block, *_ = re.findall(r"^```python\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = {"__name__": __name__}
    exec(compile(block, HOW_TO.name, "exec"), names)  # noqa: S102 (that is what a reader would do)
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    ends = [play(kind(average(PEERS)), learner, GRAPH, rounds=4)[-1].rows for kind in (names["Heavy"], FedAvgM)]
    assert torch.equal(*ends)
