"""Peers of one process share a learner across threads."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from p2pfl.data import Dataset, Federation
from p2pfl.learning import TorchLearner

PEERS = tuple(f"peer{i}" for i in range(8))
TURNS = 12


@pytest.fixture(autouse=True)
def hasty():
    """Threads change places as often as the interpreter lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def learner():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.2), nn.Linear(5, 3))
    data = Dataset(torch.randn(40, 6), torch.randint(3, (40,)), 3)
    train = {peer: np.arange(5 * i, 5 * i + 5) for i, peer in enumerate(PEERS)}
    held = dict.fromkeys(PEERS, np.arange(10))
    federation = Federation(data, train, held, held)
    return TorchLearner(model, federation, seed=7, batch=2, dtype=torch.float64, device="cpu", frozen=["0.bias"])


def trained(learner, peer, round):
    row = learner.start([peer]) + PEERS.index(peer)
    fitted = learner.fit(row, peers=[peer], round=round)
    return fitted.rows


def sloped(learner, peer, round):
    return learner.gradient(learner.start([peer]) + PEERS.index(peer), peers=[peer], round=round)


def scored(learner, peer, round):
    scores = learner.evaluate(learner.start([peer]) + PEERS.index(peer) / 8 + round, peers=[peer])
    return torch.stack([scores["loss"], scores["accuracy"]])


def saved(learner, peer, round):
    row = learner.start([peer])[0] + PEERS.index(peer) + round
    return torch.cat([value.flatten() for value in learner.state_dict(row).values()])


WORK = (trained, sloped, scored, saved)


def all_of(learner, peer):
    return [work(learner, peer, round) for round in range(TURNS) for work in WORK]


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("each", ["the learner itself", "a copy on its own data"])
def test_threads_that_share_a_learner_find_what_each_would_find_alone(learner, each):
    alone = {peer: all_of(learner, peer) for peer in PEERS}
    together = threading.Barrier(len(PEERS))

    def one(peer):
        mine = learner if each == "the learner itself" else learner.on(learner.federation)
        together.wait()
        return all_of(mine, peer)

    with ThreadPoolExecutor(len(PEERS)) as pool:
        found = dict(zip(PEERS, pool.map(one, PEERS), strict=True))
    for peer in PEERS:
        assert all(torch.equal(*pair) for pair in zip(found[peer], alone[peer], strict=True))
