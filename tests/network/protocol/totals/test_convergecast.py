"""Up the tree and down again: every peer ends with the exact sum, whatever is lost, doubled or late on the way."""

from collections import deque

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.totals.convergecast import Convergecast, digest_of
from p2pfl.network.protocol.wire.total_messages import Subtotal, Total
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.total_masks import TotalMasks, TotalSlot, to_signed, to_unsigned
from p2pfl.topology import Tree, complete, path, spanning, star

SLOT = TotalSlot(1, 0, 0)


class Carrier:
    """Carry messages between the parts of all peers, in an order of the test's choice."""

    def __init__(self, graph, *, size, bits, piece):
        self.tree = spanning(graph, among=graph.peers)
        how = {"slot": SLOT, "size": size, "bits": bits, "piece": piece}
        self.parts = {peer: Convergecast(self.tree, peer, **how) for peer in graph.peers}
        self.queues = {}  # by sender and receiver
        self.sent = dict.fromkeys(graph.peers, 0)

    def send(self, peer, messages):
        for message in messages:
            self.sent[peer] += len(message.data)
            part = self.parts[peer]
            for to in [part.parent] if isinstance(message, Subtotal) else part.children:
                self.queues.setdefault((peer, to), deque()).append(decode(encode(message)))

    def deliver(self, sender, to, message):
        part = self.parts[to]
        found = part.add(sender, message) if isinstance(message, Subtotal) else part.learn(message)
        self.send(to, found)

    def run(self, values, *, choose, lossy):
        waiting = list(self.parts)
        while not all(part.complete for part in self.parts.values()):
            ways = [*waiting, *(way for way, queue in self.queues.items() if queue)]
            if not ways:  # everybody asks again for what is missing
                for peer, part in self.parts.items():
                    for other, offset in part.lacking.items():
                        if not waiting:
                            messages = self.parts[other].again(peer, offset=offset)
                            self.queues.setdefault((other, peer), deque()).extend(messages)
                lossy -= 1
                continue
            way = ways[choose(len(ways))]
            if isinstance(way, str):
                waiting.remove(way)
                self.send(way, self.parts[way].contribute(values[way].copy()))
                continue
            message = self.queues[way].popleft()
            fate = choose(4) if lossy > 0 else 0
            if fate == 1:
                lossy -= 1
                continue  # lost
            self.deliver(*way, message)
            if fate == 2:
                self.deliver(*way, message)


GRAPHS = connected(most=12)


@given(GRAPHS, connected(most=12), st.sampled_from([32, 64]), st.sampled_from([8, 16, 4096]), st.data())
def test_every_peer_ends_with_the_sum_to_the_last_bit_on_every_graph_whatever_is_lost(graph, other, bits, piece, data):
    size, peers = 5, graph.peers
    most = 2 ** (bits - 1) // len(peers) - 1
    own = {
        peer: np.array(data.draw(st.lists(st.integers(-most, most), min_size=size, max_size=size))) for peer in peers
    }
    mask_graph = other if {*peers} <= {*other.peers} else graph
    masks = TotalMasks(swarm_secrets(mask_graph, source=SeededSource(3), run="t"), graph=mask_graph)
    masked = {p: masks.hide(own[p], peer=p, slot=SLOT, participants=peers, bits=bits) for p in peers}
    carrier = Carrier(graph, size=size, bits=bits, piece=piece)
    carrier.run(masked, choose=lambda count: data.draw(st.integers(0, count - 1)), lossy=6)
    expected = sum(own.values()).tolist()
    assert all(to_signed(part.total).tolist() == expected for part in carrier.parts.values())
    assert len({part.digest for part in carrier.parts.values()}) == 1


@pytest.mark.parametrize("graph", [path(6), star(6), complete(5)], ids=["path", "star", "complete"])
def test_a_peer_sends_its_numbers_up_once_and_down_once(graph):
    carrier = Carrier(graph, size=100, bits=64, piece=256)
    values = {peer: np.arange(100, dtype=np.uint64) for peer in graph.peers}
    carrier.run(values, choose=lambda _: 0, lossy=0)
    tree = carrier.tree
    for peer, sent in carrier.sent.items():
        assert sent == 800 * ((peer in tree.parents) + bool(tree.children(peer)))


def test_pieces_go_up_as_soon_as_they_are_whole():
    middle = Convergecast(Tree("c", {"b": "c", "a": "b"}), "b", slot=SLOT, size=4, bits=64, piece=16)
    assert middle.contribute(np.ones(4, np.uint64)) == []
    first = Subtotal(*SLOT, 0, 32, memoryview(np.ones(2, np.uint64).tobytes()))
    (sent,) = middle.add("a", first)
    assert (sent.offset, np.frombuffer(sent.data, np.uint64).tolist()) == (0, [2, 2])
    assert middle.lacking == {"a": 16, "c": 0}


def middle():
    part = Convergecast(Tree("c", {"b": "c", "a": "b"}), "b", slot=SLOT, size=4, bits=64, piece=16)
    part.contribute(to_unsigned(np.ones(4, np.int64), 64))
    return part


def subtotal(offset=0, total=32, length=16):
    return Subtotal(*SLOT, offset, total, memoryview(bytes(length)))


@pytest.mark.parametrize(
    "wrong",
    [
        subtotal(total=40),
        subtotal(offset=24),
        subtotal(offset=32),
        subtotal(length=0),
        subtotal(length=12),
        subtotal(offset=4, length=16),
    ],
)
def test_a_piece_that_is_none_is_refused_and_changes_nothing(wrong):
    part = middle()
    with pytest.raises(DecodeError):
        part.add("a", wrong)
    assert part.lacking == {"a": 0, "c": 0}


def test_somebody_else_has_no_subtotal_and_a_total_cannot_come_before_it():
    with pytest.raises(DecodeError, match='"c" has no subtotal'):
        middle().add("c", subtotal())
    with pytest.raises(DecodeError, match="before the subtotal of this peer"):
        middle().learn(Total(*SLOT, 0, 32, b"", memoryview(bytes(16))))


def test_a_total_that_is_not_what_its_digest_says_is_refused():
    part, data = middle(), memoryview(bytes(32))
    part.add("a", subtotal(length=32))
    whole = Total(*SLOT, 0, 32, digest_of(SLOT, data), data)
    with pytest.raises(DecodeError, match="not what the digest"):
        part.learn(msgspec.structs.replace(whole, digest=bytes(32)))


def test_another_slot_has_another_digest():
    data = memoryview(bytes(8))
    assert (
        len({digest_of(slot, data) for slot in (SLOT, TotalSlot(2, 0, 0), TotalSlot(1, 1, 0), TotalSlot(1, 0, 1))}) == 4
    )


def test_what_is_asked_for_again_is_the_subtotal_or_the_total():
    part = middle()
    part.add("a", subtotal(length=32))
    assert [each.offset for each in part.again("c", offset=0)] == [0, 16]
    assert [each.offset for each in part.again("c", offset=16)] == [16]
    assert part.again("a", offset=0) == part.again("eve", offset=0) == []
    data = memoryview(np.arange(4, dtype=np.uint64).tobytes())
    part.learn(Total(*SLOT, 0, 32, digest_of(SLOT, data), data))
    assert [bytes(each.data) for each in part.again("a", offset=16)] == [bytes(data[16:])]
    for anybody in ("c", "eve"):  # once complete, it is the total, which a peer may lack whose parent is lost
        assert [type(each) for each in part.again(anybody, offset=0)] == [Total, Total]
