"""Graphs that close over whoever is missing: connected whoever is left, and of one weight whatever is believed."""

import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Schedule, healing

SIZES = st.integers(1, 14)
KINDS = ("ring", "circulant", "random_regular", "exponential", "one_peer_exponential")


def refuses(sentence):
    return pytest.raises(TopologyError, match=re.escape(sentence))


@st.composite
def healers(draw, *, kinds=KINDS, fewest=1):
    kind, n = draw(st.sampled_from(kinds)), draw(st.integers(fewest, 14))
    if kind == "random_regular":
        n = max(n, 5)
    return healing(kind, peers=n, seed=draw(st.integers(0, 5)), degree=draw(st.sampled_from([2, 4])))


@st.composite
def views(draw, healer):
    """Those whom somebody believes to be there: at least one."""
    return draw(st.sets(st.sampled_from(healer.peers), min_size=1))


def dense(weights):
    return weights.matrix.toarray()


# Neutral: nobody is missing.


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize(
    ("kind", "build"),
    [
        ("ring", graphs.ring),
        ("circulant", lambda n: graphs.circulant(n, degree=4)),
        ("exponential", graphs.exponential),
        ("one_peer_exponential", graphs.one_peer_exponential),
    ],
)
def test_with_nobody_missing_it_is_the_usual_graph_of_the_usual_weights_bit_for_bit(kind, build, n):
    healer, usual = healing(kind, peers=n, seed=3), build(n)
    assert healer.whole == usual == healer.over(usual.peers)
    for phase, weights in enumerate(healer.weights(healer.whole)):
        assert (dense(weights) == dense(graphs.metropolis(usual.at(phase)))).all()


@pytest.mark.parametrize(("n", "degree"), [(5, 2), (6, 4), (16, 4), (40, 6)])
def test_random_cycles_are_a_regular_graph_where_a_hundred_draws_find_one(n, degree):
    whole = healing("random_regular", peers=n, seed=1, degree=degree).whole
    assert {len(whole.senders(peer)) for peer in whole.peers} == {degree}


def test_random_cycles_are_drawn_by_key():
    one, same, other = (healing("random_regular", peers=12, seed=seed) for seed in (1, 1, 2))
    assert one.whole == same.whole != other.whole


# Exact: who is missing is skipped.


def test_on_a_ring_the_neighbours_of_who_is_missing_become_each_others():
    ring = healing("ring", peers=8, seed=0)
    left = ring.over(set(ring.peers) - {"peer2", "peer3", "peer6"})
    assert left.edges == (
        ("peer0", "peer1"),
        ("peer0", "peer7"),
        ("peer1", "peer4"),
        ("peer4", "peer5"),
        ("peer5", "peer7"),
    )


@pytest.mark.parametrize("kind", ["circulant", "exponential", "one_peer_exponential"])
def test_over_those_who_are_there_it_is_the_same_builders_graph_of_as_many(kind):
    healer = healing(kind, peers=9, seed=0)
    there = ("peer0", "peer3", "peer4", "peer7", "peer8")
    fewer, left = healing(kind, peers=5, seed=0).whole.named(there), healer.over(there)
    assert [left.at(phase) for phase in range(left.period)] == [fewer.at(phase) for phase in range(left.period)]


def test_fewer_hops_take_turns_in_the_period_of_the_whole():
    healer = healing("one_peer_exponential", peers=9, seed=0)  # hops of 1, 2, 4 and 8
    left = healer.over(("peer1", "peer2", "peer3"))  # of 1 and 2
    assert isinstance(left, Schedule)
    assert left.period == healer.whole.period == 4
    assert [left.at(phase).receivers("peer1") for phase in range(4)] == [("peer2",), ("peer3",), ("peer2",), ("peer3",)]


# Invariant: whoever is left.


@holds_for(st.data())
def test_whoever_is_left_is_connected(data):
    healer = data.draw(healers())
    there = data.draw(views(healer))
    left = healer.over(there)
    assert set(left.peers) == there
    assert left.period == healer.whole.period
    assert nx.is_strongly_connected(left.union.to_graph().to_directed())


@holds_for(st.data())
def test_one_loss_changes_only_edges_that_reach_it_or_span_it(data):
    healer = data.draw(healers(kinds=("ring", "circulant", "random_regular"), fewest=2))
    there = data.draw(st.sets(st.sampled_from(healer.peers), min_size=2))
    gone = data.draw(st.sampled_from(sorted(there)))
    before, after = healer.over(there), healer.over(there - {gone})
    lost = {edge for edge in before.edges if gone in edge}
    degree = max(len(healer.whole.senders(peer)) for peer in healer.peers)
    assert set(before.edges) - lost <= set(after.edges)
    assert len(set(before.edges) ^ set(after.edges)) <= 3 * (degree + degree % 2) // 2


@holds_for(st.data())
def test_weights_keep_the_mean_and_what_all_have_in_common(data):
    healer = data.draw(healers())
    left = healer.over(data.draw(views(healer)))
    for phase, weights in enumerate(healer.weights(left)):
        assert weights.keeps_mean
        assert weights.keeps_consensus
        assert weights.symmetric or left.at(phase).directed
        assert (weights.matrix.diagonal() > 0).all()


@holds_for(st.data())
def test_an_edge_weighs_alike_at_both_ends_whatever_these_believe(data):
    healer = data.draw(healers())
    mine, yours = (healer.over(data.draw(views(healer))) for _ in range(2))
    for phase in range(healer.whole.period):
        a, b = mine.at(phase), yours.at(phase)
        wa, wb = healer.weights(mine)[phase], healer.weights(yours)[phase]
        for i, j in sorted(set(a.edges) & set(b.edges)):
            assert wa.row(j)[i] == wb.row(j)[i]
            assert a.directed or wa.row(j)[i] == wb.row(i)[j]


def test_weights_by_degree_would_differ_between_ends_that_believe_otherwise():
    ring = healing("ring", peers=3, seed=0)
    knows, not_yet = ring.over(("peer0", "peer1")), ring.whole
    assert graphs.metropolis(knows).row("peer0")["peer1"] == 1 / 2
    assert graphs.metropolis(not_yet).row("peer1")["peer0"] == 1 / 3
    assert ring.weights(knows)[0].row("peer0")["peer1"] == 1 / 3


@holds_for(st.data())
def test_mixing_keeps_the_sum_where_an_edge_counts_that_both_ends_believe_in(data):
    healer = data.draw(healers(kinds=("ring", "circulant", "random_regular")))
    graph = {peer: healer.over({peer, *data.draw(views(healer))}) for peer in healer.peers}
    weights = {peer: healer.weights(graph[peer])[0].row(peer) for peer in healer.peers}
    rows = dict(zip(healer.peers, np.arange(len(healer.peers)) ** 2.0, strict=True))
    mixed = {
        i: rows[i] + sum(weights[i][j] * (rows[j] - rows[i]) for j in weights[i] if j != i and i in weights[j])
        for i in healer.peers
    }
    assert sum(mixed.values()) == pytest.approx(sum(rows.values()), abs=1e-9)


def test_random_cycles_of_which_half_is_lost_still_expand():
    healer = healing("random_regular", peers=200, seed=4, degree=4)
    left = healer.over(healer.peers[::2])
    assert graphs.contraction(healer.weights(left)) < 0.95  # a ring of as many: 0.9987


# Refused.


def test_what_is_no_union_of_cycles_cannot_heal():
    with refuses(
        'a topology of kind "star" cannot heal, as it is no union of cyclic orders; use one of ring, circulant, '
        "random_regular, exponential, one_peer_exponential"
    ):
        healing("star", peers=4, seed=0)
    with refuses(
        "a random regular graph that heals is a sum of cycles and needs an even degree, but it is 3; change it by one"
    ):
        healing("random_regular", peers=8, seed=0, degree=3)
    with refuses(
        "the degree must be at least 1 and below the number of peers (4), but it is 4; change the degree "
        "(topology.degree), add peers, or use a complete graph"
    ):
        healing("random_regular", peers=4, seed=0, degree=4)
    with refuses("the whole graph has no peers named eve; correct the names"):
        healing("ring", peers=4, seed=0).over(["peer0", "eve"])


def test_weights_of_a_larger_degree_are_refused_where_somebody_hears_more():
    with refuses("a peer receives from 2 others, more than the given degree of 1; raise the degree"):
        graphs.max_degree(graphs.ring(4), degree=1)
