"""What each peer of a sparse graph does at its start, where it has to know all peers of the run."""

from collections import Counter, deque
from types import SimpleNamespace

import pytest

from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Gathered, Publish, Subscribe
from p2pfl.network.protocol.interface.events import Published, Received, Subscribed, Tick
from p2pfl.network.protocol.interface.requests import Enter, Gather
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire import envelope as envelopes
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Account, Announcement, Key, Pulse
from p2pfl.network.protocol.wire.tags import parts
from p2pfl.network.transport.channel import matches
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, SeededSource, SenderKey
from p2pfl.topology import ring


def session(name, topology):
    """A peer that knows all others, as under masks."""
    source = SeededSource(1)
    identity = Identity.generate(source, peer=name)
    exchange = ExchangeKey.from_source(source, peer=name)
    nonce = source.bytes(16, purpose="nonce", peer=name, round=0)
    me = Announcement(name, 1, "up", {}, exchange.public, identity.public, nonce=nonce)
    envelope = Envelope(name, 1, exchange, SenderKey.draw(source, peer=name, round=1), "run", nonce)
    others = frozenset({*topology.peers} - {name})
    return Session(
        MessageCodec("s", me, identity, envelope),
        membership=Membership(me, others, "s", FirstUse()),
        mailbox=Mailbox(),
        edges=Edges(name, topology),
        row_bytes=1000,
        chunk=1024,
        patience=10.0,
    )


class Broker:
    """Carries what sessions publish, in order, to whoever has subscribed to it, and retains announcements."""

    def __init__(self):
        self.sessions, self.filters, self.retained, self.queue = {}, {}, {}, deque()
        self.sent = Counter()
        self.gathered = set()

    def handle(self, name, event, *, now=0.0):
        made = self.sessions[name]
        for effect in made.handle(event, now=now):
            match effect:
                case Publish():
                    topic = made.shared.codec.topic(effect.place)
                    data = made.shared.codec.seal(effect.place, effect.message)
                    self.sent[name, type(effect.message)] += 1
                    self.retained |= {topic: data} if effect.retain else {}
                    receivers = [each for each, filters in self.filters.items() if _covers(filters, topic)]
                    self.queue += [(each, Received(topic, data)) for each in receivers]
                    self.queue += [(name, Published(effect.receipt))] if effect.receipt else []
                case Subscribe():
                    self.filters[name] = made.shared.codec.filters(effect.places)
                    kept = [each for each in self.retained.items() if _covers(self.filters[name], each[0])]
                    self.queue += [(name, Received(*each)) for each in kept]
                    self.queue += [(name, Subscribed(effect.receipt))]
                case Gathered(error=None):
                    self.gathered.add(name)

    def carry(self, *, now=0.0):
        while self.queue:
            name, event = self.queue.popleft()
            self.handle(name, event, now=now)


def _covers(filters, topic):
    return any(matches(each, topic) for each in filters)


def started(peers, *, at_once=False):
    """A ring of peers that have begun, one after another or at once."""
    topology, broker = ring(peers), Broker()
    for name in topology.peers:
        broker.sessions[name] = session(name, topology)
        broker.handle(name, Enter(limit=2**20, grace=0.0))
        if not at_once:
            broker.carry()
            broker.handle(name, Tick())
            broker.carry()
    broker.carry()
    for name in topology.peers if at_once else ():
        broker.handle(name, Tick())
    broker.carry()
    for name in topology.peers:
        broker.handle(name, Gather(quorum=1.0, within=60.0))
    return topology, broker


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("peers", [8, 16])
def test_peers_that_start_send_each_other_one_key_each_way_and_one_more_along_edges(peers, at_once, monkeypatch):
    agreed = Counter()
    agree = envelopes.edge_secret

    def counted(own, other, *, run):
        agreed[own.public] += 1
        return agree(own, other, run=run)

    monkeypatch.setattr(envelopes, "edge_secret", counted)
    topology, broker = started(peers, at_once=at_once)

    assert broker.gathered == {*topology.peers}  # without waiting for a heartbeat
    assert all(
        each.shared.codec.envelope.reads(peer) for each in broker.sessions.values() for peer in each.membership.present
    )
    assert {broker.sent[name, Announcement] for name in topology.peers} == {1}
    assert sum(broker.sent[name, Key] for name in topology.peers) == peers * (peers - 1) + len(topology.edges)
    assert {*agreed.values()} == {peers - 1}


def test_a_peer_that_knows_all_others_subscribes_to_as_many_topics_whatever_their_number():
    for peers, (me, *senders) in ((8, ("peer0", "peer1", "peer7")), (16, ("peer00", "peer01", "peer15"))):
        _, broker = started(peers)
        places = (f"{me}/in/+", "+/state", *(f"{each}/pub/0" for each in senders))
        assert sorted(broker.filters[me]) == sorted(broker.sessions[me].shared.codec.filters(places))


def test_a_peer_ignores_its_own_statements_which_the_filter_for_all_peers_covers():
    _, broker = started(8)
    codec = broker.sessions["peer0"].shared.codec
    data = codec.seal("account", Account(1, 1))
    broker.handle("peer0", Received(codec.topic("account"), data))
    assert not broker.sessions["peer0"].shared.refused
    broker.handle("peer1", Received(codec.topic("account"), data[:-1]))
    assert broker.sessions["peer1"].shared.refused


def test_heartbeats_have_tags_for_neighbours_alone_and_other_messages_for_all():
    topology, broker = started(8)
    codec = broker.sessions["peer0"].shared.codec
    tags = {
        place: len(parts(codec.seal(place, message), prefix=envelopes.PLACE).tags) // 16
        for place, message in (("pub/0", Pulse(1, 0, 0, 0, 0, 0)), ("account", Account(1, 1)))
    }
    assert tags == {"pub/0": len(topology.neighbours("peer0")), "account": 7}


def test_a_key_that_is_lost_is_sent_again_after_a_heartbeat():
    topology = ring(8)
    ada = session("peer0", topology)
    bob = session("peer4", topology)
    bob.naming.stage = ada.naming.stage = "inside"
    lost = [each for each in _greet(ada, bob) if isinstance(each.message, Key)]
    assert [each.place for each in lost] == ["in/peer4"]
    assert _greet(bob, ada) == []  # it waits for the key of the first

    bob.presence.introduce()
    (again,) = [each for each in bob.shared.effects if isinstance(each, Publish) and isinstance(each.message, Key)]
    bob.shared.effects.clear()
    assert again.place == "in/peer0"
    (answer,) = [each for each in _receives(ada, bob, again) if isinstance(each.message, Key)]
    assert [*_receives(bob, ada, answer)] == []  # both can read now
    assert ada.presence.acquainted
    assert bob.presence.acquainted
    assert bob.shared.codec.envelope.reads("peer0")


def _greet(one, other):
    """Let a session receive the announcement of another one."""
    announcement = other.shared.codec.announcement("up")
    return _receives(one, other, SimpleNamespace(place="state", message=announcement))


def _receives(one, sender, effect):
    codec = sender.shared.codec
    event = Received(codec.topic(effect.place), codec.seal(effect.place, effect.message))
    return [each for each in one.handle(event, now=0.0) if isinstance(each, Publish)]
