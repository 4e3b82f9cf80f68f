"""Effective neighbours, rates of learning, and what one exchange leaves."""

import math
import re

import numpy as np
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Topology

N = 32
NAMES = graphs.ring(N).peers


def weights_of(topology):
    return [graphs.natural(topology.at(phase)) for phase in range(topology.period)]


def two_cliques():
    halves = [(NAMES[a], NAMES[b]) for start in (0, 16) for a in range(start, start + 16) for b in range(start, a)]
    return Topology(NAMES, (*halves, (NAMES[0], NAMES[16])))


DECAYS = (0.5, 0.9, 0.95, 0.99, 0.999)
PUBLISHED = {  # Vogels et al. 2022: n_W at these decays
    "solo": (Topology(NAMES, ()), (1, 1, 1, 1, 1)),
    "ring": (graphs.ring(N), (3.72, 6.632, 8.781, 17.076, 28.895)),
    "torus": (graphs.torus(4, 8), (7.116, 15.739, 20.502, 28.541, 31.609)),
    "hypercube": (graphs.hypercube(5), (8.897, 19.636, 24.170, 30.009, 31.788)),
    "one-peer": (graphs.one_peer_exponential(N), (2.994, 9.286, 14.155, 25.429, 31.190)),
    "two cliques": (two_cliques(), (16.183, 16.991, 17.873, 22.385, 29.906)),
    "complete": (graphs.complete(N), (32, 32, 32, 32, 32)),
}


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


# Exact: published and closed forms.


@pytest.mark.parametrize("name", PUBLISHED)
def test_effective_neighbours_are_those_published(name):
    topology, published = PUBLISHED[name]
    found = [graphs.effective_neighbours(weights_of(topology), decay=decay) for decay in DECAYS]
    assert found == pytest.approx(published, abs=1e-3)  # half of that but for the torus: see the next test


def test_effective_neighbours_of_a_torus_follow_from_its_eigenvalues():
    squares = [
        ((1 + 2 * math.cos(2 * math.pi * a / 4) + 2 * math.cos(2 * math.pi * b / 8)) / 5) ** 2
        for a in range(4)
        for b in range(8)
    ]
    for decay in DECAYS:
        variance = sum(each / (1 - decay * each) for each in squares) / N
        found = graphs.effective_neighbours(weights_of(graphs.torus(4, 8)), decay=decay)
        assert found == pytest.approx(1 / ((1 - decay) * variance), rel=1e-12)


def test_an_exchange_leaves_nothing_of_what_all_share_and_everything_of_what_nobody_does():
    assert graphs.remainder(weights_of(graphs.complete(7))) == pytest.approx(0, abs=1e-15)
    assert graphs.remainder(weights_of(Topology(NAMES, ()))) == pytest.approx(1)
    assert graphs.remainder(weights_of(graphs.ring(1))) == 0
    assert graphs.remainder(weights_of(graphs.ring(9))) == pytest.approx((9 / 3 - 1) / 8)


# Invariants.


@holds_for(st.integers(2, 12), st.floats(0, 0.999), st.integers(0, 50))
def test_effective_neighbours_lie_between_one_and_all(n, decay, seed):
    probability = 1.0 if n < 5 else 0.6
    weights = weights_of(graphs.erdos_renyi(n, probability=probability, seed=seed))
    assert 1 - 1e-9 <= graphs.effective_neighbours(weights, decay=decay) <= n * (1 + 1e-9)


# Oracles.


@pytest.mark.sampled(fast=3)
@pytest.mark.parametrize(
    "topology",
    [
        *(graphs.star(7), graphs.exponential(6), graphs.base(7, degree=2)),
        *(graphs.epidemic_local(8, degree=2, period=3, seed=1), graphs.nested(8, levels=[2, 4])),
    ],
)
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.97])
def test_variances_are_the_sum_over_all_former_exchanges(topology, decay):
    matrices = [each.matrix.toarray() for each in weights_of(topology)]
    period, total = len(matrices), 0.0
    for last in range(period):
        product = np.eye(len(matrices[0]))
        for back in range(2000):
            product = product @ matrices[(last - back) % period]
            total += decay**back * (product**2).sum()
    mean = total / period / len(matrices[0])
    found = graphs.effective_neighbours(weights_of(topology), decay=decay)
    assert found == pytest.approx(1 / ((1 - decay) * mean), rel=1e-9)


def test_a_constant_schedule_is_its_one_graph():
    weights = weights_of(graphs.ring(9))
    for decay in DECAYS:
        assert graphs.effective_neighbours(weights * 3, decay=decay) == pytest.approx(
            graphs.effective_neighbours(weights, decay=decay), rel=1e-9
        )


def test_a_random_walk_on_the_ring_varies_as_much_as_it_should():
    matrix, rng = graphs.metropolis(graphs.ring(N)).matrix.toarray(), draw(3, "walk")
    rows, squares = np.zeros((N, 200)), []
    for step in range(400):
        rows = matrix @ (math.sqrt(0.9) * rows + rng.standard_normal(rows.shape))
        if step >= 100:
            squares.append((rows**2).mean())
    assert 10 / np.mean(squares) == pytest.approx(6.632, rel=0.01)


# What is refused, and how.


def test_decays_and_sums_out_of_range_are_refused():
    ring = weights_of(graphs.ring(4))
    uneven = Topology(("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")), directed=True)
    for decay in (-0.1, 1.0, math.nan):
        with refuses(f"the decay must be at least 0 and below 1, but it is {decay}; change it"):
            graphs.effective_neighbours(ring, decay=decay)
    with refuses("the rows of the weights do not sum to one; use metropolis weights"):
        graphs.effective_neighbours([graphs.push(uneven)], decay=0.5)
