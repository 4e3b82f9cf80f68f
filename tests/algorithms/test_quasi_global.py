import numpy as np
import pytest
import torch
from convex import A, B, quadratics
from stacks import RATE as STEP
from stacks import SEED, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import Averaging, FedAvg, Gossip, QGDSGDm
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.parts.learner_parts import algorithm

RATE = 0.05
RING = topology.ring(4)
W = topology.metropolis(RING).matrix.toarray()


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize(("beta", "mu"), [(0.9, None), (0.5, 0.8)])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_is_that_of_the_paper(beta, mu, steps):
    x, m, mean = [0.0] * 4, [0.0] * 4, beta if mu is None else mu
    for state in play(QGDSGDm(beta=beta, mu=mu), quadratics(steps=steps), RING, rounds=20)[1:]:
        half = list(x)
        for i in range(4):
            for _ in range(steps):
                half[i] -= RATE * (beta * m[i] + A[i] * half[i] + B[i])
        after = [sum(W[i, j] * half[j] for j in range(4)) for i in range(4)]
        m = [mean * m[i] + (1 - mean) * (x[i] - after[i]) / (RATE * steps) for i in range(4)]
        x = after
        assert state.rows.squeeze(-1).numpy() == pytest.approx(x, abs=1e-12)


def test_without_momentum_it_is_fedavg_in_which_all_count_alike():
    learner, _ = classifier(wine(RING.peers), batch=8)
    averaged = play(FedAvg(Averaging(RING.peers, SEED, Gossip(), weighted=False)), learner, RING, rounds=4)[-1].rows
    assert torch.equal(play(QGDSGDm(beta=0.0), learner, RING, rounds=4)[-1].rows, averaged)


def test_on_one_common_loss_it_is_a_heavy_ball():
    complete = topology.complete(4)
    learner = quadratics(np.ones(4), np.full(4, -1.0), rate=STEP)
    x = before = 0.0
    momentum = 0.0
    for state in play(QGDSGDm(beta=0.5), learner, complete, rounds=20)[1:]:
        before, x = x, x - STEP * (x - 1 + 0.5 * momentum)
        momentum = 0.5 * momentum + 0.5 * (before - x) / STEP
        assert (state.rows - x).abs().max() < 1e-12


def test_a_momentum_of_one_is_refused():
    with pytest.raises(ExperimentError, match=r"algorithm_options.beta is 1.0; set it to a number >= 0 and < 1"):
        algorithm("qg_dsgdm", options={"beta": 1.0}, given={"gossip": Gossip()})
