"""Live peers meeting what live peers meet."""

import asyncio
import math
import random
from collections import Counter

import pytest
import torch

from p2pfl.core.errors import LearningError, PeerError, TransportError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.wire.envelope import CONTROL, SEALED
from p2pfl.network.transport import MemoryTransport
from p2pfl.simulation import simulate
from swarms import SMALL, live, timeless
from waiting import DEADLINE, wait_until

QUICK = ["transport.patience=0.3", "transport.gather=0.3"]


def parties(client, message):
    """Return the peer that published a message and the one that receives it."""
    owner, _, place = message.topic.split("/peer/")[1].partition("/")
    return (place.removeprefix("in/") if place.startswith("in/") else owner), client.split("-")[1]


def is_chunk(message):
    return message.data[:1] == bytes([SEALED]) and message.data[1:5] != CONTROL.to_bytes(4, "little")


@pytest.mark.slow
async def test_only_neighbours_ever_exchange_rows():
    heard = set()

    def spy(client, message):
        if is_chunk(message):
            heard.add(parties(client, message))
        return False

    experiment = read(SMALL, changes=["topology.kind=path", "topology.peers=5"])
    await live(experiment, MemoryTransport(lose=spy))
    edges = plan(experiment).topology.edges
    assert heard == {pair for a, b in edges for pair in ((a, b), (b, a))}


@pytest.mark.slow
async def test_a_row_reaches_only_those_who_listen_in_that_exchange():
    counts = Counter()

    def spy(client, message):
        if is_chunk(message):
            counts[parties(client, message)] += 1
        return False

    changes = ["topology.kind=one_peer_exponential", "topology.peers=8", "rounds=1", "gossip.steps=3"]
    await live(read(SMALL, changes=changes), MemoryTransport(lose=spy))
    assert len(counts) == 24
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("together", [True, False], ids=["both come at once", "one comes later"])
async def test_a_neighbour_whose_experiment_differs_is_refused_with_the_difference_at_both_ends(together):
    async def main():
        transport = MemoryTransport()
        base = ["topology.kind=path", "topology.peers=2"]
        peers = [
            Peer(name, plan(read(SMALL, changes=[*base, f"learning.rate={rate}"]), only=[name]), transport=transport)
            for name, rate in (("peer0", 0.1), ("peer1", 0.2))
        ]

        async def one(peer):
            async with peer:
                await peer.run()

        async with asyncio.timeout(DEADLINE):
            first = asyncio.create_task(one(peers[0]))
            await wait_until(lambda: together or peers[0].phase == "gathering", "peer0 gathers")
            return await asyncio.gather(first, one(peers[1]), return_exceptions=True)

    for error in await main():
        assert isinstance(error, PeerError)
        assert "learning.rate = " in str(error)


@pytest.mark.slow
async def test_a_peer_of_the_same_name_is_told_and_the_first_goes_on():
    experiment = read(SMALL, changes=["topology.kind=path", "topology.peers=2"])
    transport = MemoryTransport()
    first = Peer("peer0", plan(experiment, only=["peer0"]), transport=transport, incarnation=1)
    async with asyncio.timeout(DEADLINE), first:
        running = asyncio.create_task(first.run())
        await wait_until(lambda: first.phase == "gathering", "peer0 gathers")
        second = Peer("peer0", plan(experiment, only=["peer0"]), transport=transport, incarnation=2)
        async with second:
            with pytest.raises(PeerError, match="choose another --name"):
                await second.run()
        await live(experiment, transport, names=["peer1"])
        await running


@pytest.mark.slow
async def test_a_namesake_in_another_swarm_is_nobodys_business():
    transport = MemoryTransport()
    one, other = (read(SMALL, changes=[f"name={name}", "rounds=1"]) for name in ("one", "other"))
    await asyncio.gather(live(one, transport), live(other, transport))


def test_neighbours_that_do_not_come_are_named():
    experiment = read(SMALL, changes=["topology.kind=path", "topology.peers=3", *QUICK])
    with pytest.raises(BaseExceptionGroup) as caught:
        timeless(live(experiment, MemoryTransport(), names=["peer1"]))
    assert "peer0, peer2 did not come" in str(caught.value.exceptions[0])


def test_a_quorum_is_enough_to_start():
    changes = ["topology.kind=path", "topology.peers=3", *QUICK, "transport.gather.quorum=0.5"]
    experiment = read(SMALL, changes=changes)
    ended = timeless(live(experiment, MemoryTransport(), names=["peer0", "peer1"]))
    assert ended["peer1"].records[0].missed == ["peer2"] * 3
    assert ended["peer1"].records[0].received == 3


@pytest.mark.slow
async def test_a_neighbour_that_vanishes_leaves_its_weight_to_the_others():
    experiment = read(SMALL, changes=["topology.kind=complete", "topology.peers=4", "rounds=30"])
    transport = MemoryTransport()

    async def victim():
        peer = Peer("peer0", plan(experiment, only=["peer0"]), transport=transport)
        async with peer:
            running = asyncio.create_task(peer.run())
            await peer.connection.until(lambda: peer.mailbox.gossip_step >= (3, 0), by=math.inf)
            peer.connection.channel.abort()
            with pytest.raises(TransportError):
                await running

    others, _ = await asyncio.gather(live(experiment, transport, names=["peer1", "peer2", "peer3"]), victim())
    for ended in others.values():
        assert ended.records[-1].round == 29
        assert ended.records[-1].missed == ["peer0"] * 3
        assert torch.isfinite(ended.state.rows).all()


async def failing(experiment, transport, *, round):
    """Run peer0 until its learning fails after a round."""

    def fail(record, _):
        if record.round == round:
            raise LearningError("expected a finite loss, got nan")

    peer = Peer("peer0", plan(experiment, only=["peer0"]), transport=transport, observe=fail)
    with pytest.raises(LearningError):
        async with peer:
            await peer.run()


@pytest.mark.slow
async def test_a_peer_that_fails_is_missed_at_once_not_after_patience():
    async def main():
        changes = ["topology.kind=complete", "topology.peers=3", "rounds=5", "transport.patience=50.0"]
        experiment = read(SMALL, changes=changes)
        transport = MemoryTransport()

        others, _ = await asyncio.gather(
            live(experiment, transport, names=["peer1", "peer2"]), failing(experiment, transport, round=1)
        )
        return others

    for ended in (await asyncio.wait_for(main(), DEADLINE)).values():
        assert ended.records[-1].round == 4
        assert ended.records[-1].missed


@pytest.mark.slow
def test_masks_are_drawn_only_with_those_who_are_there():
    changes = ["topology.kind=complete", "topology.peers=4", *QUICK, "transport.gather.quorum=0.5"]
    changes += ["privacy.mode=pairwise", "privacy.mask=100.0", "gossip.steps=20", "rounds=1"]
    changes += ["privacy.departures=go_on"]
    ended = timeless(live(read(SMALL, changes=changes), MemoryTransport(), names=["peer0", "peer1", "peer2"]))
    rows = torch.cat([end.state.rows for end in ended.values()])
    assert rows.abs().max() < 10  # masks of deviation 100 have cancelled


@pytest.mark.slow
async def test_every_row_arrives_although_the_network_loses_a_fifth_of_all_chunks():
    chance = random.Random(5)
    lost = []

    def lossy(_, message):
        if not is_chunk(message):
            return False
        lost.append(chance.random() < 0.2)
        return lost[-1]

    experiment = read(SMALL, changes=["rounds=2"])
    ended = await live(experiment, MemoryTransport(lose=lossy))
    assert any(lost)
    assert not any(record.missed for end in ended.values() for record in end.records)


@pytest.mark.nightly
async def test_large_rows_come_one_at_a_time():
    changes = ["transport.chunk=1024", "model.hidden=[8000]", "topology.kind=complete", "topology.peers=5", "rounds=1"]
    ended = await live(read(SMALL, changes=changes), MemoryTransport())
    for end in ended.values():
        streams, most = end.peer.session.streams, end.peer.session.shared.row_bytes
        assert end.peer.mailbox.large
        assert not end.records[-1].missed
        windows = len(streams.inboxes) * streams.window * 1024
        assert most / 2 < streams.most_held <= most + windows < 2 * most


@pytest.mark.slow
async def test_masks_with_a_neighbour_that_vanished_are_drawn_no_more():
    changes = ["topology.kind=complete", "topology.peers=4", "rounds=8", "gossip.steps=12"]
    masked = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.departures=go_on"]
    experiment = read(SMALL, changes=[*changes, *masked])
    transport = MemoryTransport()

    others, _ = await asyncio.gather(
        live(experiment, transport, names=["peer1", "peer2", "peer3"]), failing(experiment, transport, round=2)
    )
    ended = others
    models = torch.cat([end.state.rows for end in ended.values()])
    assert (models - models.mean(0)).abs().max() < 0.1
    assert all(end.records[-1].round == 7 for end in ended.values())


@pytest.mark.slow
async def test_a_validation_part_is_scored_in_every_round_live_and_simulated():
    experiment = read(SMALL, changes=["data.validation=0.3", "rounds=2"])
    ended = await live(experiment, MemoryTransport())
    simulated = simulate(experiment, baselines=False)
    twin = ended["peer0"].records[1].scores
    assert "validation_accuracy" in twin
    assert twin == pytest.approx(next(r for r in simulated.metrics if (r.peer, r.round) == ("peer0", 1)).scores)
