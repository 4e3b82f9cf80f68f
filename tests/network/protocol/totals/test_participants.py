"""Who takes part in a total: everybody that is expected, in the incarnation that everybody knows, or nobody."""

from collections import deque

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.totals.participants import Known, Participation
from p2pfl.network.protocol.wire.total_messages import AgreedParticipants, Here
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from p2pfl.privacy.keys import Identity, SeededSource
from p2pfl.topology import path

IDENTITIES = {f"peer{number}": Identity.generate(SeededSource(5), peer=f"peer{number}") for number in range(12)}


def mark(peer):
    return peer.encode().ljust(16)


def taking_part(graph, peer, *, identities=None, **changes):
    options = {"round": 1, "attempt": 0, "swarm": "s", "identity": IDENTITIES[peer], "identities": identities}
    return Participation(graph, graph.peers, me=peer, mark=mark(peer), **(options | changes))


def carried(parts, *, choose):
    """Carry all messages; return those that were sent, by sender."""
    waiting, queues, sent = list(parts), {}, {peer: [] for peer in parts}

    def send(peer, messages):
        sent[peer] += messages
        tree = parts[peer].tree
        for message in messages:
            for to in [tree.parent(peer)] if isinstance(message, Here) else tree.children(peer):
                queues.setdefault((peer, to), deque()).append(decode(encode(message)))

    while ways := [*waiting, *(way for way, queue in queues.items() if queue)]:
        way = ways[choose(len(ways))]
        if isinstance(way, str):
            waiting.remove(way)
            send(way, parts[way].begin())
        else:
            send(way[1], parts[way[1]].receive(way[0], queues[way].popleft()))
    return sent


@given(connected(), st.data())
def test_all_agree_on_one_set_with_at_most_two_messages_each(graph, data):
    parts = {peer: taking_part(graph, peer) for peer in graph.peers}
    sent = carried(parts, choose=lambda count: data.draw(st.integers(0, count - 1)))
    for part in parts.values():
        assert part.agreed.peers == graph.peers
        assert dict(part.agreed.members) == {peer: mark(peer) for peer in graph.peers}
        assert not part.lacking
    assert max(map(len, sent.values())) <= 2


@given(connected(least=2), st.data())
def test_without_anybody_nobody_agrees(graph, data):
    missing = data.draw(st.sampled_from(graph.peers))
    parts = {peer: taking_part(graph, peer) for peer in graph.peers if peer != missing}
    queues = deque((peer, message) for peer, part in parts.items() for message in part.begin())
    while queues:
        peer, message = queues.popleft()
        parent = parts[peer].tree.parent(peer)
        if parent in parts:
            queues.extend((parent, each) for each in parts[parent].receive(peer, message))
    assert all(part.agreed is None and part.lacking for part in parts.values())


def agreed(**given):
    """The middle of a path of three, its root's set for it, and its own part, which waits for that."""
    graph = path(5)
    parts = {peer: taking_part(graph, peer, **(given if peer == "peer1" else {})) for peer in graph.peers}
    root, here = parts["peer2"], parts["peer1"]
    parts["peer0"].begin()
    (up,) = [*here.begin(), *here.receive("peer0", Here(1, 0, {"peer0": mark("peer0")}))]
    (up2,) = [*parts["peer3"].begin(), *parts["peer3"].receive("peer4", Here(1, 0, {"peer4": mark("peer4")}))]
    (said,) = [*root.begin(), *root.receive("peer1", up), *root.receive("peer3", up2)]
    return here, said


def test_the_set_of_the_root_is_taken_and_handed_on():
    here, said = agreed()
    assert here.receive("peer2", said) == [said]
    assert here.agreed.tree.root == "peer2"
    assert here.receive("peer2", said) == []
    assert here.again() == [said]


def changed(said, **fields):
    """The same under a signature of its own."""
    return msgspec.structs.replace(said, **fields)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda said: changed(said, signature=bytes(64)), "has not signed"),
        (lambda said: changed(said, attempt=1), "has not signed"),
        (lambda said: changed(said, root="peer3"), "not the one that is expected"),
        (lambda said: changed(said, members=said.members | {"eve": bytes(16)}), "not the one that is expected"),
        (lambda said: changed(said, members=said.members | {"peer0": bytes(16)}), "other incarnations"),
        (lambda said: changed(said, members={"peer1": mark("peer1")}), "not the one that is expected"),
        (lambda said: changed(said, key=IDENTITIES["peer4"].public), "has not signed"),
    ],
    ids=["signature", "attempt", "root", "more", "incarnation", "fewer", "key"],
)
def test_a_set_that_is_not_the_roots_is_refused(change, why):
    here, said = agreed()
    with pytest.raises(DecodeError, match=why):
        here.receive("peer2", change(said))
    assert here.agreed is None


def test_a_set_of_incarnations_other_than_those_known_here_or_under_another_key_is_refused():
    here, said = agreed(identities=Known({"peer3": bytes(16)}, {}))
    with pytest.raises(DecodeError, match="another incarnation of peer3"):
        here.receive("peer2", said)
    here, said = agreed(identities=Known({}, {"peer2": IDENTITIES["peer3"].public}))
    with pytest.raises(DecodeError, match="another key than that of"):
        here.receive("peer2", said)


def test_a_second_set_of_one_attempt_is_refused():
    here, said = agreed()
    here.receive("peer2", said)
    with pytest.raises(DecodeError, match="two participant sets of one attempt"):
        here.receive("peer2", changed(said, signature=bytes(64)))


def test_a_child_names_all_below_it_and_strangers_are_not_listened_to():
    here, _ = agreed()
    fresh = taking_part(path(5), "peer1")
    with pytest.raises(DecodeError, match="does not name the participants below it"):
        fresh.receive("peer0", Here(1, 0, {"peer0": mark("peer0"), "peer4": mark("peer4")}))
    assert fresh.receive("peer2", Here(1, 0, {"peer2": mark("peer2")})) == []
    assert fresh.lacking == {"peer0", "peer2"}
    with pytest.raises(DecodeError, match="before this peer took part"):
        fresh.receive("peer2", AgreedParticipants(1, 0, {}, "peer2"))
    del here
