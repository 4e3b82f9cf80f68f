"""Peers over a real mosquitto that is killed and started again, or ends in order; with and without what it kept."""

import asyncio

import pytest
from swarms import SMALL, live

from benchmarks.faults import Mortal
from p2pfl.experiment import read
from p2pfl.identity import SeededSource
from p2pfl.simulation import simulate
from p2pfl.transport.backoff import Backoff
from p2pfl.transport.broker import mosquitto
from p2pfl.transport.lasting import Lasting
from p2pfl.transport.mqtt import MqttTransport

pytestmark = pytest.mark.skipif(mosquitto() is None, reason="mosquitto is not installed")

SOON = Backoff(first=0.05, largest=0.2, outage=60.0)
SOURCE = SeededSource(5)
PEERS = [f"peer{number}" for number in range(4)]
RING = ["topology.kind=ring", "topology.peers=4", "rounds=16", "privacy.mode=pairwise"]


@pytest.fixture(params=["killed", "ended in order, persistent"])
def mortal(request, tmp_path):
    """A broker, and whether it ends in order."""
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(0o777)
    broker = Mortal(tmp_path if "persistent" in request.param else None)
    yield broker, "order" in request.param
    broker.stop(in_order=True)


def agree(experiment, ended):
    """Nothing was missed, and all rows are those of the simulation but for rounding to the grid of the masks, 2^-20."""
    run = simulate(experiment, source=SOURCE, baselines=False)
    for name, end in ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert not any(record.missed for record in end.records)
        assert all((model[key] - value).abs().max() < 2.0**-19 for key, value in run.models[name].items())


def test_a_broker_that_restarts_three_times_changes_nothing(mortal):
    broker, in_order = mortal
    experiment, alive = read(SMALL, changes=RING), {}

    async def main():
        lasting = Lasting([MqttTransport(broker.start())], backoff=SOON)
        running = asyncio.create_task(live(experiment, lasting, source=SOURCE, alive=alive))
        for round in (2, 6, 11):
            while len(alive) < 4 or all(peer.mailbox.exchange < (round, 0) for peer in alive.values()):
                await asyncio.sleep(0.001)
            await asyncio.to_thread(broker.restart, in_order=in_order)
        return await running

    ended = asyncio.run(asyncio.wait_for(main(), 60))
    assert all(end.peer.link.line.channel.outages >= 3 for end in ended.values())
    agree(experiment, ended)
