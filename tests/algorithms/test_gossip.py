import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stacks import circulant, mixed, stack

from p2pfl import topology
from p2pfl.algorithms import Gossip, maximum
from p2pfl.core.neighbourhood import run_without_loop

GRAPHS = {
    "ring": topology.ring(8),
    "star": topology.star(8),
    "small world": topology.small_world(8, degree=4, rewire=0.3, seed=1),
    "directed": topology.exponential(8),
}


def eye(n):
    """Rows whose mixture is the matrix that mixed them."""
    return torch.eye(n, dtype=torch.float64)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_plain_gossip_is_a_power_of_the_weights(graph, steps):
    W = topology.metropolis(graph).matrix.toarray()
    assert np.allclose(mixed(Gossip(steps), graph, eye(8)), np.linalg.matrix_power(W, steps), rtol=0, atol=1e-15)


def test_a_schedule_is_mixed_by_one_matrix_after_the_other():
    schedule = topology.one_peer_exponential(8)
    assert torch.equal(mixed(Gossip(3), schedule, eye(8)), torch.full((8, 8), 1 / 8, dtype=torch.float64))


@pytest.mark.parametrize("graph", [topology.ring(8), topology.ring(25)], ids=["8", "25"])
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_chebyshev_contracts_on_a_ring_as_its_polynomial_does(graph, steps):
    n = len(graph.peers)
    rho = topology.contraction([topology.metropolis(graph)])
    matrix = mixed(Gossip(steps, rho), graph, eye(n)).numpy()
    promised = 1 / math.cosh(steps * math.acosh(1 / rho))  # 1 / T_k(1 / rho)
    assert np.linalg.norm(matrix - 1 / n, 2) == pytest.approx(promised, rel=1e-9)
    assert np.allclose(matrix.sum(0), 1, rtol=0, atol=1e-12)
    assert np.allclose(matrix.sum(1), 1, rtol=0, atol=1e-12)


def test_chebyshev_needs_far_fewer_steps_than_plain_gossip():
    graph, tolerance = topology.ring(32), 1e-3
    weights = [topology.metropolis(graph)]
    rho = topology.contraction(weights)
    few, many = topology.chebyshev_steps(rho, tolerance=tolerance), topology.steps(weights, tolerance=tolerance)
    assert few < many / 8

    def left(steps, rho):
        return np.linalg.norm(mixed(Gossip(steps, rho), graph, eye(32)).numpy() - 1 / 32, 2)

    assert left(few, rho) <= tolerance < left(few - 1, rho)
    assert left(many, None) <= tolerance < left(few, None)


connected = st.builds(
    topology.erdos_renyi, st.integers(3, 9), probability=st.floats(0.35, 1.0), seed=st.integers(0, 2**32)
)
directed = st.integers(3, 9).flatmap(
    lambda n: st.sets(st.integers(2, n - 1)).map(lambda hops: circulant(n, {1, *hops}))
)


@given(connected | directed, st.integers(0, 2**32), st.sampled_from([None, 0.9]))
def test_gossip_keeps_the_mean_and_a_common_row(graph, seed, rho):
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(graph.peers), 3)))
    gossip = Gossip(4, rho)
    after = mixed(gossip, graph, rows)
    assert torch.allclose(after.mean(0), rows.mean(0), rtol=0, atol=1e-12)
    common = rows[:1].expand_as(rows).contiguous()
    assert torch.allclose(mixed(gossip, graph, common), common, rtol=0, atol=1e-12)


@given(connected | directed)
def test_the_largest_value_reaches_everybody_in_as_many_exchanges_as_the_diameter(graph):
    n, steps = len(graph.peers), topology.diameter(graph)

    def reached(holder, steps):
        values = torch.zeros(n, 1, dtype=torch.float64)
        values[holder] = 1.0
        return bool(run_without_loop(maximum(stack(graph), values, steps=steps)).eq(1.0).all())

    assert all(reached(holder, steps) for holder in range(n))
    assert not all(reached(holder, steps - 1) for holder in range(n))


@given(st.lists(st.floats(allow_nan=False), min_size=6, max_size=6))
def test_the_maximum_is_one_of_the_values_and_the_same_for_all(numbers):
    values = torch.tensor(numbers, dtype=torch.float64).unsqueeze(-1)
    found = run_without_loop(maximum(stack(topology.ring(6)), values, steps=3))
    assert torch.equal(found, values.max().expand(6, 1))
