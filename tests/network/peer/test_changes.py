"""A running swarm that its operator changes: live peers in virtual time, whose broker or neighbour lies."""

import asyncio

import msgspec
import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.experiment.swarm_change import ChangeAnswer, SwarmChange, run_digest, settings_of
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.message_codec import answer_topic, change_topic
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FIRST, Identity, Roster, SeededSource
from p2pfl.results import Run
from swarms import SMALL, timeless

NAMES = tuple(f"peer{number}" for number in range(4))
CHANGES = ["topology.kind=ring", "topology.peers=4", "rounds=8", "learning.batch=all", "transport.patience=5"]
OPERATOR = Identity(bytes(range(32)))
KEYS = {name: Identity(bytes([number] * 32)) for number, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()}, operator=OPERATOR.public)


@pytest.fixture
def experiment():
    return read(SMALL, changes=CHANGES)


def peer_of(name, experiment, transport, folder, *, notices, roster=ROSTER):
    run = folder / name
    if not run.exists():
        Run(experiment, folder=run)
    store = CheckpointStore(run / "peers", name)
    return Peer(
        name,
        plan(experiment, only=[name]),
        transport=transport,
        source=SeededSource(7),
        identity=KEYS[name],
        trust=roster,
        incarnation=FIRST,
        notice=lambda notice: notices.append(notice),
        store=store,
    )


def swarm(experiment, folder, *, publish=lambda run: {}, lose=None, roster=ROSTER):
    """Run the peers to their ends over a broker that retains what an operator has published."""
    notices, ended, answers = [], {}, {}

    async def one(name, transport):
        async with peer_of(name, experiment, transport, folder, notices=notices, roster=roster) as peer:
            ended[name] = (await peer.run()).rows, peer.done

    async def together():
        transport = MemoryTransport(lose=lose)
        run = run_digest(peer_of(NAMES[0], experiment, transport, folder, notices=[], roster=roster).me.facts)
        async with transport.join("operator") as channel:
            for topic, payload in publish(run).items():
                await channel.publish(topic, payload, retain=True)
        async with asyncio.TaskGroup() as tasks:
            for name in NAMES:
                tasks.create_task(one(name, transport))
        async with transport.join("reader") as channel:
            await channel.subscribe(answer_topic("test"))
            for _ in NAMES:
                try:
                    async with asyncio.timeout(1):
                        message = await anext(channel)
                except TimeoutError:
                    break
                name = message.topic.split("/")[4]
                answers[name] = ChangeAnswer.decode(
                    bytes(message.data), swarm="test", peer=name, public=KEYS[name].public
                )

    timeless(together())
    return ended, notices, answers


def change(run, experiment, *, number=1, last=3, operator=OPERATOR, **other):
    made = SwarmChange(
        swarm="test", number=number, run=run, settings=settings_of(experiment), roster=ROSTER.text, last=last
    )
    return msgspec.structs.replace(made, **other).signed(operator).encode()


def of_kind(notices, kind):
    return [notice for notice in notices if type(notice).__name__ == kind]


def test_an_order_ends_the_run_at_all_peers_as_if_it_had_that_many_rounds(experiment, tmp_path):
    order = lambda run: {change_topic("test"): change(run, experiment)}  # noqa: E731
    ended, notices, answers = swarm(experiment, tmp_path / "changed", publish=order)
    whole, _, _ = swarm(read(SMALL, changes=[*CHANGES, "rounds=3"]), tmp_path / "whole")
    assert {done for _, done in ended.values()} == {3}
    for name in NAMES:
        assert torch.equal(ended[name][0], whole[name][0])
    assert {notice.peer for notice in of_kind(notices, "ChangeTaken")} == {*NAMES}
    assert {name: (answer.last, answer.refused) for name, answer in answers.items()} == dict.fromkeys(NAMES, (3, ""))
    assert not of_kind(notices, "ChangeUnconfirmed")
