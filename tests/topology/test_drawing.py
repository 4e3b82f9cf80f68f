"""Places of peers in a drawing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl import topology as graphs
from p2pfl.topology.networkx_graphs import positions


@pytest.mark.parametrize("graph", [graphs.ring(7), graphs.complete(5), graphs.circulant(9, degree=4)], ids=repr)
def test_circulants_are_circles_in_order(graph):
    found = positions(graph)
    for place, peer in enumerate(graph.peers):
        angle = 2 * math.pi * place / len(graph.peers)
        assert found[peer] == pytest.approx((math.sin(angle), -math.cos(angle)), abs=1e-4)


def test_a_cycle_whose_names_are_not_in_order_has_no_crossing():
    cycle = graphs.Topology(tuple("abcdef"), (("a", "d"), ("d", "b"), ("b", "f"), ("f", "c"), ("c", "e"), ("e", "a")))
    found = positions(cycle)
    sides = [math.dist(found[a], found[b]) for a, b in cycle.edges]
    assert sides == pytest.approx([1.0] * 6, abs=1e-3)


@pytest.mark.slow
@given(st.sampled_from([graphs.star(9), graphs.tree(15), graphs.grid(4, 5), graphs.path(3), graphs.star(80)]))
def test_every_peer_has_a_place_of_its_own_inside_of_the_square(graph):
    found = positions(graph)
    assert found.keys() == {*graph.peers}
    assert len({*found.values()}) == len(found)
    assert all(-1 <= value <= 1 for place in found.values() for value in place)
    assert positions(graph) == found


def test_one_peer_has_a_place():
    assert positions(graphs.Topology(("ada",), ())) == {"ada": (0.0, -1.0)}
