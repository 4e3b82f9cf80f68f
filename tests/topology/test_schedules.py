"""Graphs that take turns: finite-time averages, epidemics, clusters and trees."""

import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.draws import draw
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Schedule, Topology

BASE_LENGTHS = {  # Takezawa et al. 2023: exchanges until everybody has the mean
    1: {4: 2, 5: 5, 6: 4, 7: 5, 8: 3, 9: 7, 10: 6, 16: 4, 21: 9, 22: 8, 23: 9, 24: 6, 25: 9, 32: 5, 64: 6},
    2: {5: 3, 6: 2, 7: 4, 9: 2, 10: 4, 21: 5, 22: 6, 23: 6, 24: 4, 25: 6},
}

EPIDEMIC = [(16, 2, 0.2889, 0.3827), (32, 4, 0.1742, 0.2147), (96, 6, 0.1338, 0.1558)]
"""De Vos et al. 2023: n, s, alpha_s of EL-Oracle, beta_s of EL-Local."""


def matrices(schedule):
    return [graphs.natural(topology).matrix.toarray() for topology in schedule.topologies]


def product(schedule):
    all_of_them = np.eye(len(schedule.peers))
    for matrix in matrices(schedule):
        all_of_them = matrix @ all_of_them
    return all_of_them


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


# Exact: published and closed forms.


@pytest.mark.parametrize("t", range(7))
def test_one_peer_exponential_averages_exactly_after_one_period(t):
    n = 2**t
    assert (product(graphs.one_peer_exponential(n)) == np.full((n, n), 1 / n)).all()


def test_one_peer_exponential_reaches_any_tolerance_in_one_period():
    weights = [graphs.metropolis(topology) for topology in graphs.one_peer_exponential(16).topologies]
    assert graphs.steps(weights, tolerance=1e-9) == 4


@pytest.mark.sampled(fast=8)
@pytest.mark.parametrize(("k", "n", "length"), [(k, n, t) for k, of in BASE_LENGTHS.items() for n, t in of.items()])
def test_base_graphs_take_as_many_exchanges_as_published(k, n, length):
    schedule = graphs.base(n, degree=k)
    assert schedule.period == length
    assert abs(product(schedule) - 1 / n).max() < 1e-15
    assert max(len(topology.senders(peer)) for topology in schedule.topologies for peer in schedule.peers) <= k
    assert graphs.contraction([graphs.natural(topology) for topology in schedule.topologies]) < 1e-15


def test_a_base_graph_of_all_is_complete_and_of_powers_is_as_short_as_can_be():
    assert graphs.base(5, degree=4).union.edges == graphs.complete(5).edges
    assert [graphs.base(3**p, degree=2).period for p in range(1, 5)] == [1, 2, 3, 4]
    assert graphs.base(8, degree=3).period == 2  # 2 x 4, not 2 x 2 x 2
    assert graphs.base(1).at(0) == Topology(("peer0",), ())


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s", "oracle", "local"), EPIDEMIC)
def test_an_epidemic_exchange_leaves_what_the_paper_says(n, s, oracle, local):
    assert oracle == pytest.approx((1 - s / (n - 1)) / (s + 1), abs=5e-5)
    assert local == pytest.approx((1 - (1 - s / (n - 1)) ** n) / s - 1 / (n - 1), abs=5e-5)
    drawn = graphs.epidemic_oracle(n, degree=s, period=3, seed=1)
    left = graphs.remainder([graphs.natural(topology) for topology in drawn.topologies])
    assert left == pytest.approx(oracle, abs=5e-5)  # whatever was drawn
    drawn = graphs.epidemic_local(n, degree=s, period=300, seed=1)
    left = graphs.remainder([graphs.natural(topology) for topology in drawn.topologies])
    assert left == pytest.approx(local, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s", "oracle", "local"), EPIDEMIC[:2])
def test_epidemic_exchanges_of_drawn_rows_leave_what_the_paper_says(n, s, oracle, local):
    for build, published in ((graphs.epidemic_oracle, oracle), (graphs.epidemic_local, local)):
        rng, before, after = draw(7, "rows"), 0.0, 0.0
        for matrix in matrices(build(n, degree=s, period=300, seed=2)):
            rows = rng.standard_normal((n, 20))
            before += ((rows - rows.mean(axis=0)) ** 2).sum()
            after += ((matrix @ rows - rows.mean(axis=0)) ** 2).sum()
        assert after / before == pytest.approx(published, rel=0.02)


def test_double_binary_trees_of_eight_are_the_known_ones():
    one, other = graphs.double_binary_tree(8).topologies
    number = [(int(a[4:]), int(b[4:])) for a, b in one.edges]
    assert number == [(0, 4), (1, 2), (2, 3), (2, 4), (4, 6), (5, 6), (6, 7)]
    assert [(int(a[4:]), int(b[4:])) for a, b in other.edges] == sorted((7 - b, 7 - a) for a, b in number)


# Neutral: what must change nothing.


def test_schedules_are_the_same_for_whoever_computes_them():
    for kind in ("epidemic_oracle", "epidemic_local"):
        one, other = (graphs.build(kind, peers=10, degree=3, period=5, seed=seed) for seed in (3, 4))
        assert one == graphs.build(kind, peers=10, degree=3, period=5, seed=3) != other
        assert one.topologies == graphs.build(kind, peers=10, degree=3, period=9, seed=3).topologies[:5]
        assert len(set(one.topologies)) == 5


# Invariants.


@holds_for(st.integers(1, 70), st.integers(1, 5))
def test_a_base_graph_of_any_size_is_exact_within_its_degree(n, k):
    schedule = graphs.base(n, degree=k)
    assert abs(product(schedule) - 1 / n).max() < 2e-15
    for topology, matrix in zip(schedule.topologies, matrices(schedule), strict=True):
        assert graphs.natural(topology).keeps_mean
        assert (matrix >= 0).all()
        assert np.diff(topology.adjacency.indptr).max() <= k


@holds_for(st.integers(2, 24), st.data())
def test_epidemic_peers_push_to_as_many_others_as_asked_for(n, data):
    degree, seed = data.draw(st.integers(1, n - 1)), data.draw(st.integers(0, 99))
    for topology in graphs.epidemic_local(n, degree=degree, period=3, seed=seed).topologies:
        assert {len(topology.receivers(peer)) for peer in topology.peers} == {degree}
        weights = graphs.natural(topology)
        assert weights.keeps_consensus
        for peer in topology.peers:
            heard = topology.senders(peer)
            assert weights.row(peer) == pytest.approx(dict.fromkeys([peer, *heard], 1 / (1 + len(heard))))
    if n * degree % 2 == 0:
        for topology in graphs.epidemic_oracle(n, degree=degree, period=3, seed=seed).topologies:
            assert {len(topology.senders(peer)) for peer in topology.peers} == {degree}


@holds_for(st.integers(2, 40))
def test_nobody_is_inside_both_binary_trees(n):
    one, other = (topology.to_graph() for topology in graphs.double_binary_tree(n).topologies)
    assert nx.is_tree(one)
    assert nx.is_tree(other)
    assert max(*dict(one.degree).values(), *dict(other.degree).values()) <= 3
    assert all(min(one.degree[peer], other.degree[peer]) == 1 for peer in one)
    assert nx.diameter(one) <= 2 * n.bit_length()


@holds_for(st.integers(2, 30), st.integers(1, 4))
def test_a_tree_has_as_many_branches_as_asked_for(n, branching):
    tree = graphs.tree(n, branching=branching)
    assert nx.is_tree(tree.to_graph())
    assert max(len(tree.neighbours(peer)) for peer in tree.peers) <= branching + 1


@holds_for(st.sets(st.tuples(st.integers(0, 4), st.integers(5, 9))), st.lists(st.booleans(), min_size=1, max_size=4))
def test_a_schedule_knows_the_union_of_its_exchanges(pairs, ways):
    peers = graphs.ring(10).peers
    topology = Topology(peers, tuple((peers[a], peers[b]) for a, b in pairs))
    schedule = Schedule(tuple(Topology(peers, topology.edges, directed=way) for way in ways))
    for peer in schedule.peers:
        each = [schedule.at(exchange) for exchange in range(schedule.period)]
        assert set(schedule.senders(peer)) == {other for t in each for other in t.senders(peer)}
        assert set(schedule.receivers(peer)) == {other for t in each for other in t.receivers(peer)}
        assert schedule.neighbours(peer) == topology.neighbours(peer)


# What is refused, and how.


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "epidemic_oracle",
            {"peers": 9, "degree": 3},
            "peers times degree must be even, but it is 9 times 3; change one of them by one",
        ),
        (
            "epidemic_oracle",
            {"degree": 12},
            (
                "the degree must be at least 1 and below the number of peers (12), but it is 12; change the degree "
                "(topology.degree), add peers, or use a complete graph"
            ),
        ),
        (
            "epidemic_local",
            {"degree": 12},
            (
                "the degree must be at least 1 and below the number of peers (12), but it is 12; change the degree "
                "(topology.degree), add peers, or use a complete graph"
            ),
        ),
        (
            "epidemic_local",
            {"period": 0},
            (
                "the number of gossip steps in a period (topology.options.period) must be at least 1, but it is 0; "
                "raise it"
            ),
        ),
        ("base", {"degree": 0}, "the number of neighbours (topology.degree) must be at least 1, but it is 0; raise it"),
        (
            "tree",
            {"branching": 0},
            "the number of branches (topology.options.branching) must be at least 1, but it is 0; raise it",
        ),
        (
            "epidemic",
            {},
            '"epidemic" is not a kind of topology; use "epidemic_',
        ),
    ],
)
def test_impossible_schedules_are_refused_with_a_way_out(kind, options, sentence):
    with refuses(sentence):
        graphs.build(kind, **{"peers": 12, "seed": 0, **options})
