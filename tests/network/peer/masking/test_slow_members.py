"""One slow member of a round that peers commit together."""

import asyncio

import pytest

from p2pfl.experiment import read
from p2pfl.network.peer import peer as peers
from p2pfl.network.protocol.interface.effects import Concluded
from p2pfl.network.transport import MemoryTransport
from restarts import HeldTraining, RestartablePeers
from swarms import SMALL, live, timeless

RING = ["topology.kind=ring", "topology.peers=8", "gossip.steps=1", "rounds=2"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.partners=1", "privacy.departures=go_on"]


@pytest.mark.slow
def test_of_a_peer_that_is_too_slow_and_those_that_wait_for_it_only_the_slow_one_is_left_out(tmp_path):
    async def run():
        lives, outcomes = RestartablePeers(read(SMALL, changes=[*RING, *MASKS]), MemoryTransport(), tmp_path), []
        lives.start()
        await lives.until(lambda now: all(peer.joined is not None for peer in now.values()))
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


@pytest.mark.parametrize("steps", [1, 6])
def test_a_peer_that_begins_late_takes_those_that_wait_for_its_report_for_no_run_without_it(steps, monkeypatch):
    """On this directed graph peer3 needs no model of peer0 for its first gossip step, and peer0 sees that."""
    directed = ["topology.kind=exponential", "topology.peers=6", f"gossip.steps={steps}", "rounds=1"]
    gather = peers.gather_neighbours

    async def gather_late(connection, *given, **options):
        await gather(connection, *given, **options)
        if connection.session.shared.me.peer == "peer0":
            await asyncio.sleep(5.0)

    monkeypatch.setattr(peers, "gather_neighbours", gather_late)
    masks = [*MASKS[:-1], "privacy.departures=wait"]
    ended = timeless(live(read(SMALL, changes=[*directed, *masks]), MemoryTransport()))
    assert {name: [record.round for record in each.records] for name, each in ended.items()} == {
        f"peer{number}": [0] for number in range(6)
    }
