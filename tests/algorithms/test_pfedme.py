import pytest
import torch
from clients import Clients
from stacks import RATE, SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, PFedMe
from p2pfl.core.draws import draw

COMPLETE = topology.complete(5)
RING = topology.ring(5)
MEAN = 142 / 5  # training samples of a peer


def average(graph, **settings):
    return Averaging(graph.peers, SEED, Gossip(), mean_samples=MEAN, **settings)


@pytest.mark.slow
def test_algorithm_1_of_the_paper_with_a_server_that_averages_some():
    federation = wine(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    pull, rate, relax = 3.0, 0.1, 0.8
    algorithm = PFedMe(average(COMPLETE, fraction=0.4), pull=pull, steps=7, inner=3, rate=rate, relax=relax)
    w = learner.start(COMPLETE.peers)[0]
    for round, state in enumerate(play(algorithm, learner, COMPLETE, rounds=3)[1:]):
        local, personal = [], []
        for peer in clients.peers:
            w_i = theta = w
            for r in range(7):
                for _ in range(3):
                    theta = theta - RATE * (clients.slope(peer, theta, round=round, step=r) + pull * (theta - w_i))
                w_i = w_i - rate * pull * (w_i - theta)
            local.append(w_i)
            personal.append(theta)
        chosen = draw(SEED, "participants", round=round).permutation(5)[:2]
        sizes = [len(federation.train[clients.peers[i]]) for i in chosen]
        mean = sum(size * local[i] for size, i in zip(sizes, chosen, strict=True)) / sum(sizes)
        w = (1 - relax) * w + relax * mean
        assert (state.rows - torch.stack(personal)).abs().max() < 1e-10
        assert (state.public.rows - w).abs().max() < 1e-10


def test_with_one_inner_step_that_is_taken_whole_it_is_fedavg():
    learner, _ = classifier(wine(RING.peers), batch=8, steps=4)
    ours = play(PFedMe(average(RING), pull=8.0, steps=4, inner=1, rate=0.125), learner, RING, rounds=4)[-1].public.rows
    plain = play(FedAvg(average(RING)), learner, RING, rounds=4)[-1].rows
    assert torch.equal(ours, plain)


@pytest.mark.slow
def test_without_a_pull_the_common_row_stays_and_the_personal_ones_learn():
    learner, _ = classifier(wine(RING.peers), batch=8)
    first, *_, last = play(PFedMe(average(RING), pull=0.0), learner, RING, rounds=3)
    assert torch.allclose(last.public.rows, first.public.rows, rtol=0, atol=1e-15)
    assert (last.rows - first.rows).abs().max() > 0.1
