"""The tree along which totals travel: breadth first, from the centre, the same at every peer."""

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.errors import TopologyError
from p2pfl.topology import Topology, centre, complete, cut, exponential, grid, path, ring, spanning, star


@given(connected())
def test_the_tree_spans_all_participants_by_shortest_paths_from_a_peer_of_the_centre(graph):
    tree = spanning(graph, among=graph.peers)
    drawn = graph.to_graph()
    assert tree.peers == graph.peers == tree.subtree(tree.root)
    assert tree.root == min(nx.center(drawn))
    assert tree.depth == nx.radius(drawn)
    for peer, distance in nx.single_source_shortest_path_length(drawn, tree.root).items():
        assert tree.height(peer) == distance
        assert {*tree.neighbours(peer)} <= {*graph.neighbours(peer)}
        assert all(tree.parent(child) == peer for child in tree.children(peer))


@given(connected(), st.integers(0, 40))
def test_the_turn_takes_one_central_peer_after_the_other(graph, turn):
    middle = centre(graph, among=graph.peers)
    assert list(middle) == sorted(nx.center(graph.to_graph()))
    assert spanning(graph, among=graph.peers, turn=turn).root == middle[turn % len(middle)]


@given(connected(least=2), st.data())
def test_a_tree_of_some_participants_leads_through_them_alone_or_is_refused(graph, data):
    among = data.draw(st.sets(st.sampled_from(graph.peers), min_size=1))
    if nx.is_connected(graph.to_graph().subgraph(among)):
        assert {*spanning(graph, among=among).peers} == among
    else:
        with pytest.raises(TopologyError, match="cannot reach the other participants"):
            spanning(graph, among=among)


def test_equally_near_parents_are_taken_by_name():
    assert spanning(grid(2, 3), among=grid(2, 3).peers).parents == {
        "peer0": "peer1",
        "peer2": "peer1",
        "peer3": "peer0",
        "peer4": "peer1",
        "peer5": "peer2",
    }


@pytest.mark.parametrize(
    ("graph", "depth"), [(ring(16), 8), (ring(64), 32), (complete(64), 1), (star(9), 1), (path(9), 4)]
)
def test_depths_of_well_known_graphs(graph, depth):
    assert spanning(graph, among=graph.peers).depth == depth


def test_a_directed_graph_an_empty_set_and_a_stranger_are_refused_with_what_to_do():
    with pytest.raises(TopologyError, match="the topology is directed; choose an undirected one"):
        spanning(exponential(8), among=exponential(8).peers)
    with pytest.raises(TopologyError, match="the participant set is empty; name a peer"):
        spanning(ring(3), among=[])
    with pytest.raises(TopologyError, match="eve are not in the topology"):
        spanning(ring(3), among=["peer0", "eve"])


def test_a_total_of_one_peer_has_a_tree_without_edges():
    tree = spanning(Topology(("ada",), ()), among=["ada"])
    assert (tree.root, tree.depth, tree.neighbours("ada")) == ("ada", 0, ())


@given(connected(least=2, most=9), st.integers(0, 4))
def test_a_cut_is_named_exactly_where_the_vertex_connectivity_is_below_the_bound(graph, least):
    found = cut(graph, among=graph.peers, least=least)
    drawn = graph.to_graph()
    whole = graph.peers and len(graph.edges) * 2 == len(graph.peers) * (len(graph.peers) - 1)
    assert (found is not None) == (not whole and nx.node_connectivity(drawn) < least)
    if found is not None:
        drawn.remove_nodes_from(found)
        assert len(found) < least
        assert not nx.is_connected(drawn)


def test_participants_that_are_not_connected_at_all_are_cut_by_nobody():
    assert cut(path(4), among=["peer0", "peer3"], least=1) == ()
