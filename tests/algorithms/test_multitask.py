import numpy as np
import pytest
import torch
from clients import Clients
from hypothesis import given
from hypothesis import strategies as st
from stacks import RATE, classifier, play, wine

from p2pfl import topology
from p2pfl.algorithms import MultiTask
from p2pfl.algorithms.baselines import score_alone
from p2pfl.algorithms.multitask import relations

GRAPH = topology.small_world(6, degree=4, rewire=0.3, seed=1)


def nearest(costs, spread):
    """Minimise costs @ w + spread |w|^2 over the simplex by bisection of the multiplier."""
    low, high = costs.min(), costs.max() + 2 * spread
    for _ in range(200):
        middle = (low + high) / 2
        total = np.maximum(0, (middle - costs) / (2 * spread)).sum()
        low, high = (middle, high) if total < 1 else (low, middle)
    return np.maximum(0, (low - costs) / (2 * spread))


def test_the_alternating_scheme_peer_by_peer():
    federation = wine(GRAPH.peers)
    learner, model = classifier(federation, batch=8)
    clients = Clients(federation, model, batch=8)
    rows = dict(zip(GRAPH.peers, learner.start(GRAPH.peers), strict=True))
    pull, spread = 0.6, 0.3
    for round, state in enumerate(play(MultiTask(pull, spread), learner, GRAPH, rounds=4)[1:]):
        after = {}
        for peer in GRAPH.peers:
            near = GRAPH.neighbours(peer)
            squares = np.array([float((rows[peer] - rows[other]).square().sum()) for other in near])
            costs = squares / squares.mean() if squares.any() else squares
            weights = nearest(costs, spread)
            kin = sum(weight * rows[other] for weight, other in zip(weights, near, strict=True))
            after[peer] = clients.fit(peer, rows[peer], round=round, pull=pull, towards=kin)
        rows = after
        assert (state.rows - torch.stack(list(rows.values()))).abs().max() < 1e-10


def test_without_a_pull_everybody_learns_alone():
    learner, _ = classifier(wine(GRAPH.peers), batch=8)
    rows = play(MultiTask(pull=0.0), learner, GRAPH, rounds=3)[-1].rows
    expected = score_alone(learner, GRAPH.peers, rounds=3)
    assert torch.equal(learner.evaluate(rows, peers=GRAPH.peers)["loss"], expected["loss"])


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), min_size=1, max_size=4), st.floats(0.01, 100))
def test_relations_are_the_projection_onto_the_simplex_listener_by_listener(squares, spread):
    listener = torch.tensor([index for index, own in enumerate(squares) for _ in own])
    flat = torch.tensor([value for own in squares for value in own], dtype=torch.float64)
    found = relations(flat, listener, count=len(squares), spread=spread)
    for index, own in enumerate(squares):
        costs = np.array(own) / max(np.mean(own), np.finfo(float).tiny)
        mine = found[listener == index].numpy()
        assert mine.sum() == pytest.approx(1)
        assert mine == pytest.approx(nearest(costs, spread), abs=1e-9)


def test_a_wide_spread_makes_all_neighbours_alike_and_a_narrow_one_picks_the_nearest():
    squares, listener = torch.tensor([1.0, 2.0, 9.0]), torch.zeros(3, dtype=torch.int64)
    assert torch.allclose(relations(squares, listener, count=1, spread=1e4), torch.full((3,), 1 / 3), atol=1e-4)
    assert torch.equal(relations(squares, listener, count=1, spread=1e-3), torch.tensor([1.0, 0.0, 0.0]))


def test_peers_of_two_kinds_find_each_other():
    """Half of the peers have their classes renamed; on the complete graph relations stay within a half."""
    complete = topology.complete(8)
    federation = wine(complete.peers, split="iid")
    targets = federation.dataset.targets
    for peer in complete.peers[4:]:
        targets[federation.train[peer]] = (targets[federation.train[peer]] + 1) % 3
    learner, _ = classifier(federation, rate=RATE)
    rows = play(MultiTask(pull=1.0, spread=0.2), learner, complete, rounds=15)[-1].rows
    squares = torch.cdist(rows, rows).square()
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j]
    listener = torch.tensor([i for i, _ in pairs])
    weights = relations(torch.stack([squares[pair] for pair in pairs]), listener, count=8, spread=0.2)
    alike = torch.tensor([(i < 4) == (j < 4) for i, j in pairs])
    assert weights[alike].sum() / weights.sum() > 0.95
