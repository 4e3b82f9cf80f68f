"""The tree along which totals travel: breadth first, from the centre, the same at every peer."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.core.errors import TopologyError
from p2pfl.topology import Schedule, Topology, complete, cut, exponential, grid, nested, path, ring, spanning, star


def heights(tree):
    """Return the number of edges from the root to each peer."""
    found, reached = {tree.root: 0}, [tree.root]
    for peer in reached:
        for child in tree.children(peer):
            found[child] = found[peer] + 1
            reached.append(child)
    return found


@given(connected())
def test_the_tree_spans_all_participants_by_shortest_paths_from_a_peer_of_the_centre(graph):
    tree = spanning(graph, among=graph.peers)
    drawn = graph.to_graph()
    assert tree.peers == graph.peers == tree.subtree(tree.root)
    assert tree.root == min(nx.center(drawn))
    assert max(heights(tree).values()) == nx.radius(drawn)
    assert heights(tree) == nx.single_source_shortest_path_length(drawn, tree.root)
    for peer, parent in tree.parents.items():
        assert parent in graph.neighbours(peer)
        assert tree.parent(peer) == parent
        assert peer in tree.children(parent)


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
    assert max(heights(spanning(graph, among=graph.peers)).values()) == depth


def test_edges_of_a_directed_graph_carry_totals_in_both_directions():
    graph = exponential(8)
    both = Topology(graph.peers, tuple({tuple(sorted(edge)) for edge in graph.edges}))
    assert spanning(graph, among=graph.peers) == spanning(both, among=graph.peers)


def test_an_empty_set_and_a_stranger_are_refused_with_what_to_do():
    with pytest.raises(TopologyError, match="the participant set is empty; name a peer"):
        spanning(ring(3), among=[])
    with pytest.raises(TopologyError, match="eve are not in the topology"):
        spanning(ring(3), among=["peer0", "eve"])


def test_a_total_of_one_peer_has_a_tree_without_edges():
    tree = spanning(Topology(("ada",), ()), among=["ada"])
    assert (tree.root, tree.peers, tree.children("ada")) == ("ada", ("ada",), ())


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


@pytest.mark.parametrize(("levels", "depth"), [([4, 5], 2), ([6, 3], 2), ([2, 3, 4], 3)])
def test_one_edge_leads_out_of_each_group_of_nested_groups(levels, depth):
    schedule = nested(math.prod(levels), levels=levels)
    tree = spanning(schedule, among=schedule.peers)
    assert max(heights(tree).values()) == depth
    places = dict(zip(sorted(schedule.peers, key=lambda peer: int(peer[4:])), np.ndindex(*levels), strict=True))
    for level in range(1, len(levels)):
        groups = {place[:level] for place in places.values()}
        crossing = [each for each in tree.parents.items() if places[each[0]][:level] != places[each[1]][:level]]
        assert len(crossing) == len(groups) - 1


@given(connected())
def test_a_schedule_of_one_graph_has_the_tree_of_that_graph(graph):
    assert spanning(Schedule((graph,)), among=graph.peers) == spanning(graph, among=graph.peers)


def test_what_peers_span_has_the_components_that_networkx_finds():
    random = np.random.default_rng(3)
    for number in range(300):
        names = tuple("abcdefghij"[: random.integers(1, 11)])
        directed = bool(number % 2)
        pairs = [(one, other) for one in names for other in names if one < other or (directed and one != other)]
        graph = Topology(names, tuple(pair for pair in pairs if random.random() < 0.2), directed=directed)
        chosen = [name for name in names if random.random() < 0.7]
        spanned = graph.to_graph().subgraph(chosen).to_undirected()
        assert graph.joined(chosen) == sorted(map(sorted, nx.connected_components(spanned)))
