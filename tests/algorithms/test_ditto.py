import pytest
import torch
from clients import Clients
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import RATE, SEED, classifier, play, wine

from effort import FEW
from p2pfl import topology
from p2pfl.algorithms import Averaging, Ditto, FedAvg, Gossip
from p2pfl.algorithms.baselines import score_alone

COMPLETE = topology.complete(5)
RING = topology.ring(5)


def ditto(graph, pull, **given):
    return Ditto(Averaging(graph.peers, SEED, Gossip(), mean_samples=20.0, **given), pull=pull)


def test_algorithm_1_of_the_paper_with_a_server():
    federation = wine(COMPLETE.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    w = learner.start(COMPLETE.peers)[0]
    v = dict.fromkeys(clients.peers, w)
    for round, state in enumerate(play(ditto(COMPLETE, 0.7), learner, COMPLETE, rounds=4)[1:]):
        local = [clients.fit(peer, w, round=round) for peer in clients.peers]
        v = {peer: clients.fit(peer, v[peer], round=round, pull=0.7, towards=w) for peer in clients.peers}
        w = clients.average(local)
        assert (state.public.rows - w).abs().max() < 1e-10
        assert (state.rows - torch.stack(list(v.values()))).abs().max() < 1e-10


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("pull", [0.0, 1.0])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_what_is_shared_is_fedavg_bit_for_bit(pull, fraction):
    learner, _ = classifier(wine(RING.peers), batch=8)
    average = ditto(RING, pull, fraction=fraction).average
    ours = play(Ditto(average, pull=pull), learner, RING, rounds=4)[-1].public.rows
    assert torch.equal(ours, play(FedAvg(average), learner, RING, rounds=4)[-1].rows)


def test_without_a_pull_everybody_learns_alone():
    learner, _ = classifier(wine(RING.peers), batch=8)
    rows = play(ditto(RING, 0.0), learner, RING, rounds=4)[-1].rows
    single = score_alone(learner, RING.peers, rounds=4)
    assert torch.equal(learner.evaluate(rows, peers=RING.peers)["loss"], single["loss"])


@settings(FEW)
@given(st.floats(0.0, 4.0), st.floats(0.0, 0.9))
def test_the_harder_the_pull_the_nearer_the_own_row_stays(pull, less):
    learner, _ = classifier(wine(RING.peers), batch=None)
    assert RATE * pull < 1
    far, near = (
        (state.rows - state.public.rows).norm(dim=-1).mean()
        for state in (play(ditto(RING, each), learner, RING, rounds=3)[-1] for each in (pull * less, pull))
    )
    assert near <= far + 1e-9
