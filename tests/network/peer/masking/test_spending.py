"""What live peers record of what they spend: before a release leaves, and after the fact without condition."""

import asyncio

import pytest

from p2pfl.core.errors import BudgetError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.ledgers.mask_slots import MaskSlots
from p2pfl.network.transport import MemoryTransport
from p2pfl.results.spending.meter import Meter
from restarts import HeldTraining, RestartablePeers
from sourcing import shared_source
from swarms import SMALL, live
from waiting import DEADLINE

pytestmark = pytest.mark.slow

NOISY = ["topology.kind=ring", "topology.peers=8", "gossip.steps=1", "privacy.mode=pairwise", "privacy.epsilon=4"]


async def outcome(changes):
    """Return the results of all peers, and the plan."""
    experiment = read(SMALL, changes=[*NOISY, *changes])
    return await live(experiment, MemoryTransport(), source=shared_source()), plan(experiment)


async def test_a_peer_that_its_budget_stops_takes_no_mask_that_it_does_not_apply(monkeypatch):
    charge = Meter.charge

    def refuse(meter, round, *, whole):
        if meter._peers == ("peer0",) and round == 1:
            raise BudgetError("nothing is left")
        charge(meter, round, whole=whole)

    taken, take = [], MaskSlots.take

    def noted(slots, slot, *, partners):
        taken.extend([slot] if slots.peer == "peer0" else [])
        return take(slots, slot, partners=partners)

    monkeypatch.setattr(Meter, "charge", refuse)
    monkeypatch.setattr(MaskSlots, "take", noted)
    await outcome(["rounds=2"])
    assert [slot.round for slot in taken] == [0]


SAMPLES = ["topology.kind=ring", "topology.peers=4", "rounds=4", "learning.example_noise=1", "learning.batch=8"]


async def test_rounds_that_are_played_again_after_a_crash_count_for_each_sample(tmp_path):
    """All are killed three times in the third round of four, and go back to its beginning."""
    experiment = read(SMALL, changes=SAMPLES)

    async with asyncio.timeout(DEADLINE):
        lives = RestartablePeers(experiment, MemoryTransport(), tmp_path)
        for life in range(3):
            lives.start(resume=life > 0, at=2 if life else None)
            for peer in lives.now.values():
                HeldTraining(peer, round=3)
            await lives.until(lambda now: all(peer.mailbox.gossip_step >= (2, 1) for peer in now.values()))
            await lives.kill()
        lives.start(resume=True, at=2)
        ended = await lives.end()
    resolved = plan(experiment)
    for name, end in ended.items():
        journal = CheckpointStore(tmp_path, name).former().journal
        assert journal is not None
        assert [*journal.sampled.values()] == [3 + 1 + 1 + 2]
        assert end.peer.meter.samples.played == {name: dict(journal.sampled)}
    played = {name: end.peer.meter.samples.played[name] for name, end in ended.items()}
    promised, really = resolved.examples(4), resolved.examples(4, played=played)
    assert 4 * really["steps"] == 7 * promised["steps"]
    assert really["epsilon"] > 1.3 * promised["epsilon"]
