"""Evidence of honest peers that are killed and go on: it agrees, and says where they were stopped."""

import asyncio

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.experiment.schema import GossipSettings
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.evidence.verification import find_chains, verify
from p2pfl.results.evidence import PeerBegan
from restarts import RestartablePeers
from swarms import SMALL

pytestmark = pytest.mark.slow

KILLS = 20


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd"])
async def test_a_run_of_honest_peers_verifies_after_twenty_kills(tmp_path, algorithm):
    changes = ["topology.kind=ring", "topology.peers=4", f"learning.algorithm={algorithm}", "gossip.steps=1"]
    experiment = read(SMALL, changes=[*changes, f"rounds={3 * KILLS}"])
    folder = tmp_path / "peers"
    folder.mkdir()
    async with asyncio.timeout(180):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        for kill in range(KILLS):
            name, round = lives.names[kill % 4], 2 * kill + 2
            await lives.until(lambda now, name=name, round=round: now[name].mailbox.gossip_step >= (round, 0))
            await lives.kill(name)
            lives.start(name, resume=True)
        await lives.end()
    chains = find_chains([tmp_path])
    assert sum(isinstance(entry.fact, PeerBegan) for own in chains for entry in own.entries) == 4 + KILLS
    result = verify(chains)
    assert result.findings == ()
    assert result.rounds == 3 * KILLS


KINDS = {
    "peers that do not wait": ["learning.algorithm=gossip_learning", "privacy.mode=none"],
    "secure sums": ["privacy.mode=secagg", "topology.kind=complete", "gossip.steps=1"],
    "masks and votes": ["privacy.mode=pairwise", "privacy.departures=go_on", "topology.kind=complete"],
    "masks and commits": ["privacy.mode=pairwise", "privacy.departures=stop"],
    "a codec": ["compression.name=quantise", "privacy.mode=none", "gossip.steps=1"],
    "several steps of a schedule": ["topology.kind=one_peer_exponential", "gossip.steps=2"],
    "totals before and after": ["data.scale=true", "learning.consensus=true"],
}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_evidence_of_honest_peers_agrees_whatever_a_round_is(tmp_path, kind):
    experiment = read(SMALL, changes=["topology.kind=ring", "topology.peers=4", "rounds=4", *KINDS[kind]])
    if experiment.learning.algorithm == "gossip_learning":
        experiment = msgspec.structs.replace(experiment, gossip=GossipSettings())
    folder = tmp_path / "peers"
    folder.mkdir()
    async with asyncio.timeout(120):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        await lives.end()
    for model in folder.glob("*.safetensors"):
        model.unlink()  # the last checkpoint, in place of which a command writes the model of the end
    result = verify(find_chains([tmp_path]))
    assert result.findings == ()
    assert result.rounds == 4
    assert ("what peers sent and received" in result.checked) == (kind != "secure sums")
