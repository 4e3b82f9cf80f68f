"""Peers under masks that lose their power at any moment."""

from collections import Counter

import pytest
from msgspec.structs import replace

from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.writer import Keeper
from worlds.faults import Death, History
from worlds.network import Conditions
from worlds.settings import Plans, Setting
from worlds.world import FOLDER, World

RUN = ("topology.kind=complete", "topology.peers=4", "rounds=12", "gossip.steps=1")
LINE = (
    "transport.patience=8",
    "transport.chunk=8192",
    "privacy.mode=pairwise",
    "privacy.partners=1",
    "privacy.departures=go_on",
)
NOISY = Setting((*RUN, *LINE, "privacy.noise=1.0", "privacy.clip=1.0"))
MOMENTS = (60, 98, 136, 174, 212, 250, 288)
"""Callbacks of a peer after which its power goes, from its first round to its last."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plans():
    return Plans()


class Restoring(World):
    """A world in which the device of one peer gets the files of its first backup before each further start."""

    restores = False
    backup = None

    def __init__(self, *given):
        super().__init__(*given)
        self.sent, covered = Counter(), self.watch.covered

        def count(peer, terms, numbers):
            self.sent[peer.name] += 1
            covered(peer, terms, numbers)

        self.watch.covered = count

    def _peer(self, name, ended, disk):
        if self.restores and name == "peer1" and ended.lives > 1:
            there = self.disks[name]
            self.backup = self.backup or dict(there._files)
            there._files, there._kept = dict(self.backup), dict(self.backup)
            there._deeds.clear()
        return super()._peer(name, ended, disk)


def played(plans, *moments, setting=NOISY, restores=False):
    """Return the world of a swarm in which the power of one device goes at these moments, and its outcome."""
    plan = plans.of(setting, seed=1)
    healthy = {peer: Conditions(latency=0.001) for peer in plan.topology.peers}
    deaths = tuple(Death("peer1", moment, True, 0.5) for moment in moments)
    takes = dict.fromkeys(plan.topology.peers, 0.01)
    world = Restoring(1, setting, plan, History(frozenset({"crashes"}), healthy, {}, takes, deaths=deaths))
    world.restores = restores
    return world, world.run()


def charged(world, name):
    """Return how many releases the journal on a disk has charged, without corrections of their cost."""
    costs, protection = CheckpointStore(FOLDER, name, disk=world.disks[name]).journal().spent, world.plan.protection
    return sum(costs[each] for each in {protection.cost, protection.local})


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("moment", MOMENTS)
def test_no_release_is_uncharged_and_no_mask_is_used_twice_whenever_the_power_goes(plans, moment):
    world, _ = played(plans, moment)
    assert not world.watch.failure
    assert world.faults["crashes"] == 1
    assert charged(world, "peer1") >= world.sent["peer1"] > 0


def test_a_backup_that_is_restored_twice_uses_no_mask_twice(plans):
    world, _ = played(plans, 150, 210, 270, restores=True)
    assert world.ended["peer1"].lives == 4
    assert not world.watch.failure


def forget(monkeypatch, noted):
    """Let what `noted` returns be written in place of the journal in four of five rounds."""
    durable = Keeper.durable

    def forgetful(keeper, extended):
        def written(journal):
            now = extended(journal)
            return now if now is None or now.over or now.released % 5 == 1 else noted(journal, now)

        return durable(keeper, written)

    monkeypatch.setattr(Keeper, "durable", forgetful)


def test_a_peer_that_does_not_write_its_charges_is_found_out(plans, monkeypatch):
    forget(monkeypatch, lambda journal, now: replace(now, costs=journal.costs))
    worlds = (played(plans, moment)[0] for moment in MOMENTS)
    assert any(not world.watch.failure and charged(world, "peer1") < world.sent["peer1"] for world in worlds)
