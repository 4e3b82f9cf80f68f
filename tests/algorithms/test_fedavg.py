import copy
from dataclasses import replace

import pytest
import torch
from stacks import RATE, SEED, classifier, play, quadratics, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip
from p2pfl.core.draws import draw
from p2pfl.data import batches
from p2pfl.learning import straggles

PEERS = topology.complete(5).peers
ROUNDING = 1e-12


def fedavg(peers, *, gossip=None, **settings):
    return FedAvg(Averaging(peers, SEED, gossip or Gossip(), **settings))


def server(model, federation, *, rounds, chosen, **schedule):
    """McMahan et al., Algorithm 1: a server, and its clients one after the other."""
    features, targets = federation.dataset.features.double(), federation.dataset.targets
    for round in range(rounds):
        total, samples = torch.zeros(()), 0
        for index in draw(SEED, "participants", round=round).permutation(len(PEERS))[:chosen]:
            own, client = federation.train[PEERS[index]], copy.deepcopy(model)
            for batch in batches(len(own), seed=SEED, peer=PEERS[index], round=round, steps=None, **schedule):
                loss = torch.nn.functional.cross_entropy(client(features[own[batch]]), targets[own[batch]])
                slopes = torch.autograd.grad(loss, client.parameters())
                for weight, slope in zip(client.parameters(), slopes, strict=True):
                    weight.data -= RATE * slope
            total = total + len(own) * torch.nn.utils.parameters_to_vector(client.parameters()).detach()
            samples += len(own)
        torch.nn.utils.vector_to_parameters(total / samples, model.parameters())
    return total / samples


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(
    ("fraction", "chosen", "batch", "epochs"), [(1.0, 5, 8, 2), (0.4, 2, 8, 2), (0.2, 1, None, 3), (1.0, 5, None, 1)]
)
def test_on_the_complete_graph_gossip_gives_what_a_server_gives(fraction, chosen, batch, epochs):
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=batch, epochs=epochs)
    mean = float(federation.samples(PEERS).double().mean())
    states = play(fedavg(PEERS, fraction=fraction, mean_samples=mean), learner, topology.complete(5), rounds=4)
    expected = server(model, federation, rounds=4, chosen=chosen, batch=batch, epochs=epochs)
    assert (states[-1].rows - expected).abs().max() < ROUNDING
    assert (states[-1].rows - states[0].rows).abs().max() > 0.01


def test_fedsgd_is_gradient_descent_on_the_pooled_data():
    federation = wine(PEERS)
    learner, model = classifier(federation, batch=None, epochs=1)
    states = play(fedavg(PEERS), learner, topology.complete(5), rounds=5)
    pooled = federation.pooled().train["pooled"]
    features, targets = federation.dataset.features[pooled].double(), federation.dataset.targets[pooled]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(features), targets).backward()
        optimizer.step()
    expected = torch.nn.utils.parameters_to_vector(model.parameters())
    assert (states[-1].rows - expected).abs().max() < ROUNDING


def test_with_equal_sizes_weighing_changes_nothing():
    ring = topology.ring(4)
    learner = quadratics([2.0, 0.5, 1.0, 3.0], [4.0, -3.0, 1.0, -6.0], rate=0.05, steps=3, sizes=[7] * 4)
    weighted = play(fedavg(ring.peers, mean_samples=7.0), learner, ring, rounds=5)[-1].rows
    alike = play(fedavg(ring.peers, weighted=False), learner, ring, rounds=5)[-1].rows
    assert (weighted - alike).abs().max() < ROUNDING


def test_more_gossip_on_the_complete_graph_changes_nothing():
    learner, _ = classifier(wine(PEERS))
    once, often = (
        play(fedavg(PEERS, gossip=Gossip(steps)), learner, topology.complete(5), rounds=3)[-1].rows for steps in (1, 6)
    )
    assert (once - often).abs().max() < ROUNDING


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("fraction", [1.0, 0.4])
@pytest.mark.parametrize(
    "graph", [topology.ring(5), topology.star(5), topology.complete(5)], ids=["ring", "star", "complete"]
)
def test_the_average_is_the_same_whether_or_not_anybody_knows_all_sizes(graph, fraction):
    federation = wine(PEERS)
    learner, _ = classifier(federation)
    mean = float(federation.samples(PEERS).double().mean())
    known, unknown = (
        play(
            fedavg(PEERS, gossip=Gossip(3), fraction=fraction, mean_samples=size, graph=graph),
            learner,
            graph,
            rounds=3,
        )[-1].rows
        for size in (mean, None)
    )
    assert (known - unknown).abs().max() < ROUNDING


def test_a_peer_that_hears_of_no_participant_keeps_its_row():
    path = topology.path(6)
    algorithm = fedavg(path.peers, fraction=0.1, weighted=False)
    learner = quadratics([1.0] * 6, [1.0] * 6, rate=0.1, steps=1)
    after = play(algorithm, learner, path, rounds=1)[-1].rows.squeeze(-1)
    [chosen] = algorithm.average.participants(path.peers, round=0).nonzero().flatten().tolist()
    near = torch.tensor([abs(number - chosen) <= 1 for number in range(6)])
    assert (after[near] != 0).all()
    assert (after[~near] == 0).all()


def test_who_straggles_is_dropped_and_the_others_average_as_if_it_were_not_there():
    names = tuple(f"peer{number:02}" for number in range(20))
    average = fedavg(names, fraction=0.5).average
    chosen = average.participants(names, round=1)
    left = replace(average, dropped=0.6).participants(names, round=1)
    late = torch.tensor([straggles(name, seed=SEED, round=1, share=0.6) for name in names])
    assert torch.equal(left, chosen & ~late)
    assert chosen.sum() > left.sum() > 0


def test_a_round_in_which_everybody_straggles_changes_nothing():
    learner, _ = classifier(wine(PEERS), epochs=3)
    states = play(fedavg(PEERS, dropped=1.0, weighted=False), learner, topology.ring(5), rounds=2)
    assert torch.equal(states[-1].rows, states[0].rows)


def test_everybody_draws_the_same_participants_of_a_round_and_others_in_the_next():
    names = tuple(f"peer{number:02}" for number in range(20))
    algorithm = fedavg(names, fraction=0.25)
    together = algorithm.average.participants(names, round=1)
    alone = torch.cat([algorithm.average.participants((name,), round=1) for name in names])
    assert torch.equal(together, alone)
    assert together.sum() == 5
    assert not torch.equal(together, algorithm.average.participants(names, round=2))
