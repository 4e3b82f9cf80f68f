"""Losses that the world has found to end peers before they began."""

import asyncio
from types import SimpleNamespace

from p2pfl.errors import DecodeError
from p2pfl.experiment import read
from p2pfl.peer.presence import Presence
from p2pfl.protocol.wire.codec import decode
from p2pfl.protocol.wire.messages import Claim, Hello
from p2pfl.transport import MemoryTransport
from p2pfl.virtual.clock import VirtualLoop
from swarms import SMALL, live

PAIR = ["topology.kind=path", "topology.peers=2", "rounds=1", "gossip.steps=1"]


def first_of(kind):
    """Lose the first message of a kind for each listener and topic; of hellos also the retained one."""
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
    both = first_of(Hello)
    found = ended(lambda listener, message: "/state" in message.topic and both(listener, message))
    assert {each.records[-1].heard for each in found.values()} == {1}


def present(line, *, begun=False):
    """What a peer says of itself, on a line of the test."""
    hello = Hello("ada", 1, "up", {}, bytes(32))
    membership = SimpleNamespace(begun=begun, absent=["bob"], greeted={"bob"}, names=())
    desk = SimpleNamespace(line=line, membership=membership, me=hello, post=lambda *_: None)
    desk.clock = lambda: asyncio.get_running_loop().time()
    return Presence(desk, None)


def test_who_has_begun_says_hello_again_to_a_neighbour_that_does_not_answer():
    """Else one that was cut off meanwhile, and whose retained hello was lost, waits for it until it gives up."""
    said = []

    async def say(status):
        said.append(status)

    envelope = SimpleNamespace(meets=lambda peer: peer == "bob", handover=lambda _: b"")
    asyncio.run(present(SimpleNamespace(envelope=envelope, say=say), begun=True).introduce())
    assert said == ["up"]


def test_who_stood_still_while_it_waited_for_its_claim_claims_again():
    claims = []

    async def claim(*, size):
        claims.append(size)
        if len(claims) == 2:
            presence._echo.set()
        asyncio.get_running_loop().call_soon(stand)

    def stand():
        asyncio.get_running_loop().now += 40.0

    presence = present(SimpleNamespace(claim=claim))
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(presence._claim(100, again=1.0))
    assert claims == [100, 100]
