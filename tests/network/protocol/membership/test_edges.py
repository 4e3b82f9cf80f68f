"""Neighbours from which a peer receives in each phase, and their weights."""

import pytest

from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.topology import metropolis, one_peer_exponential, ring


def test_neighbours_and_weights_are_those_of_the_graph():
    graph = ring(6)
    edges = Edges("peer0", graph, [metropolis(graph)])
    assert edges.neighbours == edges.senders == {"peer1", "peer5"}
    assert edges.row(0) == pytest.approx({"peer0": 1 / 3, "peer1": 1 / 3, "peer5": 1 / 3})
    assert set(edges.turns[0]) == {*graph.peers}


def test_each_phase_of_a_schedule_has_its_own_edges():
    edges = Edges("peer0", one_peer_exponential(8))
    assert edges.period == 3
    assert [edges.receivers_in(phase) for phase in range(3)] == [("peer1",), ("peer2",), ("peer4",)]
