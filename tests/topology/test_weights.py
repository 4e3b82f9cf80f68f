"""Weights that come with edges, and sums that are pushed."""

import math
import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Topology, spectrum

UNEVEN = Topology(tuple("abc"), (("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")), directed=True)


@st.composite
def directed_graphs(draw):
    n = draw(st.integers(2, 8))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    arcs = {(i, (i + 1) % n) for i in range(n)} | draw(st.sets(pairs, max_size=2 * n))
    return Topology(tuple("abcdefgh"[:n]), tuple(("abcdefgh"[a], "abcdefgh"[b]) for a, b in arcs), directed=True)


def dense(weights):
    return weights.matrix.toarray()


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


# Exact.


def test_a_sender_splits_its_row_evenly_over_itself_and_those_who_hear_it():
    chain = Topology(tuple("abc"), (("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")), directed=True)
    assert dense(graphs.push(chain)).tolist() == [[1 / 3, 1 / 2, 1 / 2], [1 / 3, 1 / 2, 0], [1 / 3, 0, 1 / 2]]


def test_what_is_missing_to_one_is_the_listeners_own():
    chain = Topology(tuple("abc"), (("b", "a"), ("b", "c")), weights=(0.25, 0.5))
    assert dense(graphs.edge_weights(chain)).tolist() == [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    one_way = Topology(tuple("abc"), (("b", "a"), ("c", "a")), directed=True, weights=(0.25, 0.5))
    assert dense(graphs.edge_weights(one_way)).tolist() == [[0.25, 0.25, 0.5], [0, 1, 0], [0, 0, 1]]


# Neutral: what must change nothing.


def test_balanced_directed_graphs_are_pushed_with_their_metropolis_weights():
    for topology in (graphs.exponential(9), graphs.one_peer_exponential(9).at(1)):
        np.testing.assert_allclose(dense(graphs.push(topology)), dense(graphs.metropolis(topology)), atol=1e-16)


def test_graphs_without_weights_are_mixed_as_before():
    ring = graphs.ring(5)
    assert ring.weights == ()
    assert (dense(graphs.natural(ring)) == dense(graphs.metropolis(ring))).all()
    assert (dense(graphs.natural(Topology(ring.peers, ()))) == np.eye(5)).all()


@holds_for(st.randoms(use_true_random=False))
def test_weights_stay_with_their_edges(random):
    topology = graphs.base(7, degree=2).at(2)
    pairs = list(zip(topology.edges, topology.weights, strict=True))
    random.shuffle(pairs)
    turned = [(random.choice([edge, edge[::-1]]), weight) for edge, weight in [*pairs, *pairs[:2]]]
    edges, weights = zip(*turned, strict=True)
    again = Topology(topology.peers, edges, weights=weights)
    assert again == topology
    assert hash(again) == hash(topology)
    names = tuple("gfedcba")
    renamed = topology.named(names)
    back = renamed.named(tuple(sorted(topology.peers, reverse=True)))
    assert back == topology
    assert topology.among(topology.peers) == topology
    assert topology != Topology(topology.peers, topology.edges)


def test_what_an_absent_peer_would_have_given_is_the_listeners_own():
    left = Topology(tuple("abc"), (("a", "b"), ("b", "c")), weights=(0.25, 0.5)).among("ab")
    assert (left.edges, left.weights) == ((("a", "b"),), (0.25,))
    assert dense(graphs.edge_weights(left))[1].tolist() == [0.25, 0.75, 0]


# Invariants.


@holds_for(directed_graphs())
def test_pushed_sums_stay_and_their_quotients_find_the_mean(topology):
    weights = graphs.push(topology)
    matrix, n = dense(weights), len(topology.peers)
    assert weights.keeps_mean
    assert (matrix.diagonal() > 0).all()
    np.testing.assert_array_equal((matrix > 0) & ~np.eye(n, dtype=bool), topology.adjacency.toarray() > 0)
    rows, masses = np.arange(float(n)), np.ones(n)
    for _ in range(graphs.steps([weights], tolerance=1e-9)):
        rows, masses = matrix @ rows, matrix @ masses
    assert rows.sum() == pytest.approx(n * (n - 1) / 2)
    assert rows / masses == pytest.approx([(n - 1) / 2] * n, abs=1e-8 * n)


# Oracles.


@holds_for(directed_graphs(), st.integers(1, 6))
def test_contraction_of_sums_is_that_of_their_quotients(topology, count):
    matrix, n = dense(graphs.push(topology)), len(topology.peers)
    power = np.linalg.matrix_power(matrix, count)
    quotient = power / power.sum(axis=1, keepdims=True)
    exact = np.linalg.norm(quotient - 1 / n, 2)
    assert graphs.contraction([graphs.push(topology)] * count) == pytest.approx(exact, abs=1e-12)


@holds_for(directed_graphs(), st.integers(1, 6))
def test_contraction_of_weights_that_move_the_mean_is_the_distance_from_where_it_is(topology, count):
    heard = np.diff(topology.adjacency.indptr)
    number = {peer: i for i, peer in enumerate(topology.peers)}
    shares = tuple(1 / (1 + heard[number[listener]]) for _, listener in topology.edges)
    weights = graphs.edge_weights(Topology(topology.peers, topology.edges, directed=True, weights=shares))
    assume(not weights.keeps_mean)
    power = np.linalg.matrix_power(dense(weights), count)
    exact = np.linalg.norm(power - power.mean(axis=0), 2)
    assert weights.keeps_consensus
    assert graphs.contraction([weights] * count) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("kind", ["push", "epidemic"])
def test_lanczos_agrees_with_the_closed_solver_on_weights_that_are_not_doubly_stochastic(kind, monkeypatch):
    schedule = graphs.epidemic_local(90, degree=3, period=3, seed=4)
    rule = graphs.push if kind == "push" else graphs.natural
    bare = [
        Topology(each.peers, (*each.edges, *graphs.exponential(90).edges), directed=True)
        for each in schedule.topologies
    ]
    weights = [rule(each) for each in (bare if kind == "push" else schedule.topologies)]
    exact = graphs.contraction(weights)
    monkeypatch.setattr(spectrum, "_DENSE", 80)
    assert graphs.contraction(weights) == pytest.approx(exact, rel=1e-9)


# What is refused, and how.


@pytest.mark.parametrize(
    ("edges", "weights", "sentence"),
    [
        ((("a", "b"), ("b", "c")), (0.5,), "the weights (1) do not match the edges (2); give one weight for each edge"),
        (
            (("a", "b"),),
            (0.0,),
            'the weight from "a" to "b" is 0.0, not above 0 and at most 1; change it or remove the edge',
        ),
        (
            (("a", "b"),),
            (math.nan,),
            'the weight from "a" to "b" is nan, not above 0 and at most 1; change it or remove the edge',
        ),
        (
            (("a", "b"), ("b", "a")),
            (0.5, 0.25),
            'the edge from "a" to "b" has two weights, 0.5 and 0.25; keep one of them',
        ),
        (
            (("a", "b"), ("b", "c")),
            (0.5, 0.75),
            'the weights of the models that "b" receives sum to 1.25; scale them to sum to at most 1',
        ),
    ],
)
def test_weights_that_do_not_fit_their_edges_are_refused(edges, weights, sentence):
    with refuses(sentence):
        Topology(tuple("abc"), edges, weights=weights)


def test_edges_without_weights_have_none_to_take():
    with refuses("the 5 edges have no weights; use metropolis weights, or a graph whose edges have weights"):
        graphs.edge_weights(graphs.ring(5))
    with refuses(
        '"a" receives from 1 peers and sends to 2, but in this directed graph every peer must receive from and '
        'send to as many peers as "a" receives from (1); make the edges'
    ):
        graphs.metropolis(UNEVEN)


@pytest.mark.slow
@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("rule", [graphs.metropolis, graphs.max_degree], ids=lambda rule: rule.__name__)
def test_all_weights_of_a_complete_graph_are_equal(rule):
    uneven = [n for n in (*range(2, 66), 99, 100, 200, 500, 600) if len(set(rule(graphs.complete(n)).matrix.data)) > 1]
    assert uneven == []


def test_an_edge_of_a_complete_graph_weighs_the_same_number_as_one_of_n_peers():
    n = np.arange(2, 601)
    assert (1.0 / (1.0 + (n - 1)) == 1.0 / n).all()  # so the diagonal of no complete graph differs


def test_a_complete_graph_equals_the_graph_of_its_edges():
    for n in (1, 2, 11):
        made = graphs.complete(n)
        edges = tuple(combinations(reversed(made.peers), 2))
        by_hand = Topology(made.peers, edges)
        assert made == by_hand
        assert hash(made) == hash(by_hand)
        assert (made.adjacency != by_hand.adjacency).nnz == 0
        assert made.senders(made.peers[0]) == by_hand.senders(made.peers[0])
