import torch
from stacks import SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, FineTuning, Gossip

GRAPH = topology.small_world(6, degree=4, rewire=0.3, seed=1)
AVERAGE = Averaging(GRAPH.peers, SEED, Gossip(2), mean_samples=20.0)


def test_without_last_rounds_it_is_fedavg_bit_for_bit():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    tuned = play(FineTuning(AVERAGE, rounds=4, last=0), learner, GRAPH, rounds=4)
    plain = play(FedAvg(AVERAGE), learner, GRAPH, rounds=4)
    assert torch.equal(tuned[-1].rows, plain[-1].rows)


def test_the_last_rounds_are_training_alone_from_where_fedavg_ends():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    tuned = play(FineTuning(AVERAGE, rounds=5, last=2), learner, GRAPH, rounds=5)[-1]
    plain = play(FedAvg(AVERAGE), learner, GRAPH, rounds=3)[-1]
    rows = plain.rows
    for round in (3, 4):
        rows = learner.fit(rows, peers=GRAPH.peers, round=round).rows
    assert torch.equal(tuned.rows, rows)
    assert torch.equal(tuned.public.rows, plain.public.rows)
    assert not torch.allclose(tuned.rows, tuned.public.rows, atol=0.01)
