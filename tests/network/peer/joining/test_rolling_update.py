"""An update that goes from peer to peer while the others run, and back again."""

import asyncio

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.notices.kinds import VersionDiffers
from p2pfl.simulation import simulate
from restarts import HeldTraining, RestartablePeers
from swarms import SMALL, timeless

pytestmark = pytest.mark.slow

GRID = 2.0**-20
CHANGES = ["topology.kind=ring", "topology.peers=3", "rounds=14", "privacy.mode=pairwise", "privacy.mask=30.0"]

UPDATES = [("peer0", 2, "0.3.0"), ("peer1", 5, "0.3.0"), ("peer2", 8, "0.3.0"), ("peer1", 11, "0.2.0")]
"""Name of a peer, the round before whose training it stops, and its next version; the last update is a rollback."""


class UpdatedPeers(RestartablePeers):
    """Peers of which some incarnations run another version, and some wait in a round until they are stopped."""

    def __init__(self, *given, **settings):
        super().__init__(*given, **settings)
        self.versions = dict.fromkeys(self.names, "0.2.0")
        self.stops = {name: [round for each, round, _ in UPDATES if each == name] for name in self.names}
        self.reached = {name: asyncio.Event() for name in self.names}

    def _peer(self, name, former, incarnation, **given):
        peer = super()._peer(name, former, incarnation, **given)
        peer.membership.me = msgspec.structs.replace(peer.me, version=self.versions[name])
        HeldTraining(peer, round=next(iter(self.stops[name]), None)).reached = self.reached[name]
        return peer

    async def update(self, name, version):
        """Stop a peer where it waits, and start it again with another version."""
        await self.reached[name].wait()
        await self.kill(name)
        self.reached[name] = asyncio.Event()
        self.stops[name].pop(0)
        self.versions[name] = version
        self.start(name, resume=True)


async def run(experiment, folder):
    """Update each peer while the others wait for it, and take the update of one of them back."""
    peers = UpdatedPeers(experiment, MemoryTransport(), folder, again=True)
    peers.start()
    for name, _, version in UPDATES:
        await peers.update(name, version)
    await peers.end()
    return peers


def test_an_update_of_one_peer_after_the_other_and_its_rollback_leave_the_models_of_the_simulation(tmp_path):
    experiment = read(SMALL, changes=CHANGES)
    peers = timeless(run(experiment, tmp_path))
    whole = simulate(experiment, source=SeededSource(5), baselines=False).models
    for name, end in peers.ended.items():
        model = end.peer.plan.learner.state_dict(end.state.rows[0])
        assert all(float((model[key] - value).abs().max()) < 16 * GRID for key, value in whole[name].items())
    reports = {(each.ours, each.theirs) for each in peers.notices if isinstance(each, VersionDiffers)}
    assert reports == {("0.2.0", "0.3.0"), ("0.3.0", "0.2.0")}
