"""A peer that waits for its neighbours sends and receives little, and meets them soon once they appear."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from itertools import combinations

import pytest

from p2pfl.core.draws import draw
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.transport.lasting import LastingTransport
from virtual_fleet import Fleet, run

COMPLETE = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "transport.gather=36000"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=3.0"]
PEERS = ("peer0", "peer1", "peer2", "peer3")
FRAME = 200
"""Bytes of TCP, TLS and MQTT around a message and its acknowledgement, without the topic."""

pytestmark = pytest.mark.slow


class MeteredTransport(MemoryTransport):
    """A broker that counts the bytes of each peer on the wire, and may lose deliveries, as at quality of service 0."""

    def __init__(self, *, loss=0.0, seed=0):
        super().__init__(lose=self._receive)
        self.wire, self._loss, self._random = Counter(), loss, draw(seed, "lossy broker")

    def _receive(self, client, message):
        if self._loss and float(self._random.random()) < self._loss:
            return True
        self.wire[client.split("-")[1]] += len(message.topic) + len(message.data) + FRAME
        return False

    @asynccontextmanager
    async def join(self, client, *, will=None):
        async with super().join(client, will=will) as channel:
            publish = channel.publish

            async def counted(topic, data, *, retain=False):
                self.wire[client.split("-")[1]] += len(topic) + len(data) + FRAME
                await publish(topic, data, retain=retain)

            channel.publish = counted
            yield channel


class Waiting(Fleet):
    """Peers some of which are absent."""

    def __init__(self, changes, folder, **broker):
        super().__init__([*COMPLETE, *changes], folder)
        self.broker = MeteredTransport(**broker)
        self.transport = LastingTransport([self.broker])

    async def minute(self, name="peer0"):
        """Bytes of a peer in a minute: of its payloads, and on the wire."""
        connection = self.now[name].connection
        before = connection.bytes_in + connection.bytes_out, self.broker.wire[name]
        await asyncio.sleep(60)
        return connection.bytes_in + connection.bytes_out - before[0], self.broker.wire[name] - before[1]

    def have_met(self, *names):
        """Return whether these peers can read each other, and know of each other that they wait."""
        for one, other in [*combinations(names, 2), *((b, a) for a, b in combinations(names, 2))]:
            peer = self.now[one]
            if peer.joined is None or self.now[other].joined is None:
                return False
            session, there = peer.session, self.now[other].session.shared.me
            announced = session.membership.up.get(other)
            if announced is None or announced.incarnation != there.incarnation:
                return False
            if not session.shared.codec.envelope.has_settled([other]) or other not in session.membership.present:
                return False
        return True

    async def meet(self, *names):
        """Return the seconds until these peers have met."""
        return await self.seconds_until(lambda: self.have_met(*names))

    async def seconds_until(self, holds):
        """Return the seconds until something holds, or 100 if it does not by then."""
        for tenths in range(1000):
            if holds():
                return tenths / 10
            await asyncio.sleep(0.1)
        return 100.0

    async def seconds_to_play(self):
        """Return the seconds until all peers have played a round."""
        return await self.seconds_until(lambda: all(self.records[each] for each in PEERS))


# ---------------------------------------------------------------------- bytes


async def minutes(changes, folder, *, names):
    fleet = Waiting(changes, folder)
    fleet.start(*names)
    await asyncio.sleep(0.01)
    taken = [await fleet.minute() for _ in range(5)]
    await fleet.kill(*names)
    return taken


@pytest.mark.parametrize("changes", [[], MASKS], ids=["plain", "masks"])
def test_a_minute_of_waiting_for_three_neighbours_costs_less_than_5_kb_on_the_wire(tmp_path, changes):
    (payloads, wire), *later = run(minutes, changes, tmp_path, names=PEERS[:1])
    assert payloads < 15_000
    assert wire < 20_000
    assert max(wire for _, wire in later) < 5_000


@pytest.mark.parametrize("changes", [[], MASKS], ids=["plain", "masks"])
def test_three_peers_that_wait_for_a_fourth_send_and_receive_less_than_5_kb_a_minute(tmp_path, changes):
    _, *later = run(minutes, changes, tmp_path, names=PEERS[:3])
    assert max(payloads for payloads, _ in later) < 5_000


# ---------------------------------------------------------------------- they meet soon all the same


async def appear(changes, folder, *, seed, **broker):
    """Peers appear one after the other, at any moment of ten minutes; return how long each took to meet the others."""
    fleet, random = Waiting(changes, folder, **broker), draw(seed, "appear")
    order, taken = [PEERS[each] for each in random.permutation(4)], []
    for number, name in enumerate(order):
        await asyncio.sleep(float(random.random()) * 600)
        fleet.start(name)
        if number == 3:
            taken.append(await fleet.seconds_to_play())
        elif number:
            taken.append(await fleet.meet(*order[: number + 1]))
    await fleet.kill()
    return taken


@pytest.mark.parametrize("changes", [[], MASKS], ids=["plain", "masks"])
@pytest.mark.parametrize("seed", range(4))
def test_neighbours_that_appear_at_any_moment_meet_at_once_and_begin(tmp_path, changes, seed):
    assert max(run(appear, changes, tmp_path, seed=seed)) < 2


def test_over_a_broker_that_loses_a_fifth_of_all_messages_they_meet_in_seconds(tmp_path):
    taken = []
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        taken += run(appear, [], tmp_path / str(seed), seed=seed, loss=0.2)[:-1]
    assert max(taken) < 10


async def restart(changes, folder, *, how):
    """Two peers wait for others for ten minutes, then one restarts, or the broker; return how soon they meet."""
    fleet = Waiting(changes, folder)
    fleet.start("peer0", "peer1")
    await asyncio.sleep(600)
    assert fleet.have_met("peer0", "peer1")
    if how == "silently":
        await fleet.kill("peer1", silently=True)
        fleet.start("peer1", keys=1)
    elif how == "later":
        await fleet.kill("peer1")
        await asyncio.sleep(300)
        assert not fleet.have_met("peer0", "peer1")
        fleet.start("peer1")
    else:
        fleet.broker.restart(wills=True, persistent=how == "broker with its disk")
    await asyncio.sleep(0.01)
    seconds = await fleet.meet("peer0", "peer1")
    await asyncio.sleep(120)  # what a lost connection leaves behind shows later
    assert fleet.have_met("peer0", "peer1")
    quiet = await fleet.minute()
    fleet.start("peer2", "peer3")
    began = await fleet.seconds_to_play()
    await fleet.kill()
    return seconds, quiet[0], began


@pytest.mark.parametrize("how", ["silently", "later", "broker", "broker with its disk"])
def test_after_a_restart_they_meet_again_at_once_and_wait_as_quietly(tmp_path, how):
    seconds, quiet, began = run(restart, [], tmp_path, how=how)
    assert seconds < 2
    assert quiet < 5_000
    assert began < 2
