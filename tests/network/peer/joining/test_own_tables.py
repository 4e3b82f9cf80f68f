"""Live peers that own tables refuse a neighbour with other columns."""

import asyncio

import pytest

import hospitals
from p2pfl.core.errors import PeerError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.transport import MemoryTransport

pytestmark = pytest.mark.slow


def test_a_peer_with_other_levels_is_refused(tmp_path):
    hospitals.write(tmp_path)
    table = hospitals.experiment(tmp_path, transport={"patience": 5.0, "gather": 2.0})
    table["data"]["options"]["columns"] = {**hospitals.COLUMNS, "sex": ["m", "f"]}
    other = read(table)
    usual = read(hospitals.experiment(tmp_path, transport={"patience": 5.0, "gather": 2.0}))

    async def swarm():
        transport = MemoryTransport()

        async def one(name, experiment):
            async with Peer(name, plan(experiment, only=[name]), transport=transport) as peer:
                await peer.run()

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for name in hospitals.PEERS:
                tasks.create_task(one(name, other if name == "peer2" else usual))

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(swarm())
    assert any("data.options" in str(error) for error in raised.value.exceptions)
    assert raised.group_contains(PeerError)
