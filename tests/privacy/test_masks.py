import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import InputError, PrivacyError
from p2pfl.privacy.keys import FIRST, Announced, ExchangeKey, SeededSource, epoch_of
from p2pfl.privacy.masks import Masks, neighbour_secrets, swarm_secrets
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK, grid_normals
from p2pfl.topology import Schedule, Topology, exponential, one_peer_exponential, ring
from schedule import derived

SOURCE = SeededSource(7)
names = st.text(st.sampled_from("abzABZ019_-"), min_size=1, max_size=22)


@st.composite
def connected(draw):
    """Any connected graph: a tree in which each peer picks an earlier one, and more edges."""
    peers = draw(st.lists(names, min_size=2, max_size=7, unique=True))
    edges = {(peers[draw(st.integers(0, late - 1))], peers[late]) for late in range(1, len(peers))}
    edges |= set(draw(st.lists(st.tuples(st.sampled_from(peers), st.sampled_from(peers)), max_size=8)))
    directed = draw(st.booleans())
    return Topology(tuple(peers), tuple(edge for edge in edges if edge[0] != edge[1]), directed=directed)


def masks(topology, *, deviation=10.0, bits=20):
    secrets = swarm_secrets(topology, source=SOURCE, run="test")
    return Masks(secrets, deviation=deviation, topology=topology, bits=bits)


def brute_force(topology, peer, *, round, size, deviation=10.0):
    """The masks of one peer, written from the definition."""
    total = np.zeros(size, np.int64)
    for other in topology.at(round).neighbours(peer):
        key = derived(SOURCE, run="test", a=peer, b=other, purpose="mask", round=round)
        total += (1 if peer < other else -1) * grid_normals(key, size, deviation=deviation)
    return total


@given(topology=connected(), round=st.integers(0, 2**31), attempt=st.integers(0, 3), size=st.integers(1, 50))
def test_masks_cancel_bit_for_bit_on_any_connected_graph(topology, round, attempt, size):
    sums = masks(topology).sums(topology.peers, round=round, size=size, attempt=attempt)
    assert sums.dtype == np.int64
    assert not sums.sum(axis=0).any()
    assert sums.any(axis=1).all()


@given(topology=connected(), round=st.integers(0, 100), order=st.randoms(use_true_random=False))
def test_a_peer_has_the_same_masks_alone_and_in_any_company(topology, round, order):
    together = dict(zip(topology.peers, masks(topology).sums(topology.peers, round=round, size=33), strict=True))
    some = list(topology.peers)
    order.shuffle(some)
    some = some[: len(some) // 2 + 1]
    for peer, row in zip(some, masks(topology).sums(some, round=round, size=33), strict=True):
        np.testing.assert_array_equal(row, together[peer])
    for peer in topology.peers:
        np.testing.assert_array_equal(brute_force(topology, peer, round=round, size=33), together[peer])


def test_a_device_with_its_neighbours_public_keys_has_the_masks_of_the_simulation():
    topology = ring(5)
    together = masks(topology).sums(topology.peers, round=4, size=100)
    keys = {peer: ExchangeKey.from_source(SOURCE, peer=peer) for peer in topology.peers}
    ends = {peer: Announced.draw(SOURCE, peer=peer, incarnation=FIRST) for peer in topology.peers}
    for row, peer in enumerate(topology.peers):
        publics = {other: keys[other].public for other in topology.neighbours(peer)}
        epochs = {other: epoch_of(ends[peer], ends[other]) for other in topology.neighbours(peer)}
        secrets = neighbour_secrets(keys[peer], peer=peer, publics=publics, run="test", epochs=epochs)
        own = Masks(secrets, deviation=10.0, topology=topology)
        np.testing.assert_array_equal(own.sums([peer], round=4, size=100)[0], together[row])


@pytest.mark.parametrize(
    "size", [1, 64, 2410, VALUES_PER_BLOCK - 1, VALUES_PER_BLOCK, VALUES_PER_BLOCK + 1, 2 * VALUES_PER_BLOCK + 3]
)
def test_rows_of_any_length_are_drawn_alike(size):
    topology = ring(3)
    sums = masks(topology).sums(topology.peers, round=0, size=size)
    for row, peer in enumerate(topology.peers):
        np.testing.assert_array_equal(sums[row], brute_force(topology, peer, round=0, size=size))


def test_every_round_and_attempt_has_new_masks():
    topology = ring(4)
    drawn = [
        masks(topology).sums(topology.peers, round=round, size=500, attempt=attempt)
        for round in range(3)
        for attempt in range(2)
    ]
    for number, a in enumerate(drawn):
        for b in drawn[:number]:
            assert abs(np.corrcoef(a[0], b[0])[0, 1]) < 0.25
            assert not (a == b).any(axis=0).all()


def test_masks_have_the_covariance_of_the_laplacian():
    topology = ring(4)
    sums = masks(topology, deviation=3.0).sums(topology.peers, round=0, size=200_000) * 2.0**-20
    laplacian = np.array([[2, -1, 0, -1], [-1, 2, -1, 0], [0, -1, 2, -1], [-1, 0, -1, 2]])
    np.testing.assert_allclose(sums @ sums.T / 200_000, 9.0 * laplacian, atol=0.2)


def test_the_mask_graph_follows_the_schedule():
    schedule = one_peer_exponential(8)
    swarm = masks(schedule)
    for round in range(schedule.period + 1):
        sums = swarm.sums(schedule.peers, round=round, size=10)
        assert not sums.sum(axis=0).any()
        for row, peer in enumerate(schedule.peers):
            np.testing.assert_array_equal(sums[row], brute_force(schedule, peer, round=round, size=10))


def test_a_directed_edge_masks_once_whichever_way_it_points():
    there_and_back = Topology(("a", "b", "c"), (("a", "b"), ("b", "a"), ("c", "b")), directed=True)
    plain = Topology(("a", "b", "c"), (("a", "b"), ("b", "c")))
    np.testing.assert_array_equal(
        masks(there_and_back).sums("abc", round=1, size=20), masks(plain).sums("abc", round=1, size=20)
    )
    assert not masks(exponential(6)).sums(exponential(6).peers, round=0, size=9).sum(axis=0).any()


def test_a_peer_without_edges_has_no_masks():
    first, second = Topology(("a", "b", "c"), (("a", "b"),)), Topology(("a", "b", "c"), (("b", "c"),))
    swarm = masks(Schedule((first, second)))
    assert not swarm.sums(["c"], round=0, size=10).any()
    assert swarm.sums(["c"], round=1, size=10).any()


def test_a_missing_secret_names_its_edge():
    topology = ring(3)
    with pytest.raises(PrivacyError, match="peer0-peer1"):
        Masks({}, deviation=1.0, topology=topology).sums(["peer0"], round=2, size=4)


@pytest.mark.parametrize("deviation", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_deviation_that_the_grid_cannot_carry_is_refused(deviation):
    with pytest.raises(InputError, match=r"is not above 0 and below .*; change the deviation or the bits"):
        masks(ring(3), deviation=deviation)


def test_secrets_do_not_show_in_a_representation():
    swarm = masks(ring(3))
    assert repr(next(iter(swarm.secrets.values()))) not in repr(swarm)
