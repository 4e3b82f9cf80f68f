"""Peers over a real mosquitto that is killed and started again, or ends in order; with and without what it kept."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.faults import Mortal
from certificates import authority
from p2pfl.core.errors import AccessError, TransportError
from p2pfl.experiment import read
from p2pfl.network.protocol.session import name_claim
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.broker import mosquitto
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.simulation import simulate
from swarms import SMALL, live
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")]

SOON = Backoff(first=0.05, largest=0.2, outage=60.0)
SOURCE = SeededSource(5)
PEERS = [f"peer{number}" for number in range(4)]
RING = ["topology.kind=ring", "topology.peers=4", "rounds=16", "privacy.mode=pairwise"]


@dataclass(frozen=True)
class Wire:
    """Quality of service between peers and brokers, and TLS where there is an authority."""

    qos: int
    files: tuple[Path, Path, Path] | None = None  # of the authority, of the broker's certificate and of its key

    def mortal(self, folder=None):
        """Return a broker."""
        lines = "" if self.files is None else f"certfile {self.files[1]}\nkeyfile {self.files[2]}\n"
        return Mortal(folder, more=lines)

    def reaching(self, broker):
        """Start a broker; return how peers reach it."""
        url = broker.start()
        if self.files is None:
            return MqttTransport(url, qos=self.qos)
        return MqttTransport(url.replace("mqtt:", "mqtts:"), qos=self.qos, ca=self.files[0])


WIRES = ["bare", "QoS 0", *(pytest.param(each, marks=pytest.mark.nightly) for each in ("TLS", "QoS 0, TLS"))]


@pytest.fixture(params=WIRES)
def wire(request, tmp_path):
    return Wire(0 if "QoS 0" in request.param else 1, authority(tmp_path) if "TLS" in request.param else None)


@pytest.fixture(params=["killed", "ended in order, persistent"])
def mortal(request, tmp_path, wire):
    """A broker, and whether it ends in order."""
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(0o777)
    broker = wire.mortal(tmp_path if "persistent" in request.param else None)
    yield broker, "order" in request.param
    broker.stop(in_order=True)


async def reached(alive, round):
    """Until one of the peers is in a round."""
    await wait_until(
        lambda: len(alive) == len(PEERS) and any(peer.mailbox.gossip_step >= (round, 0) for peer in alive.values()),
        f"a peer is in round {round}",
        every=0.001,
    )


def agree(experiment, ended):
    """Nothing was missed, and all rows are those of the simulation but for rounding to the grid of the masks, 2^-20."""
    run = simulate(experiment, source=SOURCE, baselines=False)
    for name, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert not any(record.missed for record in end.records)
        assert all((model[key] - value).abs().max() < 2.0**-19 for key, value in run.models[name].items())


async def test_a_broker_that_restarts_three_times_changes_nothing(mortal, wire):
    broker, in_order = mortal
    experiment, alive = read(SMALL, changes=RING), {}

    async with asyncio.timeout(60):
        lasting = LastingTransport([wire.reaching(broker)], backoff=SOON)
        running = asyncio.create_task(live(experiment, lasting, source=SOURCE, alive=alive))
        for round in (2, 6, 11):
            await reached(alive, round)
            await asyncio.to_thread(broker.restart, in_order=in_order)
        ended = await running
    assert all(end.peer.connection.channel.outages >= 3 for end in ended.values())
    agree(experiment, ended)


async def test_peers_meet_on_the_second_broker_when_the_first_is_gone_for_good(wire):
    first, second = wire.mortal(), wire.mortal()
    experiment, alive = read(SMALL, changes=RING), {}

    async def main():
        transports = [wire.reaching(first), wire.reaching(second)]
        running = asyncio.create_task(
            live(experiment, LastingTransport(transports, backoff=SOON), source=SOURCE, alive=alive)
        )
        await reached(alive, 4)
        await asyncio.to_thread(first.stop)
        return await running

    try:
        agree(experiment, await asyncio.wait_for(main(), 60))
    finally:
        first.stop(in_order=True)
        second.stop(in_order=True)


async def test_peers_on_both_sides_of_two_bridged_brokers_learn_together():
    far = Mortal()
    address = far.start().removeprefix("mqtt://")
    near = Mortal(more=f"connection bridge\naddress {address}\ntopic p2pfl/v1/# both 1\ncleansession true\n")
    experiment = read(SMALL, changes=RING)

    async def main():
        sides = [LastingTransport([MqttTransport(url)], backoff=SOON) for url in (near.start(), far.broker.url)]
        halves = [live(experiment, side, source=SOURCE, names=PEERS[start::2]) for start, side in enumerate(sides)]
        one, other = await asyncio.gather(*halves)
        return one | other

    try:
        agree(experiment, await asyncio.wait_for(main(), 60))
    finally:
        near.stop(in_order=True)
        far.stop(in_order=True)


WIDE = ["topology.kind=path", "topology.peers=2", "rounds=1", "model.hidden=[4000]"]
CLOUD = "max_packet_size 131072\n"


async def met(broker, *changes, version=4):
    """Two peers with a row of 0.5 MB over a broker that takes 128 KB."""
    experiment = read(SMALL, changes=[*WIDE, *changes])
    limit = experiment.transport.chunk + HEAD
    lasting = LastingTransport([MqttTransport(broker.start(), version=version, limit=limit)], backoff=SOON)
    try:
        return await asyncio.wait_for(live(experiment, lasting, source=SOURCE), 60)
    finally:
        broker.stop(in_order=True)


@pytest.mark.parametrize(("changes", "version"), [([], 5), (["transport.chunk=126976"], 4)], ids=["told", "set"])
async def test_rows_pass_a_broker_that_takes_128_kilobytes(changes, version):
    ended = await met(Mortal(more=CLOUD), *changes, version=version)
    assert not any(record.missed for end in ended.values() for record in end.records)


@pytest.mark.parametrize(
    ("line", "version"),
    [(CLOUD, 4), ("message_size_limit 100000\n", 4), ("message_size_limit 100000\n", 5)],
    ids=["packets", "messages", "messages, MQTT 5"],
)
async def test_a_broker_that_takes_too_little_without_telling_is_one_sentence_with_the_setting(
    line, version, monkeypatch
):
    monkeypatch.setattr(name_claim, "ECHO", 3.0)
    with pytest.raises(BaseExceptionGroup) as caught:
        await met(Mortal(more=line), version=version)
    assert caught.group_contains(
        TransportError, match=r"(connections ended while|bytes within 3 s).*lower transport.chunk"
    )


async def test_a_peer_that_is_locked_out_while_it_runs_stops_at_once_with_the_reason(tmp_path):
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(0o777)
    (tmp_path / "nobody").touch()
    broker, strict = Mortal(), Mortal(more=f"password_file {tmp_path / 'nobody'}\nallow_anonymous false\n")
    experiment, alive = read(SMALL, changes=[*RING, "rounds=200"]), {}

    async def main():
        lasting = LastingTransport([MqttTransport(broker.start())], backoff=SOON)
        running = asyncio.create_task(live(experiment, lasting, source=SOURCE, alive=alive))
        await reached(alive, 2)
        broker.stop()
        strict.port = broker.port
        await asyncio.to_thread(strict.start)
        await running

    try:
        with pytest.raises(BaseExceptionGroup) as caught:
            await asyncio.wait_for(main(), 60)
    finally:
        strict.stop(in_order=True)
    assert caught.group_contains(AccessError, match="Not authorized")
