"""Whom a peer hears as far as it knows who is there."""

import pytest

from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.topology import healing, metropolis, ring


def edges(me, *, kind="ring", peers=6):
    graph = healing(kind, peers=peers, seed=0)
    return Edges(me, graph.whole, graph.weights(graph.whole), healing=graph)


def but(*gone, peers=6):
    return frozenset(f"peer{number}" for number in range(peers)) - {*gone}


def test_a_planned_graph_stays_whoever_is_there():
    graph = ring(4)
    planned = Edges("peer0", graph, [metropolis(graph)])
    assert not planned.see({"peer0", "peer2"})
    assert planned.neighbours == {"peer1", "peer3"}


def test_who_is_next_takes_the_place_of_who_is_missing_and_gives_it_back():
    found = edges("peer0")
    assert not found.see(but())
    assert found.see(but("peer1", "peer2"))
    assert not found.see(but("peer1", "peer2"))
    assert found.neighbours == {"peer3", "peer5"}
    assert found.row(0) == pytest.approx({"peer0": 1 / 3, "peer3": 1 / 3, "peer5": 1 / 3})
    assert set(found.turns[0]) == but("peer1", "peer2")
    assert found.see(but())
    assert found.neighbours == {"peer1", "peer5"}


def test_a_peer_that_is_alone_keeps_its_row():
    found = edges("peer0")
    found.see({"peer0"})
    assert found.row(0) == {"peer0": 1.0}
    assert found.neighbours == frozenset()


def test_phases_are_as_many_as_planned():
    found = edges("peer0", kind="one_peer_exponential", peers=8)
    found.see({"peer0", "peer3", "peer6"})
    assert found.period == 3
    assert [found.receivers_in(phase) for phase in range(3)] == [("peer3",), ("peer6",), ("peer3",)]
