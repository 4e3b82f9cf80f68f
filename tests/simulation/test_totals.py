"""Totals of simulated peers: exact, in range, and passed on by everything that wraps a neighbourhood."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.algorithms.robust import ClippedGossip, Median, robust
from p2pfl.core.errors import InputError, PrivacyError, RunError, TopologyError
from p2pfl.core.neighbourhood import Recipient, run_without_loop
from p2pfl.privacy import Settings, private
from p2pfl.privacy.accounting.sum_leakage import FactorNeighbourhood
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.total_masks import TotalMasks
from p2pfl.simulation.asynchronous import AsynchronousStackedNeighbourhood, Flight
from p2pfl.simulation.stacked import Faults, StackedNeighbourhood
from p2pfl.topology import Topology, complete, exponential, metropolis, natural, path, ring, spanning


def stacked(graph, **given):
    return StackedNeighbourhood([natural(graph)], round=0, seed=1, graph=graph, **given)


def own(values):
    """What each peer contributes."""
    return lambda peer: np.array(values[peer], np.int64)


@given(connected(), st.sampled_from([32, 64]), st.data())
def test_a_total_is_the_exact_sum_on_every_connected_graph(graph, bits, data):
    most = (2 ** (bits - 1) // len(graph.peers)) - 1
    few = st.lists(st.integers(-most, most), min_size=4, max_size=4)
    values = {peer: data.draw(few) for peer in graph.peers}
    net = stacked(graph)
    total = run_without_loop(net.total(own(values), size=4, bits=bits))
    assert total.tolist() == [sum(each) for each in zip(*values.values(), strict=True)]
    assert total.dtype == np.int64
    tree = spanning(graph, among=graph.peers)
    messages = [(peer in tree.parents) + bool(tree.children(peer)) for peer in graph.peers]
    assert max(messages) <= 2
    assert net.bytes_out.tolist() == [each * 4 * bits // 8 for each in messages]


def test_a_contribution_out_of_range_is_refused_with_who_and_what_to_do():
    values = {peer: [0] for peer in ring(4).peers} | {"peer2": [2**29]}
    with pytest.raises(PrivacyError, match=r"contribution of peer2 .* over 4 peers in 32 bits .* use fewer"):
        run_without_loop(stacked(ring(4)).total(own(values), size=1, bits=32))
    assert run_without_loop(stacked(ring(4)).total(own(values), size=1)).tolist() == [2**29]


def test_a_contribution_of_another_size_is_refused():
    with pytest.raises(InputError, match="the total is of 2 numbers"):
        run_without_loop(stacked(ring(3)).total(own({peer: [0] for peer in ring(3).peers}), size=2))


def test_edges_of_a_directed_graph_carry_a_total_in_both_directions():
    values = {peer: [2**number] for number, peer in enumerate(exponential(8).peers)}
    assert run_without_loop(stacked(exponential(8)).total(own(values), size=1)).tolist() == [255]


def test_a_peer_alone_is_a_neighbourhood_of_one():
    net = stacked(Topology(("ada",), ()))
    assert run_without_loop(net.total(own({"ada": [3, -5]}), size=2)).tolist() == [3, -5]
    assert net.bytes_out.tolist() == [0]


def test_a_total_that_masks_of_live_peers_could_not_hide_is_refused_as_they_refuse_it():
    values = {peer: [1] for peer in path(4).peers}
    masks = TotalMasks({}, graph=path(4))
    with pytest.raises(PrivacyError, match="could part the masks"):
        run_without_loop(stacked(path(4), masks=masks).total(own(values), size=1))
    masks = TotalMasks({}, graph=complete(4))
    assert run_without_loop(stacked(path(4), masks=masks).total(own(values), size=1)).tolist() == [4]


def test_without_a_graph_there_are_no_totals():
    with pytest.raises(TopologyError, match="give this neighbourhood one"):
        run_without_loop(StackedNeighbourhood([natural(ring(3))], round=0, seed=1).total(own({}), size=1))


def test_who_is_absent_is_in_no_total_and_those_present_must_be_connected():
    values = {peer: [10**number] for number, peer in enumerate(ring(6).peers)}
    faults, met = Faults(absence=0.3), set()
    for round in range(40):
        net = StackedNeighbourhood([metropolis(ring(6))], round=round, seed=1, faults=faults, graph=ring(6))
        there = faults.present(net.peers, seed=1, round=round).tolist()
        among = [peer for peer, here in zip(net.peers, there, strict=True) if here]
        if not among or len(ring(6).joined(among)) > 1:
            met.add("refused")
            with pytest.raises(TopologyError):
                run_without_loop(net.total(own(values), size=1))
        else:
            met.add("total")
            assert run_without_loop(net.total(own(values), size=1)).tolist() == [sum(values[peer][0] for peer in among)]
    assert met == {"refused", "total"}


# ---------------------------------------------------------------------- one recipient


@given(connected(), st.sampled_from([32, 64]), st.data())
def test_a_total_for_one_peer_is_the_sum_in_the_ring_of_those_who_contribute(graph, bits, data):
    root = data.draw(st.sampled_from(graph.peers))
    near = [*graph.neighbours(root), root]
    among = tuple(data.draw(st.lists(st.sampled_from(near), min_size=1, unique=True)))
    ring_of = 2**bits
    few = st.lists(st.integers(-ring_of // 2, ring_of // 2 - 1), min_size=3, max_size=3)
    values = {peer: data.draw(few) for peer in among}
    taken = []
    net = stacked(graph)
    to = Recipient(root, taken.append, among)
    result = run_without_loop(net.total(own(values), size=3, bits=bits, to=to))
    (total,) = taken
    sums = [sum(each) for each in zip(*values.values(), strict=True)]
    assert [number % ring_of for number in total.tolist()] == [number % ring_of for number in sums]
    assert len(result) == 0
    sent = [(peer in among and peer != root) * 3 * bits // 8 for peer in graph.peers]
    assert net.bytes_out.tolist() == sent


def test_a_recipient_receives_from_its_neighbours_alone():
    to = Recipient("peer0", [].append, ("peer2",))
    with pytest.raises(TopologyError, match=r'peer2 and peer0 share no edge.*set topology\.kind to "complete"'):
        run_without_loop(stacked(ring(4)).total(own({"peer2": [1]}), size=1, to=to))


# ---------------------------------------------------------------------- wrappers

VALUES = {peer: [number, -number] for number, peer in enumerate(ring(5).peers)}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda net: robust(net, Median(1)),
        lambda net: robust(net, ClippedGossip(0)),
        lambda net: private(net, settings=Settings(clip=1.0), masks=None, source=SeededSource(1), round=0),
    ],
    ids=["rule", "no rule", "clip"],
)
def test_what_wraps_a_neighbourhood_passes_totals_on(wrap):
    net = stacked(ring(5))
    total = run_without_loop(wrap(net).total(own(VALUES), size=2))
    assert total.tolist() == [10, -10]
    assert net.bytes_out.sum() > 0


def noisy(noise=2.0, **given):
    charged = []
    settings = Settings(**({"clip": 1.0, "noise": noise} | given))
    how = {"settings": settings, "masks": None, "source": SeededSource(1), "round": 0}
    return private(stacked(ring(5)), charge=lambda: charged.append(1), **how), charged


def test_private_noise_relates_to_the_change_as_noise_in_a_release_relates_to_the_clip():
    net, charged = noisy()
    size, values = 20_000, {peer: np.zeros(20_000) for peer in ring(5).peers}
    found = [run_without_loop(net.total(own(values), size=size, change=change)) for change in (100.0, 400.0)]
    for total, change in zip(found, (100.0, 400.0), strict=True):
        assert total.std() == pytest.approx(2.0 * change * 5**0.5, rel=0.03)
    assert abs(np.corrcoef(*found)[0, 1]) < 0.05
    assert len(charged) == 2


def test_private_noise_needs_to_know_what_it_hides():
    values = own(VALUES)
    with pytest.raises(PrivacyError, match="needs change, in relation to which it hides"):
        run_without_loop(noisy()[0].total(values, size=2))
    with pytest.raises(PrivacyError, match=r"needs privacy\.clip"):
        run_without_loop(noisy(clip=torch.inf)[0].total(values, size=2, change=1.0))
    with pytest.raises(PrivacyError, match="encode the contribution with more fraction bits"):
        run_without_loop(noisy()[0].total(values, size=2, change=1.0))


def test_asynchronous_peers_and_the_accountant_of_sums_refuse_totals():
    weights = [metropolis(ring(5))]
    flight = Flight(weights, seed=1, faults=Faults())
    net = AsynchronousStackedNeighbourhood(weights, round=0, seed=1, faults=Faults(), flight=flight)
    with pytest.raises(RunError, match="an asynchronous algorithm cannot take a total"):
        run_without_loop(net.total(own(VALUES), size=2))
    with pytest.raises(PrivacyError, match="algorithms that also take totals"):
        run_without_loop(FactorNeighbourhood(weights, 0, []).total(own(VALUES), size=2))
