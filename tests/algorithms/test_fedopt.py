import pytest
import torch
from servers import Clients, average, chosen
from stacks import classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import FedAdagrad, FedAdam, FedYogi

GRAPH = topology.complete(5)
PEERS = GRAPH.peers
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


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_ring_peers_come_as_near_to_each_other_as_their_averages_do(kind):
    make, beta1, _, options = KINDS[kind]
    ring = topology.ring(5)
    learner, _ = classifier(wine(PEERS), batch=8, epochs=2)
    apart = []
    for exchanges in (2, 8, 24):
        over = average(PEERS, exchanges=exchanges, diameter=2)
        rows = play(make(over, beta1=beta1, **options), learner, ring, rounds=15)[-1].rows
        apart.append(float((rows - rows.mean(0)).abs().max()))
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] < 1e-3  # what Yogi asks of a number is a sign, which may differ
