"""Live peers whose graph heals, in virtual time: what the others make of one that is killed, leaves, or comes back."""

import asyncio

import pytest

from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.results.notices.neighbours import KeyTrusted
from restarts import RestartablePeers
from swarms import SMALL

pytestmark = pytest.mark.slow

RING = ["topology.kind=ring", "topology.heal=true", "rounds=40", "gossip.steps=2"]


def happened(errand, *changes, folder, experiment=None, transport=None):
    """What an errand finds among the lives of a swarm."""
    experiment = experiment or read(SMALL, changes=[*RING, *changes])

    async def within():
        return await errand(RestartablePeers(experiment, transport or MemoryTransport(), folder))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(within())


def in_round(name, round):
    return lambda now: now[name].mailbox.gossip_step >= (round, 0)


def joined(one, other):
    """Both believe in an edge between them, and can read each other."""

    def believed(now, me, them):
        session = now[me].session
        here, known = session.presence.joined, session.shared.progress.entered
        return them in session.edges.neighbours and them in here and them in known

    def both(now):
        assert now[one].phase == "learning", "it has ended before"
        return believed(now, one, other) and believed(now, other, one)

    return both


async def lost(lives, *, by):
    """One goes, and its neighbours meet."""
    lives.start()
    await lives.until(in_round("peer2", 2))
    await by()
    del lives.tasks["peer2"]
    await lives.until(joined("peer1", "peer3"))


def test_the_neighbours_of_one_that_was_killed_hear_each_other(tmp_path):
    async def errand(lives):
        await lost(lives, by=lambda: lives.kill("peer2"))
        return await lives.end(), lives.notices

    ended, notices = happened(errand, folder=tmp_path)
    assert {("peer1", "peer3")} <= {
        (n.peer, n.neighbour) for n in notices if isinstance(n, KeyTrusted)
    }  # the first that it saw
    assert {name: end.records[-1].missed for name, end in ended.items()} == {f"peer{n}": [] for n in (0, 1, 3, 4, 5)}
    assert {end.records[-1].received for end in ended.values()} == {4}  # two neighbours in two exchanges


@pytest.mark.nightly
def test_the_neighbours_of_one_that_leaves_in_the_middle_hear_each_other(tmp_path):
    async def errand(lives):
        async def goes():
            await lives.now["peer2"].connection.leave(done=False)
            await lives.kill("peer2", silently=True)

        await lost(lives, by=goes)
        return await lives.end()

    ended = happened(errand, folder=tmp_path)
    assert {end.records[-1].received for end in ended.values()} == {4}


def test_one_that_comes_back_takes_its_place(tmp_path):
    async def errand(lives):
        await lost(lives, by=lambda: lives.kill("peer2"))
        lives.start("peer2", resume=True)
        await lives.until(lambda now: joined("peer1", "peer2")(now) and joined("peer2", "peer3")(now))
        assert lives.now["peer1"].session.edges.neighbours == {"peer0", "peer2"}
        return await lives.end()

    ended = happened(errand, folder=tmp_path)
    assert len(ended) == 6
    assert {end.records[-1].received for end in ended.values()} == {4}


def test_peers_that_wait_for_nobody_heal_as_well(tmp_path):
    async def errand(lives):
        await lost(lives, by=lambda: lives.kill("peer2"))
        return await lives.end()

    experiment = {key: value for key, value in SMALL.items() if key != "gossip"}
    changes = ["topology.kind=ring", "topology.heal=true", "learning.algorithm=gossip_learning", "rounds=40"]
    ended = happened(errand, experiment=read(experiment, changes=changes), folder=tmp_path)
    assert set(ended) == {f"peer{n}" for n in (0, 1, 3, 4, 5)}


@pytest.mark.nightly
def test_goodbyes_after_the_last_round_are_cleared_and_those_before_stay(tmp_path):
    transport = MemoryTransport()

    async def errand(lives):
        async def goes():
            await lives.now["peer2"].connection.leave(done=False)
            await lives.kill("peer2", silently=True)

        await lost(lives, by=goes)
        await lives.end()

    happened(errand, folder=tmp_path, transport=transport)
    assert [topic.split("/")[-2] for topic in transport._broker.retained] == ["peer2"]
