"""Live peers that are killed and go on: all at once, one while the others wait, one while the others go on."""

import asyncio
import contextlib
import errno
import os

import msgspec
import pytest
import torch

from p2pfl.core.errors import LostModelError, ResumeError, StorageError
from p2pfl.core.files import Drive
from p2pfl.experiment import read
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.interface.events import Tick
from p2pfl.network.protocol.ledgers.mask_slots import END
from p2pfl.network.protocol.membership.entry_round import common
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.notices.kinds import JoinsLate, LossRose, NeighboursMissing, ReleasesEnded
from p2pfl.simulation import simulate
from restarts import HeldTraining, RestartablePeers, begun
from swarms import SMALL

pytestmark = pytest.mark.slow

GRID = 2.0**-20
RING = ["topology.kind=ring", "topology.peers=4", "rounds=6", "gossip.steps=3"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.partners=1", "privacy.departures=go_on"]
CASES = {
    "FedAvg": [],
    "FedAvg, Chebyshev": ["gossip.acceleration=chebyshev"],
    "D-PSGD": ["learning.algorithm=dpsgd", "learning.optimizer=adam", "gossip.steps=1"],
    "SCAFFOLD": ["learning.algorithm=scaffold"],
    "gradient tracking": ["learning.algorithm=gradient_tracking", "gossip.steps=1"],
    "CHOCO": ["compression.name=quantise", "compression.options.bits=8"],
    "CHOCO on a schedule": ["topology.kind=one_peer_exponential", "compression.name=quantise"],
    "a schedule": ["topology.kind=one_peer_exponential"],
    "FedBN": ["learning.algorithm=fedbn", "model.name=norming:Normed", "model.hidden=[64]"],
}


def simulated(experiment):
    return simulate(experiment, source=SeededSource(5), baselines=False).models


def models(ended):
    return {name: end.peer.plan.learner.state_dict(end.state.rows[0]) for name, end in ended.items()}


def apart(one, other):
    return max(float((one[name][key] - other[name][key]).abs().max()) for name in one for key in one[name])


def checkpoints_of(peer, folder):
    """Back up the checkpoints of a peer that runs; its newest becomes the one before, and is then read there."""
    found = {}
    for path in (folder / f"{peer}.state", folder / f"{peer}.previous.state"):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.read_bytes()
    assert found
    return found


async def restarted(changes, folder, *, at):
    """All peers are killed when the first of them is in a certain exchange, and go on together."""
    experiment = read(SMALL, changes=[*RING, *changes])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        await lives.until(lambda now: all(peer.phase == "learning" for peer in now.values()))
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= at for peer in now.values()))
        await lives.kill()
        together = common(CheckpointStore(folder, name).former().rounds for name in lives.names)
        begun = {name: max(CheckpointStore(folder, name).former().at(together).rounds) for name in lives.names}
        for name, first in begun.items():
            lives.records[name] = [record for record in lives.records[name] if record.round < first]
        lives.start(resume=True, at=together)
        ended = await lives.end()
    assert all(first >= at[0] - 1 for first in begun.values())
    for end in ended.values():
        assert [record.round for record in end.records] == list(range(6))
        assert not any(record.missed for record in end.records)
    return experiment, ended


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
async def test_all_that_are_killed_end_as_if_nothing_had_happened(changes, tmp_path):
    experiment, ended = await restarted(changes, tmp_path, at=(3, 1 if "gossip.steps=1" not in changes else 0))
    assert apart(models(ended), simulated(experiment)) < 1e-10


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("at", [(0, 0), (0, 1), (3, 0), (5, 0)])
async def test_masks_of_a_round_that_is_released_again_cancel(at, tmp_path):
    changes = [*MASKS, "topology.kind=complete", "gossip.steps=1"]
    experiment, ended = await restarted(changes, tmp_path, at=at)
    assert apart(models(ended), simulated(experiment)) <= GRID


async def test_with_rare_checkpoints_all_go_back_to_the_same_round_and_end_as_if_nothing_had_happened(tmp_path):
    experiment, ended = await restarted(["transport.checkpoint=3"], tmp_path, at=(4, 0))
    assert [each.round for each in CheckpointStore(tmp_path, "peer0").checkpoints()] == [6, 3]
    assert apart(models(ended), simulated(experiment)) <= GRID


class Failing(Drive):
    """A disk that fails from one of its operations on, as for a process that is killed there."""

    def __init__(self, left):
        self.left = left

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write(self, path, data, *, mode):
        self._count()
        super().write(path, data, mode=mode)

    def rename(self, path, to):
        self._count()
        super().rename(path, to)

    def sync(self, folder):
        self._count()
        super().sync(folder)


NOISE = ["privacy.mode=pairwise", "privacy.mask=30.0", "privacy.partners=1", "privacy.noise=0.5", "privacy.clip=1.0"]


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("operation", range(4, 40, 3))
async def test_a_peer_that_dies_at_any_write_goes_on_with_nothing_reused_or_uncharged(operation, tmp_path):
    experiment = read(SMALL, changes=[*RING, *NOISE, "gossip.steps=1", "transport.checkpoint=3"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        lives.now["peer1"].keeper.store.disk = Failing(operation)
        with pytest.raises(StorageError):
            await lives.until(lambda _: lives.tasks["peer1"].done() and lives.tasks["peer1"].result())
        await lives.kill()
        before = len(lives.records["peer1"])
        slots = CheckpointStore(tmp_path, "peer1").journal().until
        lives.start(resume=True)
        ended = await lives.end()
    end = ended["peer1"]
    assert end.records[-1].round == 5
    assert sum(end.peer.keeper.journal.spent.values()) >= len(lives.records["peer1"]) >= before + 1
    assert end.peer.keeper.journal.until > slots


async def killed_while_leaving(lives):
    """All have played all rounds."""
    lives.start()
    await lives.until(lambda now: any(peer.phase == "leaving" for peer in now.values()))
    await lives.kill()


async def test_all_that_are_killed_while_one_says_goodbye_find_each_other_again(tmp_path):
    """All have promised to release no more by then."""
    experiment = read(SMALL, changes=[*RING, *MASKS, "topology.kind=complete", "gossip.steps=1"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        await killed_while_leaving(lives)
        assert all(CheckpointStore(tmp_path, name).former().journal.until == END for name in lives.names)
        lives.start(resume=True, at=common(CheckpointStore(tmp_path, name).former().rounds for name in lives.names))
        ended = await lives.end()
    assert apart(models(ended), simulated(experiment)) <= GRID


COMPLETE = [*MASKS, "topology.kind=complete", "gossip.steps=1"]


def over(folder, name, **changes):
    """A peer has promised to release nothing more."""
    store = CheckpointStore(folder, name)
    store.note(msgspec.structs.replace(store.journal(), until=END, **changes))


def said(lives, name, kind):
    """Notices of one kind that a peer gave."""
    return [notice for notice in lives.notices if notice.peer == name and isinstance(notice, kind)]


async def test_who_lost_its_last_row_after_all_rounds_keeps_the_one_before_and_says_so(tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "transport.gather={ seconds = 2.0, quorum = 0.6 }"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        await killed_while_leaving(lives)
        (tmp_path / "peer1.state").unlink()
        lives.start(resume=True)
        ended = await lives.end()
    assert said(lives, "peer1", ReleasesEnded) == [ReleasesEnded(peer="peer1", rounds=5, lost=True)]
    assert [record.round for record in ended["peer1"].records] == list(range(6))  # none of them again


@pytest.mark.parametrize("departures", ["go_on", "wait"])
async def test_who_has_lost_both_checkpoints_goes_on_with_the_others_from_where_they_are(departures, tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "rounds=10", f"privacy.departures={departures}"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (5, 0) for peer in now.values()))
        await lives.kill()
        for path in tmp_path.glob("peer1*.state"):
            path.unlink()
        lives.start(resume=True)
        ended = await lives.end()
    assert all(notice.again for notice in said(lives, "peer1", JoinsLate))
    assert said(lives, "peer1", JoinsLate)
    for name in lives.names:
        assert ended[name].records[-1].round == 9
        assert not any(record.missed for record in ended[name].records)


@pytest.mark.parametrize("departures", ["go_on", "wait"])
async def test_who_has_older_checkpoints_than_the_others_goes_on_with_them_from_where_they_are(departures, tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "rounds=12", f"privacy.departures={departures}"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: now["peer3"].mailbox.gossip_step >= (3, 0))
        older = checkpoints_of("peer3", tmp_path)
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (7, 0) for peer in now.values()))
        await lives.kill()
        assert checkpoints_of("peer3", tmp_path) != older
        for path in tmp_path.glob("peer3.*state"):
            path.unlink()
        for path, data in older.items():  # a backup
            path.write_bytes(data)
        lives.start(resume=True)
        ended = await lives.end()
    for name in lives.names:
        assert ended[name].records[-1].round == 11
        assert not ended[name].records[-1].missed
    assert said(lives, "peer3", JoinsLate)


@pytest.mark.parametrize("departures", ["go_on", "wait"])
async def test_one_that_announces_checkpoints_of_rounds_to_come_does_not_part_the_others(departures, tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "rounds=12", f"privacy.departures={departures}"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (5, 0) for peer in now.values()))
        await lives.kill()
        lives.start(resume=True)
        insider = lives.now["peer3"]
        insider.membership.me = msgspec.structs.replace(insider.me, rounds=[11])
        ended = await lives.end()
    assert all(ended[name].records[-1].round == 11 for name in ("peer0", "peer1", "peer2"))


@pytest.mark.parametrize("weighted", [True, False])
async def test_masks_cancel_in_the_round_in_which_a_peer_comes_back(weighted, tmp_path):
    changes = [*RING, *COMPLETE, "rounds=14", "transport.patience=3", "privacy.mask=300.0"]
    experiment = read(SMALL, changes=[*changes, f"learning.weighted={str(weighted).lower()}"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: now["peer1"].mailbox.gossip_step >= (3, 0))
        held = HeldTraining(lives.now["peer0"], round=8)
        await lives.kill("peer1")
        lives.start("peer1", resume=True)
        await lives.until(lambda now: begun(now["peer1"]) or held.reached.is_set())
        held.go.set()
        ended = await lives.end()
    assert said(lives, "peer1", JoinsLate)
    for name in lives.names:
        assert ended[name].state.rows.abs().max() < 5  # .9 without masks, 100 with a share of one
        assert not said(lives, name, LossRose)


async def test_who_had_given_up_and_left_no_row_cannot_go_on(tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE])

    async def main():
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: any(peer.mailbox.gossip_step >= (2, 0) for peer in now.values()))
        await lives.kill()
        over(tmp_path, "peer1")
        for path in tmp_path.glob("peer1*.state"):
            path.unlink()
        for _ in range(2):  # as often as it is tried
            lives.start("peer1", resume=True)
            await asyncio.wait({lives.tasks["peer1"]})
        await lives.tasks["peer1"]

    with pytest.raises(
        LostModelError, match="is not on the disk, and an earlier incarnation promised to release no more; begin"
    ):
        await asyncio.wait_for(main(), 60)


async def test_who_has_played_all_rounds_ends_without_the_others(tmp_path):
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "transport.gather=2"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        await killed_while_leaving(lives)
        lives.start("peer1", resume=True)
        await lives.tasks["peer1"]
    assert said(lives, "peer1", NeighboursMissing)


async def stranded(folder, *, goodbye):
    """One peer is killed in round 3 and comes back when the others have ended, or while they say goodbye."""
    experiment = read(SMALL, changes=[*RING, *COMPLETE, "transport.gather=2"])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        await lives.until(lambda now: now["peer1"].mailbox.gossip_step >= (3, 0))
        await lives.kill("peer1")
        others = [lives.tasks[name] for name in ("peer0", "peer2", "peer3")]
        await asyncio.gather(*others)
        lives.start("peer1", resume=True)
        if goodbye:
            await lives.until(lambda now: now["peer1"].phase == "gathering")
            membership = lives.now["peer1"].membership
            membership.proven |= membership.neighbours  # it met them before they left
            membership.done |= membership.neighbours
            lives.now["peer1"].connection.handle(Tick(grace=0.0))
        await lives.tasks["peer1"]


async def test_who_comes_back_when_nobody_is_there_is_told_that_the_run_has_ended_or_stopped(tmp_path):
    with pytest.raises(ResumeError) as caught:
        await stranded(tmp_path, goodbye=False)
    said = str(caught.value)
    assert said.startswith('"peer1" cannot resume: peer0, peer2, peer3 did not come within 2 s')
    assert 'the model of "peer1" after round ' in said
    assert "start the others with --resume, too, or begin a new run without it" in said
    assert caught.value.status == 1
    assert caught.value.absent == ("peer0", "peer2", "peer3")


async def test_who_comes_back_to_goodbyes_after_the_last_round_is_told_at_once_that_the_run_has_ended(tmp_path):
    with pytest.raises(ResumeError, match='the run ended while "peer1" was away: peer0, peer2, peer3 played the last'):
        await stranded(tmp_path, goodbye=True)


async def test_all_that_are_killed_after_they_stopped_early_end_as_if_nothing_had_happened(tmp_path):
    stop = ["rounds=9", "learning.stop=1000", "learning.consensus=true"]  # after the second round
    experiment = read(SMALL, changes=[*RING, *COMPLETE, *stop])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        await killed_while_leaving(lives)
        lives.start(resume=True)
        ended = await lives.end()
    assert apart(models(ended), simulated(experiment)) <= GRID
    for name, end in ended.items():
        assert [record.round for record in end.records] == [0, 1]
        assert end.peer.ended.common is not None
        assert not said(lives, name, ReleasesEnded)


async def interrupted(changes, folder, *, silently, missed=0, resume=True):
    """One peer is killed in the training of round 3, and comes back before, or after, others have gone on."""
    experiment = read(SMALL, changes=[*RING, "rounds=9", "transport.patience=20", *changes])

    async with asyncio.timeout(60):
        lives = RestartablePeers(experiment, MemoryTransport(), folder)
        lives.start()
        held = HeldTraining(lives.now["peer1"], round=3)
        others = [HeldTraining(lives.now[name], round=3 + missed) for name in ("peer0", "peer2", "peer3")]
        await held.reached.wait()
        if not missed:  # the others wait for its row
            for each in others:
                each.go.set()
            await lives.until(lambda now: all(now[name].mailbox.gossip_step[0] == 3 for name in ("peer0", "peer2")))
            await lives.until(lambda now: all(now[name].session.blocked for name in ("peer0", "peer2")))
        await lives.kill("peer1", silently=silently)
        if missed:
            for each in others:
                await each.reached.wait()
        lives.start("peer1", resume=resume)
        if missed:
            await lives.until(lambda now: begun(now["peer1"]))
            for each in others:
                each.go.set()
        ended = await lives.end()
    for end in ended.values():
        assert not end.peer.session.ledgers.flows.list_unsettled()
    return experiment, ended, lives


async def test_one_that_comes_back_before_it_is_missed_ends_as_if_it_had_been_slow(tmp_path):
    changes = ["topology.kind=complete", "gossip.steps=1"]
    experiment, ended, lives = await interrupted(changes, tmp_path, silently=True)
    assert [record.round for record in lives.records["peer1"]] == list(range(9))
    assert not any(record.missed for records in lives.records.values() for record in records)
    assert apart(models(ended), simulated(experiment)) <= 1e-10


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("resume", [True, False], ids=["from its checkpoint", "from nothing"])
@pytest.mark.parametrize(
    "changes",
    [[], ["learning.weighted=false"], ["learning.algorithm=dpsgd"]],
    ids=["weighted", "alike", "D-PSGD"],
)
async def test_one_that_comes_back_late_catches_up(changes, resume, tmp_path):
    _, ended, lives = await interrupted(changes, tmp_path, silently=False, missed=2, resume=resume)
    rounds = [record.round for record in lives.records["peer1"]]
    assert rounds == [0, 1, 2, 5, 6, 7, 8]
    assert lives.records["peer1"][3].training_loss is None
    assert all(record.training_loss is not None for record in lives.records["peer1"][4:])
    for name in ("peer0", "peer2"):
        assert [record.round for record in lives.records[name]] == list(range(9))
        assert ["peer1" in record.missed for record in lives.records[name]] == [3 <= round < 5 for round in range(9)]
    rows = torch.cat([ended[name].state.rows for name in lives.names])  # [4, P]
    assert (rows - rows.mean(0)).norm(dim=-1).max() < 0.5 * rows.mean(0).norm()
