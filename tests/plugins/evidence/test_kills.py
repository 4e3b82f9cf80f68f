"""Evidence of honest peers that are killed and go on: it agrees, and says where they were stopped."""

import asyncio
import shutil
import tracemalloc

import msgspec
import pytest

from p2pfl.experiment import read
from p2pfl.experiment.schema import GossipSettings
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.evidence.verification import find_chains, verify
from p2pfl.privacy.keys import Identity, SeededSource
from p2pfl.results.evidence import Chain, EvidenceEntry, RoundPlayed, RowSent, line_digest, read_chain
from restarts import RestartablePeers
from swarms import SMALL

pytestmark = pytest.mark.slow

KILLS = 20


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("algorithm", ["dpsgd", "fedavg"])
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
    assert sum(len(own.beginnings) for own in chains) == 4 + KILLS
    result = verify(chains)
    assert result.findings == ()
    assert result.rounds == 3 * KILLS


LATE = ["topology.kind=complete", "topology.peers=4", "rounds=20", "transport.gather={ seconds = 0.5, quorum = 0.5 }"]


async def until_round(lives, name, round):
    await lives.until(lambda now: now[name].mailbox.gossip_step >= (round, 0))


@pytest.fixture
async def restored(tmp_path):
    """Folder of a run in which a peer lost its disk, and went on from a backup of an earlier round."""
    folder, backup = tmp_path / "run" / "peers", tmp_path / "backup"
    folder.mkdir(parents=True)
    async with asyncio.timeout(120):
        lives = RestartablePeers(read(SMALL, changes=LATE), MemoryTransport(), folder)
        lives.start()
        await until_round(lives, "peer3", 4)
        await lives.kill("peer3")
        backup.mkdir()
        for path in folder.glob("peer3.*"):  # the others go on and replace theirs
            shutil.copy(path, backup)
        lives.start("peer3", resume=True)
        await until_round(lives, "peer3", 10)
        await lives.kill("peer3")
        for path in folder.glob("peer3.*"):
            path.unlink()
        for path in backup.iterdir():
            shutil.copy(path, folder)
        lives.start("peer3", resume=True)
        await lives.end()
    return tmp_path / "run"


async def test_a_peer_that_went_on_from_a_backup_is_no_liar_and_its_lost_rounds_are_named(restored):
    result = verify(find_chains([restored]))
    assert result.findings == ()
    (sentence,) = [each for each in result.open if "older copy" in each]
    assert sentence.startswith("peer3 went on from an older copy of its files, so it has no evidence of rounds")
    assert sentence.endswith("in which others received its rows or totals")


async def test_a_restart_that_nobody_saw_hides_no_round(restored):
    path = restored / "peers" / "peer2.evidence.jsonl"
    facts = [entry.fact for _, entry in read_chain(path)]
    kept = [fact for fact in facts if not (isinstance(fact, RowSent | RoundPlayed) and fact.round in {6, 7})]
    place = next(number for number, fact in enumerate(kept) if isinstance(fact, RowSent) and fact.round == 8)
    began = msgspec.structs.replace(facts[0], incarnation=facts[0].incarnation + 1000)
    path.unlink()
    chain = Chain(path, Identity.generate(SeededSource(1), peer="peer2"))
    for fact in [*kept[:place], began, *kept[place:]]:
        chain.append(fact)
    findings = {(each.peer, each.round) for each in verify(find_chains([restored])).findings}
    assert findings >= {("peer2", 6), ("peer2", 7)}


async def test_the_evidence_of_a_peer_that_joins_late_agrees(tmp_path):
    folder = tmp_path / "peers"
    folder.mkdir()
    async with asyncio.timeout(120):
        lives = RestartablePeers(read(SMALL, changes=LATE), MemoryTransport(), folder)
        lives.start("peer0", "peer1", "peer2")
        await until_round(lives, "peer0", 4)
        lives.start("peer3")
        await lives.end()
    chains = find_chains([tmp_path])
    result = verify(chains)
    assert result.findings == ()
    assert min(chains[3].played) > 3
    assert {*chains[0].played} == {*range(20)}


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


@pytest.mark.fast
def test_a_long_chain_that_goes_on_is_in_memory_once(tmp_path):
    path, lines = tmp_path / "peer0.evidence.jsonl", 40_000
    line = b'{"number":39999,"fact":"' + b"x" * 200 + b'"}\n'
    path.write_bytes(line * lines)
    tracemalloc.start()
    try:
        chain = Chain(path, Identity.generate(SeededSource(1), peer="peer0"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * len(line) * lines
    chain.append(RowSent(0, 0, "0" * 64))
    entry = msgspec.json.decode(path.read_bytes().splitlines()[-1], type=EvidenceEntry)
    assert (entry.number, entry.before) == (lines, line_digest(line.rstrip(b"\n")))
