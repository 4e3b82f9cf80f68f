"""Losses that the world has found to end peers before they began."""

import asyncio

from swarms import SMALL, live

from p2pfl.errors import DecodeError
from p2pfl.experiment import read
from p2pfl.transport import MemoryTransport
from p2pfl.wire.messages import Claim, Hello, decode
from p2pfl.world.clock import VirtualLoop

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
