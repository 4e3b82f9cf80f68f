"""Losses that the world has found to end peers before they began."""

import asyncio
from types import SimpleNamespace

from p2pfl.core.errors import DecodeError
from p2pfl.experiment import read
from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import Fail, Publish
from p2pfl.network.protocol.interface.events import Published, Subscribed, Tick
from p2pfl.network.protocol.interface.requests import Enter
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement, Claim, Key
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.topology import path
from swarms import SMALL, live

PAIR = ["topology.kind=path", "topology.peers=2", "rounds=1", "gossip.steps=1"]


def first_of(kind):
    """Lose the first message of a kind for each listener and topic; of announcements also the retained one."""
    seen = set()

    def lose(listener, message):
        try:
            meant = isinstance(decode(message.data), kind)
        except DecodeError:
            return False
        place = listener, message.topic
        if not meant or place in seen:
            return False
        seen.add(place)
        return True

    return lose


def ended(lose):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(live(read(SMALL, changes=PAIR), MemoryTransport(lose=lose)))


def test_a_claim_that_is_lost_is_made_again():
    assert len(ended(first_of(Claim))) == 2


def test_two_peers_whose_hellos_were_both_lost_find_each_other():
    both = first_of(Announcement)
    found = ended(lambda listener, message: "/state" in message.topic and both(listener, message))
    assert {each.records[-1].received for each in found.values()} == {1}


def session(**given):
    me = Announcement("ada", 1, "up", {}, bytes(32))
    membership = Membership(me, frozenset({"bob"}))
    edges = Edges("ada", path(2).named(("ada", "bob")))
    how = {"row_bytes": 100, "chunk": 1024, "patience": 60.0}
    return Session(MessageCodec("s", me, **given), membership=membership, mailbox=Mailbox(), edges=edges, **how)


def test_who_has_begun_says_hello_again_to_a_neighbour_that_does_not_answer():
    """Else one that was cut off meanwhile, and whose retained announcement was lost, waits for it until it gives up."""
    envelope = SimpleNamespace(
        meets=lambda peer: peer == "bob", handover=lambda _: Key(1, b"", have=False, known=False)
    )
    ada = session(envelope=envelope)
    ada.membership.up["bob"] = Announcement("bob", 1, "up")
    ada.membership.begun = True
    ada.presence.introduce()
    assert [(each.place, each.retain) for each in ada.shared.effects] == [("state", True), ("in/bob", False)]


def test_who_stood_still_while_it_waited_for_its_claim_claims_again():
    ada, now = session(), 0.0
    ada.handle(Enter(limit=2**20), now=now)
    claims = [each for each in ada.handle(Subscribed("places"), now=now) if isinstance(each, Publish)]
    ada.handle(Published("claim"), now=now)
    for _ in range(2):
        now += 40.0  # it stood still for longer than the broker may take
        claims += [each for each in ada.handle(Tick(), now=now) if isinstance(each, Publish)]
        ada.handle(Published("claim"), now=now)
    assert [type(each.message) for each in claims] == [Claim] * 3


def test_a_broker_that_returns_no_claim_is_given_up_after_a_while():
    ada, now, failed = session(), 0.0, []
    ada.handle(Enter(limit=2**20), now=now)
    ada.handle(Subscribed("places"), now=now)
    while not failed:
        ada.handle(Published("claim"), now=now)
        now += 1.0
        failed = [each for each in ada.handle(Tick(), now=now) if isinstance(each, Fail)]
    assert now == 30.0
    assert "did not return this peer's own message of 100 bytes" in str(failed[0].error)
