"""Distances in graphs, and when a run computes them."""

import networkx as nx
import pytest

from p2pfl import topology
from p2pfl.core.errors import TopologyError
from p2pfl.experiment import plan, read
from p2pfl.topology import connectivity


@pytest.mark.parametrize("graph", [topology.ring(7), topology.path(9), topology.star(5), topology.hypercube(4)])
def test_numbers_flood_a_fixed_graph_in_as_many_steps_as_networkx_says(graph):
    theirs = nx.Graph(graph.edges)
    assert topology.flood_steps(graph) == topology.diameter(graph) == nx.diameter(theirs)


def test_numbers_flood_a_schedule_from_its_worst_phase():
    peers = ("a", "b", "c")
    schedule = topology.Schedule((topology.Topology(peers, (("a", "b"),)), topology.Topology(peers, (("b", "c"),))))
    assert topology.flood_steps(schedule) == 3  # from the first phase, c's number reaches a in the third step


def test_a_graph_in_two_parts_is_refused_and_not_flooded_forever():
    with pytest.raises(TopologyError, match="2 parts"):
        topology.flood_steps(topology.Schedule((topology.Topology(("a", "b"), ()),)))


def test_a_simulation_does_not_compute_distances_that_it_does_not_need(monkeypatch):
    def refused(_):
        raise AssertionError("the diameter takes time that grows with the square of the number of peers")

    monkeypatch.setattr(connectivity, "diameter", refused)
    planned = plan(read({"data": {"name": "wine"}, "topology": {"peers": 5}}))
    with pytest.raises(AssertionError, match="square"):
        _ = planned.flood_steps
