import numpy as np
import pytest
import torch
from stacks import SEED, play, quadratics

from p2pfl import topology
from p2pfl.algorithms import Averaging, Gossip, Propagation
from p2pfl.learning import ExternalLearner

GRAPH = topology.small_world(8, degree=4, rewire=0.3, seed=1)
SIZES = [3, 50, 7, 1, 100, 20, 12, 80]
AVERAGE = Averaging(GRAPH.peers, SEED, Gossip(), graph=GRAPH)


def solitary(values):
    """A learner that has a peer's own answer after one round."""
    answers = dict(zip(GRAPH.peers, torch.tensor(values, dtype=torch.float64), strict=True))
    return ExternalLearner(
        lambda row, *, peer, round: answers[peer].clone(),  # noqa: ARG005 (the signature of a training loop)
        start=torch.zeros(2, dtype=torch.float64),
        samples=dict(zip(GRAPH.peers, SIZES, strict=True)),
    )


VALUES = np.random.default_rng(5).normal(size=(8, 2))


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.2, 0.9])
def test_it_ends_at_the_closed_form_of_the_paper(smoothing):
    states = play(Propagation(AVERAGE, alone=1, smoothing=smoothing), solitary(VALUES), GRAPH, rounds=1000)
    P, C, eye = topology.metropolis(GRAPH).matrix.toarray(), np.diag(np.array(SIZES) / 100), np.eye(8)
    rest = 1 - smoothing
    expected = rest * np.linalg.solve(eye - rest * (eye - C) - smoothing * P, C @ VALUES)
    assert states[-1].rows.numpy() == pytest.approx(expected, abs=1e-10)


@pytest.mark.slow
def test_it_ends_where_the_objective_of_the_paper_is_least():
    smoothing = 0.8
    rows = play(Propagation(AVERAGE, smoothing=smoothing), solitary(VALUES), GRAPH, rounds=600)[-1].rows
    W = torch.from_numpy(topology.metropolis(GRAPH).matrix.toarray())
    c = torch.tensor(SIZES, dtype=torch.float64) / 100
    rows = rows.clone().requires_grad_()
    smooth = (
        W.unsqueeze(-1) * (rows[:, None] - rows[None]).square()
    ).sum() / 4  # each pair once, halved; degrees are 1
    stay = (c.unsqueeze(-1) * (rows - torch.from_numpy(VALUES)).square()).sum() / 2
    [slope] = torch.autograd.grad(smooth + (1 - smoothing) / smoothing * stay, rows)
    assert slope.abs().max() < 1e-12


def test_each_exchange_is_equation_5():
    smoothing = 0.7
    states = play(Propagation(AVERAGE, alone=1, smoothing=smoothing), solitary(VALUES), GRAPH, rounds=6)
    W, x = topology.metropolis(GRAPH).matrix.toarray(), VALUES
    for state in states[2:]:
        c = np.array(SIZES)[:, None] / 100
        x = (smoothing * W @ x + (1 - smoothing) * c * VALUES) / (smoothing + (1 - smoothing) * c)
        assert state.rows.numpy() == pytest.approx(x, abs=1e-12)


def test_without_smoothing_everybody_keeps_what_it_learned_alone():
    states = play(Propagation(AVERAGE, alone=2, smoothing=0.0), solitary(VALUES), GRAPH, rounds=5)
    assert states[-1].rows.numpy() == pytest.approx(VALUES, abs=1e-15)


def test_training_goes_on_alone_for_as_many_rounds_as_were_asked_for():
    learner = quadratics([1.0] * 8, [1.0] * 8, rate=0.1, steps=1)
    states = play(Propagation(AVERAGE, alone=3, smoothing=0.5), learner, GRAPH, rounds=5)
    assert states[3].rows.squeeze(-1).tolist() == pytest.approx([-(1 - 0.9**3)] * 8)
    assert torch.allclose(states[5].rows, states[3].rows, rtol=0, atol=1e-15)
