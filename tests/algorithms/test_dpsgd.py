import numpy as np
import torch
from stacks import RATE, SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import DPSGD, Gossip
from p2pfl.data import batches

ROUNDS = 5
RING = topology.ring(6)


def gradients(model, federation, rows, *, round):
    """Of every peer's loss on its batch of the round, at its own row, [N, P]."""
    features, targets = federation.dataset.features.double(), federation.dataset.targets
    found = []
    for peer, row in zip(federation.peers, rows, strict=True):
        own = federation.train[peer]
        [batch] = batches(len(own), seed=SEED, peer=peer, round=round, batch=8, epochs=1, steps=1)
        torch.nn.utils.vector_to_parameters(row, model.parameters())
        loss = torch.nn.functional.cross_entropy(model(features[own[batch]]), targets[own[batch]])
        slopes = torch.autograd.grad(loss, model.parameters())
        found.append(torch.cat([slope.flatten() for slope in slopes]))
    return torch.stack(found)


def test_a_round_is_the_dense_formula_of_the_paper():
    federation = wine(RING.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    W = torch.from_numpy(topology.metropolis(RING).matrix.toarray())
    x = learner.start(RING.peers)
    states = play(DPSGD(), learner, RING, rounds=ROUNDS)
    for round, state in enumerate(states[1:]):
        x = W @ x - RATE * gradients(model, federation, x, round=round)
        assert (state.rows - x).abs().max() < 1e-12


def test_several_exchanges_a_round_mix_by_a_power_of_the_weights():
    federation = wine(RING.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    W = torch.from_numpy(np.linalg.matrix_power(topology.metropolis(RING).matrix.toarray(), 3))
    states = play(DPSGD(Gossip(3)), learner, RING, rounds=2)
    x = W @ states[1].rows - RATE * gradients(model, federation, states[1].rows, round=1)
    assert (states[2].rows - x).abs().max() < 1e-12


def test_the_mean_moves_as_under_centralised_sgd_with_the_mean_of_the_gradients():
    federation = wine(RING.peers)
    learner, model = classifier(federation, batch=8, steps=1)
    schedule = topology.one_peer_exponential(6)
    states = play(DPSGD(), learner, schedule, rounds=ROUNDS)
    for round in range(ROUNDS):
        before, after = states[round].rows, states[round + 1].rows
        slope = gradients(model, federation, before, round=round).mean(0)
        assert (after.mean(0) - (before.mean(0) - RATE * slope)).abs().max() < 1e-12


def test_with_momentum_on_the_complete_graph_the_mean_is_that_of_a_central_optimiser():
    complete = topology.complete(6)
    federation = wine(complete.peers)
    learner, model = classifier(federation, batch=8, steps=1, options={"momentum": 0.9})
    states = play(DPSGD(), learner, complete, rounds=ROUNDS)
    mean = torch.nn.Parameter(states[0].rows.mean(0))
    optimizer = torch.optim.SGD([mean], lr=RATE, momentum=0.9)
    for round in range(ROUNDS):
        mean.grad = gradients(model, federation, states[round].rows, round=round).mean(0)
        optimizer.step()
        assert (states[round + 1].rows.mean(0) - mean).abs().max() < 1e-12
