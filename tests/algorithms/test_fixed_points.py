"""Where algorithms end on quadratics :math:`a_i x^2 / 2 + b_i x`, known in closed form.

The optimum of the sum is :math:`-\\sum b / \\sum a`; what only averages ends elsewhere.
"""

import numpy as np
import pytest
import torch
from stacks import SEED, play, quadratics

from p2pfl import topology
from p2pfl.algorithms import DPSGD, Averaging, Choco, Compressed, FedAvg, Gossip
from p2pfl.core.codecs import Quantise

pytestmark = pytest.mark.slow

A, B = np.array([2.0, 0.5, 1.0, 3.0]), np.array([4.0, -3.0, 1.0, -6.0])
RATE = 0.05
OPTIMUM = 0.6153846154
RING = topology.ring(4)  # Metropolis weights are all 1/3
W = topology.metropolis(RING).matrix.toarray()
IDENTITY = np.eye(4)


def ends(algorithm, *, steps, graph=RING, rounds=1000):
    learner = quadratics(A, B, rate=RATE, steps=steps)
    before, after = play(algorithm, learner, graph, rounds=rounds)[-2:]
    assert torch.allclose(before.rows, after.rows, rtol=0, atol=1e-13)
    return after.rows.squeeze(-1).numpy()


def fedavg(steps=1):
    return FedAvg(Averaging(RING.peers, SEED, Gossip(steps), weighted=False))


@pytest.mark.parametrize(("graph", "exchanges"), [(topology.complete(4), 1), (RING, 60)], ids=["complete", "ring"])
def test_fedavg_with_ten_local_steps_ends_beside_the_optimum(graph, exchanges):
    pull = 1 - (1 - RATE * A) ** 10
    bias = -(pull * B / A).sum() / pull.sum()
    assert bias == pytest.approx(0.5984317101, abs=1e-10)
    assert ends(fedavg(exchanges), steps=10, graph=graph, rounds=200) == pytest.approx(np.full(4, bias), abs=1e-12)


def test_fedavg_with_one_local_step_ends_at_the_optimum():
    assert ends(fedavg(), steps=1, graph=topology.complete(4)) == pytest.approx(np.full(4, OPTIMUM), abs=1e-10)


def test_fedavg_with_one_step_and_one_exchange_is_adapt_then_combine():
    expected = np.linalg.solve(IDENTITY - W @ (IDENTITY - RATE * np.diag(A)), -RATE * W @ B)
    assert expected == pytest.approx([0.61757508, 0.55621519, 0.70580862, 0.59364454], abs=1e-8)
    assert ends(fedavg(), steps=1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_choco_is_adapt_then_combine_with_weights_that_move_by_gamma(gamma):
    lazy = IDENTITY + gamma * (W - IDENTITY)
    expected = np.linalg.solve(IDENTITY - lazy @ (IDENTITY - RATE * np.diag(A)), -RATE * lazy @ B)
    assert ends(Compressed(Choco(), Quantise(8), gamma), steps=1) == pytest.approx(expected, abs=1e-12)


def test_dpsgd_ends_where_mixing_and_gradients_balance():
    expected = np.linalg.solve(IDENTITY - W + RATE * np.diag(A), -RATE * B)
    assert ends(DPSGD(), steps=1) == pytest.approx(expected, abs=1e-12)
    assert not np.allclose(expected, OPTIMUM, atol=0.01)
