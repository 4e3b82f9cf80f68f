"""Masks of totals: they cancel to the last bit, hide all but the total, and are refused where they could not."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from graphs import connected
from p2pfl.core.errors import PrivacyError
from p2pfl.privacy import total_masks
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.total_masks import TotalMasks, TotalSlot, to_signed
from p2pfl.topology import Topology, circulant, complete, path, ring, spanning, star

SLOT = TotalSlot(1, 0, 0)


def masks(graph, *, colluders=1, seed=7):
    return TotalMasks(swarm_secrets(graph, source=SeededSource(seed), run="t"), graph=graph, colluders=colluders)


@given(connected(least=2), st.sampled_from([32, 64]), st.data())
def test_masks_cancel_over_the_participants_to_the_last_bit(graph, bits, data):
    among = data.draw(st.lists(st.sampled_from(graph.peers), min_size=1, unique=True))
    values = {
        peer: np.array(data.draw(st.lists(st.integers(-(2**20), 2**20), min_size=3, max_size=3))) for peer in among
    }
    given = {"slot": SLOT, "participants": among, "bits": bits}
    found = sum(masks(graph).hide(values[peer], peer=peer, **given) for peer in among)
    assert to_signed(found).tolist() == sum(values.values()).tolist()


# ---------------------------------------------------------------------- hiding, by enumeration of all masks


def transcripts(contributions, *, graph):
    """Count what all messages of a total are, over all masks in Z_4."""
    found = Counter()
    for drawn in itertools.product(range(4), repeat=len(graph.edges)):
        masked = dict(contributions)
        for (a, b), word in zip(graph.edges, drawn, strict=True):
            masked[a] = (masked[a] + word) % 4
            masked[b] = (masked[b] - word) % 4
        tree = spanning(graph, among=graph.peers)
        up = {peer: sum(masked[each] for each in tree.subtree(peer)) % 4 for peer in tree.parents}
        total = sum(masked.values()) % 4
        found[tuple(sorted(masked.items())), tuple(sorted(up.items())), total] += 1
    return found


@pytest.mark.parametrize("graph", [path(3), complete(3)], ids=["path", "complete"])
def test_transcripts_of_three_peers_are_the_same_exactly_where_totals_are(graph):
    by_total = {}
    for values in itertools.product(range(4), repeat=3):
        found = transcripts(dict(zip(graph.peers, values, strict=True)), graph=graph)
        by_total.setdefault(sum(values) % 4, []).append(found)
    for same in by_total.values():
        assert all(each == same[0] for each in same)
    for one, other in itertools.combinations(by_total.values(), 2):
        assert not one[0].keys() & other[0].keys()


def test_transcripts_show_the_sums_of_the_components_of_honest_masks_and_nothing_else():
    """A colluder in the middle of a path knows both masks and sees both ends; in a triangle it does not."""

    def seen(values, graph, colluder):
        found = Counter()
        for drawn in itertools.product(range(4), repeat=len(graph.edges)):
            masked, known = dict(zip(graph.peers, values, strict=True)), []
            for (a, b), word in zip(graph.edges, drawn, strict=True):
                masked[a], masked[b] = (masked[a] + word) % 4, (masked[b] - word) % 4
                known += [word] if colluder in {a, b} else []
            found[tuple(sorted(masked.items())), tuple(known)] += 1
        return found

    assert seen((1, 0, 2), path(3), "peer1") != seen((2, 0, 1), path(3), "peer1")
    assert seen((1, 0, 2), complete(3), "peer1") == seen((2, 0, 1), complete(3), "peer1")


@pytest.mark.parametrize("own", [0, 3])
def test_what_a_recipient_is_sent_depends_on_the_sum_alone(own):
    """It has a contribution of its own, which it knows, and no mask."""
    senders, by_sum = complete(3), {}
    for values in itertools.product(range(4), repeat=3):
        seen = Counter()
        for drawn in itertools.product(range(4), repeat=3):
            sent = dict(zip(senders.peers, values, strict=True))
            for (a, b), word in zip(senders.edges, drawn, strict=True):
                sent[a], sent[b] = (sent[a] + word) % 4, (sent[b] - word) % 4
            seen[tuple(sent.values()), (sum(sent.values()) + own) % 4] += 1
        by_sum.setdefault(sum(values) % 4, []).append(seen)
    assert all(each == same[0] for same in by_sum.values() for each in same)
    assert len(by_sum) == 4


# ---------------------------------------------------------------------- hiding, by chi-square of the real keystream

COUNT = 100_000


def uniform(words):
    """Return the p-value that bytes are uniform."""
    return stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue


@pytest.mark.parametrize("bits", [32, 64])
def test_what_a_parent_sees_of_a_leaf_is_uniform_and_a_key_used_twice_is_not(bits):
    graph = complete(4)
    first, again = np.zeros(COUNT, np.int64), np.full(COUNT, 5)
    hide = masks(graph).hide
    given = {"peer": "peer0", "participants": graph.peers, "bits": bits}
    one = hide(first, slot=SLOT, **given)
    assert uniform(one) > 1e-4
    assert uniform(hide(again, slot=TotalSlot(1, 0, 1), **given) - one) > 1e-4
    assert uniform(hide(again, slot=SLOT, **given) - one) < 1e-12  # the difference of the contributions


def test_every_slot_every_participant_set_and_every_edge_has_a_key_of_its_own():
    graph = complete(4)
    few, drawn = graph.peers[:3], Counter()
    for slot in (SLOT, TotalSlot(2, 0, 0), TotalSlot(1, 1, 0), TotalSlot(1, 0, 1)):
        for among in (graph.peers, few):
            for peer in among:
                drawn.update(masks(graph).keys(peer, slot=slot, participants=among).values())
    assert {*drawn.values()} == {2}  # at both ends
    assert len(drawn) == 4 * (6 + 3)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("graph", "colluders", "who"),
    [
        (path(4), 1, "peer1 could part"),
        (star(5), 1, "peer0 could part"),
        (ring(6), 2, "peer., peer. could part"),
        (Topology(tuple("abcd"), (("a", "b"), ("c", "d"))), 1, "missing mask partners part"),
    ],
    ids=["path", "star", "ring", "apart"],
)
def test_a_mask_graph_that_colluders_could_part_is_refused_with_their_names(graph, colluders, who):
    with pytest.raises(PrivacyError, match=who):
        masks(graph, colluders=colluders).check(graph.peers)


@pytest.mark.parametrize(
    ("graph", "colluders"), [(ring(6), 1), (complete(5), 3), (circulant(9, degree=4), 3), (complete(3), 1)]
)
def test_a_mask_graph_that_holds_is_let_pass(graph, colluders):
    masks(graph, colluders=colluders).check(graph.peers)


@pytest.mark.parametrize(
    ("graph", "recipient", "colluders"), [(star(5), "peer0", 1), (ring(5), "peer0", 2), (path(4), "peer0", 2)]
)
def test_senders_to_one_peer_whose_masks_do_not_connect_are_refused(graph, recipient, colluders):
    with pytest.raises(
        PrivacyError, match=r"peer0, who receives a total of .* could learn sums over some of them alone"
    ):
        masks(graph, colluders=colluders).check_recipient(recipient, graph.peers)


@pytest.mark.parametrize("senders", [("peer1",), ("peer0", "peer1"), ("peer1", "peer2"), ("peer0", "peer1", "peer2")])
def test_a_single_sender_and_senders_whose_masks_connect_are_let_pass(senders):
    masks(complete(3)).check_recipient("peer0", senders)


@pytest.mark.parametrize(("peers", "colluders"), [(1, 0), (2, 0), (2, 1), (4, 3)])
def test_too_few_participants_are_refused(peers, colluders):
    graph = complete(peers)
    with pytest.raises(PrivacyError, match=f"a total over {peers} peers shows single contributions"):
        masks(graph, colluders=colluders).check(graph.peers)


def test_who_is_missing_can_make_masks_too_few():
    whole = masks(ring(5))
    whole.check(ring(5).peers)
    with pytest.raises(PrivacyError, match="could part the masks"):
        whole.check(ring(5).peers[:-1])


def test_an_edge_without_a_secret_is_refused():
    graph = complete(3)
    with pytest.raises(PrivacyError, match="peer0-peer1 has no shared secret"):
        total_masks.TotalMasks({}, graph=graph).hide(
            np.zeros(1, np.int64), peer="peer0", slot=SLOT, participants=graph.peers, bits=64
        )
