"""One slow member of a round that peers commit together."""

import asyncio

import pytest

from p2pfl.experiment import read
from p2pfl.network.protocol.interface.effects import Concluded
from p2pfl.network.transport import MemoryTransport
from restarts import HeldTraining, RestartablePeers
from swarms import SMALL, timeless

pytestmark = pytest.mark.slow

RING = ["topology.kind=ring", "topology.peers=8", "gossip.steps=1", "rounds=2"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.partners=1", "privacy.departures=go_on"]


def test_of_a_peer_that_is_too_slow_and_those_that_wait_for_it_only_the_slow_one_is_left_out(tmp_path):
    async def run():
        lives, outcomes = RestartablePeers(read(SMALL, changes=[*RING, *MASKS]), MemoryTransport(), tmp_path), []
        lives.start()
        await lives.until(lambda now: all(peer._connection is not None for peer in now.values()))
        carry_out, concluded = lives.now["peer0"].connection._carry_out, asyncio.Event()

        def carried_out(effect):
            if isinstance(effect, Concluded):
                outcomes.append(effect)
                concluded.set()
            carry_out(effect)

        lives.now["peer0"].connection._carry_out = carried_out
        held = HeldTraining(lives.now["peer3"], round=0)
        await concluded.wait()
        held.go.set()
        await lives.end()
        return outcomes

    outcomes = timeless(run())
    others = tuple(f"peer{number}" for number in range(8) if number != 3)
    assert outcomes == [Concluded(committed, others) for committed in (False, True, True)]
