"""A complete graph exists without its edges, of which there are so many."""

import pickle

import numpy as np
import pytest

from p2pfl.core.errors import TopologyError
from p2pfl.topology import Topology, check_connected, complete, contraction, flood_steps, metropolis, ring, steps
from p2pfl.topology.weights import Weights, max_degree

NAMES = ("ada", "bob", "cleo", "dan")


def one_by_one(names):
    return Topology(names, tuple((a, b) for a in names for b in names if a < b))


def test_a_complete_graph_equals_the_graph_of_all_edges():
    short, long = Topology.complete(NAMES), one_by_one(NAMES)
    assert short.is_complete
    assert long.is_complete
    for peer in NAMES:
        assert short.neighbours(peer) == long.neighbours(peer) == short.senders(peer) == short.receivers(peer)
    assert np.array_equal(short.adjacency.toarray(), long.adjacency.toarray())
    assert "edges" not in short.__dict__
    assert pickle.loads(pickle.dumps(short)) == long  # noqa: S301 (made here)
    assert short == long
    assert hash(short) == hash(long)
    assert not ring(4).is_complete
    assert complete(1).edges == ()


def test_parts_of_a_complete_graph_are_complete():
    assert Topology.complete(NAMES).without(["bob"]) == one_by_one(("ada", "cleo", "dan"))
    assert Topology.complete(NAMES).named(("u", "v", "w", "x")) == one_by_one(("u", "v", "w", "x"))
    assert Topology.complete(NAMES).among(["ada", "dan"]).edges == (("ada", "dan"),)


def test_a_complete_graph_refuses_a_peer_that_it_lacks():
    with pytest.raises(TopologyError, match='peer "eve" is not one of the 4 peers'):
        Topology.complete(NAMES).neighbours("eve")


@pytest.mark.parametrize("count", [1, 2, 3, 7, 49, 300])
@pytest.mark.parametrize("weigh", [metropolis, max_degree])
def test_weights_of_a_complete_graph_are_the_average(weigh, count):
    weights = weigh(complete(count))
    assert (weights.matrix.toarray() == 1 / count).all()
    again = Weights(weights.peers, weights.matrix)
    facts = ("averages", "symmetric", "keeps_mean", "keeps_consensus")
    assert [getattr(again, fact) for fact in facts] == [getattr(weights, fact) for fact in facts] == [True] * 4


def test_planning_with_a_complete_graph_makes_no_edges():
    graph = complete(100_000)
    check_connected(graph)
    weights = metropolis(graph)
    assert steps([weights], tolerance=1e-3) == 1
    assert flood_steps(graph) == 1
    assert graph.neighbours("peer00002")[:3] == ("peer00000", "peer00001", "peer00003")
    assert not {"edges", "adjacency"} & graph.__dict__.keys()
    assert "matrix" not in weights.__dict__


def test_an_average_leaves_no_disagreement():
    assert contraction([metropolis(complete(5))]) < 1e-15


@pytest.mark.parametrize("others", [(), (ring(7),), (ring(7), ring(7))])
def test_an_average_among_gossip_steps_leaves_nothing_without_its_weights(others):
    each = [metropolis(complete(7)), *map(metropolis, others)]
    assert contraction(each) == 0
    assert "matrix" not in vars(each[0])
    product = np.linalg.multi_dot([np.eye(7), *(weights.matrix.toarray() for weights in reversed(each))])
    assert np.linalg.norm(product - 1 / 7, 2) < 1e-15
    assert (each[0].entries, metropolis(ring(7)).entries) == (49, 21)
    for weights in each:
        assert np.allclose(weights.squares, (weights.matrix.toarray() ** 2).sum(axis=1), rtol=1e-14)
