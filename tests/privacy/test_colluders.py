import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covers import cover_of, leakage, worst_colluders
from effort import MANY
from p2pfl import topology as graphs
from p2pfl.core.errors import InputError
from p2pfl.privacy.accounting import colluders
from p2pfl.privacy.accounting.colluders import find_parted_peers
from p2pfl.topology import Topology


@st.composite
def covered(draw, *, most=8):
    """Any graph of at least two peers, with noise of every peer and a mask of every edge."""
    n = draw(st.integers(2, most))
    peers = tuple(f"p{row}" for row in range(n))
    pairs = [(peers[a], peers[b]) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    noise = {peer: draw(st.floats(0.5, 5)) for peer in peers}
    mask = {edge: draw(st.floats(0.1, 50)) for edge in edges}
    return Topology(peers, tuple(edges)), noise, mask


def brute_force(graph, *, count, **settings):
    return max(
        max(leakage(graph, colluders=each, **settings).values()) for each in itertools.combinations(graph.peers, count)
    )


@pytest.mark.slow
@given(cover=covered(), data=st.data())
def test_the_worst_set_is_the_one_that_trying_all_finds(cover, data):
    graph, noise, mask = cover
    count = data.draw(st.integers(0, len(graph.peers) - 1))
    worst, leak, how = worst_colluders(graph, noise=noise, mask=mask, count=count)
    assert how in {"exact", "enumerated"}
    assert len(worst) == count
    assert leak == pytest.approx(brute_force(graph, noise=noise, mask=mask, count=count), rel=1e-9)
    assert leak == max(leakage(graph, noise=noise, mask=mask, colluders=worst).values())


@given(cover=covered(), data=st.data())
def test_removing_colluders_by_a_downdate_leaves_the_leaks_of_their_removal(cover, data):
    graph, noise, mask = cover
    rows = data.draw(st.sets(st.sampled_from(range(len(graph.peers))), min_size=1, max_size=len(graph.peers) - 1))
    rows = tuple(sorted(rows))
    cover = cover_of(graph, noise=noise, mask=mask)
    ranking = colluders._Ranking.of(cover)
    kept = np.setdiff1d(np.arange(len(graph.peers)), rows)
    expected = cover.leaks(kept)
    assert ranking.worst(rows) == pytest.approx(expected.max(), rel=1e-6)


@pytest.mark.sampled(fast=0, all=6)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("mask", [0.1, 5.0, 300.0])
@pytest.mark.parametrize(
    "graph",
    [
        graphs.random_regular(24, degree=4, seed=1),
        graphs.torus(4, 6),
        graphs.small_world(24, degree=6, rewire=0.4, seed=3),
    ],
    ids=["regular", "torus", "small world"],
)
def test_the_search_finds_what_enumeration_finds_on_graphs_small_enough_for_both(graph, count, mask):
    everything = worst_colluders(graph, noise=1.0, mask=mask, count=count)
    searched = worst_colluders(graph, noise=1.0, mask=mask, count=count, limit=math.comb(24, count) // 2)
    assert (everything[2], searched[2]) == ("enumerated", "searched")
    assert 0.99 * everything[1] <= searched[1] <= everything[1] * (1 + 1e-9)


@pytest.mark.slow
def test_downdates_and_inversions_enumerate_the_same(monkeypatch):
    graph = graphs.random_regular(20, degree=4, seed=2)
    plain = worst_colluders(graph, noise=1.0, mask=8.0, count=2)
    monkeypatch.setattr(colluders, "_MAX_VARIANCE_RATIO", 1.0)  # every downdate is refused as too steep
    anew = worst_colluders(graph, noise=1.0, mask=8.0, count=2)
    assert plain == anew


@pytest.mark.slow
def test_masks_too_large_for_a_downdate_are_still_computed_for_the_set_that_is_returned():
    graph = graphs.random_regular(300, degree=4, seed=1)
    worst, leak, how = worst_colluders(graph, noise=1.0, mask=1e6, count=2, limit=500)
    assert how == "searched"
    assert leak == max(leakage(graph, noise=1.0, mask=1e6, colluders=worst).values())
    assert leak >= 1 / 298


@pytest.mark.slow
def test_the_neighbours_of_a_peer_are_proven_to_be_its_worst_colluders():
    graph = graphs.ring(500)
    worst, leak, how = worst_colluders(graph, noise=0.5, mask=10.0, count=5)
    assert (len(worst), leak, how) == (5, 4.0, "exact")
    assert any(set(graph.neighbours(peer)) <= worst for peer in graph.peers if peer not in worst)


def test_the_hub_of_a_star_is_its_worst_colluder():
    worst, leak, how = worst_colluders(graphs.star(30), noise=1.0, mask=10.0, count=1)
    assert (worst, leak, how) == ({"peer00"}, 1.0, "exact")


def test_without_private_noise_all_colluders_see_everything():
    assert worst_colluders(graphs.ring(6), noise=0.0, mask=2.0, count=1)[1:] == (math.inf, "exact")


def test_in_a_complete_graph_all_colluders_are_alike():
    worst, leak, how = worst_colluders(graphs.complete(50), noise=1.0, mask=2.0, count=3)
    assert (len(worst), how) == (3, "exact")
    assert leak == pytest.approx(1 / 47 + (1 - 1 / 47) / (1 + 47 * 4))


@pytest.mark.nightly
def test_a_dense_graph_is_searched_within_the_same_time():
    graph = graphs.erdos_renyi(200, probability=0.5, seed=1)
    _, leak, how = worst_colluders(graph, noise=1.0, mask=2.0, count=3)
    assert how == "searched"
    assert 1 / 197 < leak < 2 / 197


@pytest.mark.slow
def test_a_bridge_is_found_by_the_greedy_search():
    """Two cliques that one peer joins: it alone halves everybody's crowd."""
    left, right = [f"a{i:02}" for i in range(30)], [f"b{i:02}" for i in range(30)]
    edges = [pair for side in (left, right) for pair in itertools.combinations(side, 2)]
    edges += [("joint", peer) for peer in (*left[:20], *right[:20])]
    graph = Topology((*left, *right, "joint"), tuple(edges))
    worst, leak, _ = worst_colluders(graph, noise=1.0, mask=50.0, count=2, limit=200)
    assert "joint" in worst
    assert leak == pytest.approx(1 / 29, rel=1e-3)


@pytest.mark.slow
@given(cover=covered(most=7))
def test_more_colluders_are_never_better(cover):
    graph, noise, mask = cover
    leaks = [worst_colluders(graph, noise=noise, mask=mask, count=count)[1] for count in range(len(graph.peers))]
    assert all(few <= more * (1 + 1e-9) for few, more in itertools.pairwise(leaks))
    assert leaks[-1] == pytest.approx(1 / min(noise.values()) ** 2)


@pytest.mark.slow
def test_a_search_gives_the_same_answer_twice():
    graph = graphs.random_regular(60, degree=6, seed=1)
    settings = {"noise": 1.0, "mask": 3.0, "count": 4, "limit": 300}
    assert worst_colluders(graph, **settings) == worst_colluders(graph, **settings)


@pytest.mark.parametrize("count", [-1, 4, 7])
def test_somebody_must_be_honest(count):
    with pytest.raises(InputError, match=f"4 peers cannot have {count} colluders; use 0 to 3, as one must be honest"):
        worst_colluders(graphs.ring(4), noise=1.0, mask=1.0, count=count)


@pytest.mark.slow
@given(covered(most=7), st.data())
@settings(MANY)
def test_who_can_be_parted_from_all_others_is_left_among_fewer_than_three_by_some_colluders(cover, data):
    graph = cover[0]
    count = data.draw(st.integers(0, len(graph.peers) - 1))
    whole = nx.Graph(graph.edges)
    whole.add_nodes_from(graph.peers)
    few = [
        part
        for some in itertools.combinations(graph.peers, count)
        for part in nx.connected_components(whole.subgraph(set(graph.peers) - set(some)))
        if len(part) < 3
    ]
    found = find_parted_peers(graph, colluders=count)
    assert set(found) in few if few else not found
