"""Peers whose broker restarts, goes away or takes some of them for dead: they end where the simulation ends."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import torch

from attacks import Middle
from p2pfl.core.errors import TransportError
from p2pfl.experiment import read
from p2pfl.network.protocol.session import name_claim, session
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import SMALL, live
from waiting import DEADLINE, wait_until

pytestmark = pytest.mark.slow

SOON = Backoff(first=0.01, largest=0.05, outage=60.0)
RING = ["topology.kind=ring", "topology.peers=4", "rounds=6"]
SOURCE = SeededSource(5)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(session, "PULSE", 0.1)
    monkeypatch.setattr(name_claim, "PULSE", 0.1)


def reached(alive, exchange):
    return len(alive) == 4 and any(peer.mailbox.gossip_step >= exchange for peer in alive.values())


def agree(experiment, ended):
    """All rows are those of the simulation, and nothing was missed."""
    run = simulate(experiment, source=SOURCE, baselines=False)
    for name, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert not any(record.missed for record in end.records)
        assert all((model[key] - value).abs().max() < 2.0**-20 for key, value in run.models[name].items())


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("privacy", [[], ["privacy.mode=pairwise"]], ids=["plain", "masked"])
@pytest.mark.parametrize("wills", [False, True], ids=["killed", "ended in order"])
@pytest.mark.parametrize("persistent", [False, True], ids=["forgetful", "persistent"])
async def test_a_broker_that_restarts_in_the_middle_of_a_run_changes_nothing(privacy, wills, persistent):
    experiment, alive = read(SMALL, changes=[*RING, *privacy]), {}

    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        running = asyncio.create_task(
            live(experiment, LastingTransport([broker], backoff=SOON), source=SOURCE, alive=alive)
        )
        for round in (1, 2, 4):
            await wait_until(lambda round=round: reached(alive, (round, 1)), f"a peer is in round {round}")
            broker.restart(wills=wills, persistent=persistent)
        ended = await running
    assert all(end.peer.connection.channel.outages == 3 for end in ended.values())
    agree(experiment, ended)


async def test_an_outage_that_is_longer_than_patience_is_nobodys_fault():
    experiment, alive = read(SMALL, changes=[*RING, "transport.patience=2.0"]), {}

    async with asyncio.timeout(DEADLINE):
        broker = MemoryTransport()
        running = asyncio.create_task(
            live(experiment, LastingTransport([broker], backoff=SOON), source=SOURCE, alive=alive)
        )
        await wait_until(lambda: reached(alive, (2, 1)), "a peer is in round 2")
        broker.stop()
        await wait_until(
            lambda: all(peer.connection.channel.away > 2.5 for peer in alive.values()), "all peers are away"
        )
        assert not any(peer.progress.connected for peer in alive.values())
        broker.start()
        agree(experiment, await running)


async def test_one_whose_connection_alone_is_lost_for_a_while_comes_back():
    experiment, alive = read(SMALL, changes=[*RING, "rounds=12"]), {}

    async def main():
        broker, gate = MemoryTransport(), asyncio.Event()

        class Gated:
            """Lets peer0 in again only once the others have gone on without it."""

            @asynccontextmanager
            async def join(self, client, *, will=None):
                if "peer0" in alive and alive["peer0"].joined is not None:
                    await gate.wait()
                async with broker.join(client, will=will) as channel:
                    yield channel

        async def one(name, transport):
            return await live(experiment, transport, source=SOURCE, alive=alive, names=[name])

        names = [f"peer{number}" for number in range(4)]
        transports = [LastingTransport([Gated()], backoff=SOON), *[LastingTransport([broker], backoff=SOON)] * 3]
        running = [asyncio.create_task(one(*pair)) for pair in zip(names, transports, strict=True)]
        await wait_until(lambda: reached(alive, (2, 1)), "a peer is in round 2")
        victim = next(channel for name, channel in broker._broker.channels.items() if "-peer0-" in name)
        victim.lose("it was cut off")
        await wait_until(lambda: "peer0" not in alive["peer1"].membership.present, "peer1 misses peer0")
        await wait_until(lambda: alive["peer1"].mailbox.gossip_step >= (4, 0), "peer1 is in round 4")
        gate.set()
        ended = {}
        for task in running:
            ended |= await task
        return ended

    ended = await asyncio.wait_for(main(), DEADLINE)
    neighbour = ended["peer1"].records
    assert any("peer0" in record.missed for record in neighbour)
    assert not neighbour[-1].missed
    assert all(end.records[-1].round == 11 and torch.isfinite(end.state.rows).all() for end in ended.values())


async def test_a_peer_without_a_broker_gives_up_with_one_sentence():
    experiment, alive = read(SMALL, changes=RING), {}
    short = Backoff(first=0.01, largest=0.02, outage=0.1)

    async def main():
        broker = MemoryTransport()
        running = asyncio.create_task(live(experiment, LastingTransport([broker], backoff=short), alive=alive))
        await wait_until(lambda: reached(alive, (1, 0)), "a peer is in round 1")
        broker.stop()
        await running

    with pytest.raises(BaseExceptionGroup) as caught:
        await asyncio.wait_for(main(), DEADLINE)
    assert caught.group_contains(TransportError, match="raise transport.outage")


async def test_a_large_model_goes_on_where_its_transfer_was_cut():
    changes = ["topology.kind=ring", "topology.peers=2", "rounds=1", "gossip.steps=1", "model.hidden=[120000]"]
    experiment = read(SMALL, changes=[*changes, "learning.dtype=float32"])
    sent, half = 0, asyncio.Event()

    def count(topic, data, retain):
        nonlocal sent
        if "/peer0/pub/" in topic:
            sent += len(data)
            if sent > 4_000_000:
                half.set()
        return [(topic, data, retain)]

    broker = Middle(count)

    async with asyncio.timeout(60):
        running = asyncio.create_task(live(experiment, LastingTransport([broker], backoff=SOON), source=SOURCE))
        await half.wait()
        broker.restart()
        ended = await running
    row = ended["peer0"].state.rows.nbytes
    assert row > 8_000_000
    assert row < sent < row + 2**21  # some messages again, instead of half the model
    assert all(end.peer.connection.channel.outages == 1 and not end.records[0].missed for end in ended.values())
    agree(experiment, ended)
