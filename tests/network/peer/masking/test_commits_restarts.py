"""Restarts of a member of a round that peers commit together, journals without models, and peers that are slow."""

from collections import Counter

import pytest
import torch
from msgspec.structs import replace

import ballots
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore, Former
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.ledgers.mask_slots import Slot
from p2pfl.network.protocol.wire.verdict_messages import Ballot
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from restarts import HeldTraining, RestartablePeers
from swarms import SMALL, timeless

SIX = ["topology.kind=circulant", "topology.degree=4", "topology.peers=6", "gossip.steps=2", "rounds=2"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.partners=1", "privacy.departures=go_on"]


@pytest.mark.slow
def test_masks_with_a_member_that_restarted_in_the_first_step_cancel_or_do_not_count(tmp_path):
    """peer3 is killed while it trains for the first time, and is back before the broker notices."""

    async def run(*, restart, changes):
        folder = tmp_path / str(restart)
        folder.mkdir()
        lives = RestartablePeers(read(SMALL, changes=[*SIX, *changes]), MemoryTransport(), folder)
        lives.start()
        await lives.until(lambda now: all(peer.joined is not None for peer in now.values()))
        held = HeldTraining(lives.now["peer3"], round=0)
        await held.reached.wait()
        others = [peer for name, peer in lives.now.items() if name != "peer3"]
        await lives.until(lambda _: all(peer.session.waiting.awaited for peer in others))
        if restart:
            await lives.kill("peer3", silently=True)
            lives.start("peer3", resume=True)
        held.go.set()
        ended = await lives.end()
        return torch.cat([end.state.rows for name, end in sorted(ended.items()) if name != "peer3"]).mean(0)

    async def both():
        plain = await run(restart=False, changes=["privacy.mode=none"])
        return plain, await run(restart=True, changes=MASKS)

    plain, found = timeless(both())
    assert (found - plain).abs().max() < 1


def test_a_peer_writes_its_journal_once_in_a_round_and_once_more_in_the_committee(tmp_path, monkeypatch):
    """Slots of masks, with the last decision, before anything leaves; and an acceptance. Seven of eight are drawn."""
    written, note = Counter(), CheckpointStore.note

    def counted(store, journal):
        written[store.peer] += 1
        note(store, journal)

    async def run():
        settings = read(SMALL, changes=[*MASKS, "topology.peers=8", "gossip.steps=2", "rounds=2"])
        lives = RestartablePeers(settings, MemoryTransport(), tmp_path)
        lives.start()
        await lives.end()

    monkeypatch.setattr(CheckpointStore, "note", counted)
    timeless(run())
    assert sum(written.values()) == 8 + 2 * (8 + 7) + 8
    journals = [CheckpointStore(tmp_path, name).journal() for name in written]
    assert all(each.record.decided for journal in journals for each in journal.verdicts)


async def test_a_peer_whose_models_are_lost_begins_without_the_verdicts_of_its_journal():
    """Its attempts begin at 0 again, as those of an earlier run did."""
    settings = read(SMALL, changes=[*SIX, *MASKS])
    kept = ballots.kept(1, promised=Ballot(3, "peer2"))
    journal = Journal(1, bytes(32), released=1, until=Slot(0, 2), verdicts=(kept,))
    for released, records in ((0, (kept,)), (1, ())):
        former = Former((), replace(journal, released=released))
        made = plan(settings, only=["peer0"])
        async with Peer("peer0", made, transport=MemoryTransport(), source=SeededSource(5), former=former) as peer:
            assert peer.session.commits.ballots.records(oldest=0) == records
            assert peer.me.attempt == (1 if records else 0)


def test_a_peer_that_goes_back_plays_attempts_after_those_that_it_voted_on():
    """It may have voted on an attempt that failed before it released anything in it."""
    kept = ballots.kept(1, promised=Ballot(3, "peer2"), attempt=4)
    journal = Journal(1, bytes(32), until=Slot(2, 2), verdicts=(kept,))
    made = plan(read(SMALL, changes=[*SIX, *MASKS]), only=["peer0"])
    peer = Peer("peer0", made, transport=MemoryTransport(), source=SeededSource(5), former=Former((), journal))
    assert peer.me.attempt == 5
