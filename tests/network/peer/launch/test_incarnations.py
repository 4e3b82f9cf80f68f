"""Peers that wait for a missing one after a round that did not complete, and play the round again together."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

from p2pfl.core.errors import PeerError
from p2pfl.experiment import read
from p2pfl.network.peer.launch.incarnations import Incarnations
from p2pfl.network.peer.masking import round_attempts
from p2pfl.network.peer.masking.round_attempts import MAX_ATTEMPTS
from p2pfl.network.peer.storage.checkpoint import Former
from p2pfl.network.transport import MemoryTransport
from p2pfl.results.notices.kinds import AwaitsReturn, LearningStopped
from restarts import RestartablePeers
from swarms import SMALL, timeless

VICTIM = "peer3"
SIX = ["topology.kind=circulant", "topology.degree=4", "topology.peers=6", "gossip.steps=8", "rounds=4"]
FOUR = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "rounds=4"]
STOP = ["privacy.mode=pairwise", "privacy.mask=10.0", "privacy.departures=wait", "transport.patience=10"]
DEATHS = [*((SIX, at) for at in range(0, 54, 3)), *((FOUR, at) for at in range(0, 20, 2))]
"""Events of a peer in a round at which it is killed."""


async def run(folder, *changes, at=None, pause=None, round=2):
    """Run peers of which one is killed at an event of a round; it begins again after so many seconds, if at all."""
    lives = RestartablePeers(read(SMALL, changes=changes), MemoryTransport(), folder, again=True)
    lives.start()
    dead, events = asyncio.Event(), 0
    await lives.until(lambda now: now[VICTIM].joined is not None)
    connection, peer = lives.now[VICTIM].connection, lives.now[VICTIM]
    handle = connection.handle

    def handled(event):
        nonlocal events
        if peer.phase == "learning" and peer.mailbox.gossip_step[0] == round and not dead.is_set():
            events += 1
            if at is not None and events > at:
                connection._closed = True
                dead.set()
        if not dead.is_set():
            handle(event)

    connection.handle = handled
    if at is not None:
        await dead.wait()
        await lives.kill(VICTIM)
        if pause is not None:
            await asyncio.sleep(pause)
            lives.start(VICTIM, resume=True)
        else:
            del lives.tasks[VICTIM]
    await lives.end()
    return lives


def mean(lives):
    return torch.cat([end.state.rows for _, end in sorted(lives.ended.items())]).mean(0)


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("pause", [0.001, 3.0, 200.0])
@pytest.mark.parametrize(("graph", "at"), DEATHS, ids=[f"{graph[0]}-{at}" for graph, at in DEATHS])
def test_all_play_the_round_again_once_a_dead_peer_is_back(tmp_path, graph, at, pause):
    (tmp_path / "plain").mkdir(), (tmp_path / "stop").mkdir()
    plain = timeless(run(tmp_path / "plain", *graph, "privacy.mode=none"))
    found = timeless(run(tmp_path / "stop", *graph, *STOP, at=at, pause=pause))
    assert found.ended.keys() == plain.ended.keys()
    assert {end.peer.done for end in found.ended.values()} == {4}
    assert (mean(found) - mean(plain)).abs().max() < 1


@pytest.mark.slow
def test_whoever_waits_in_vain_ends_with_the_model_from_before_the_round(tmp_path):
    found = timeless(run(tmp_path, *SIX, *STOP, "transport.outage=90", at=0))
    assert len(found.ended) == 5
    assert {end.peer.done for end in found.ended.values()} == {2}
    assert {end.peer.name for end in found.ended.values()} == {f"peer{number}" for number in range(6)} - {VICTIM}
    waits = [each for each in found.notices if isinstance(each, AwaitsReturn)]
    assert {(each.round, each.seconds) for each in waits} == {(2, 90.0)}
    assert str(waits[0]) == (
        "it waits up to 90 s until all peers are there again (transport.outage), and then plays round 3 again; start "
        "the missing ones with --resume"
    )
    ends = [each.message for each in found.notices if isinstance(each, LearningStopped)]
    assert len(ends) == 10
    assert any(f"{VICTIM} did not come within 90 s" in each for each in ends)


@pytest.mark.parametrize(("phase", "ends"), [("gathering", True), ("learning", False)])
async def test_an_error_after_the_peers_have_begun_again_is_not_taken_for_one_that_did_not_come(phase, ends):
    plan = SimpleNamespace(experiment=read(SMALL, changes=[*SIX, *STOP]), commits=True, saved=lambda _row: {})
    first, second = (
        SimpleNamespace(
            wakes=None,
            name="ada",
            undecided=True,
            outdated=False,
            done=2,
            phase=each,
            plan=plan,
            me=SimpleNamespace(incarnation=1),
        )
        for each in ("done", phase)
    )
    store, notices = SimpleNamespace(holds=lambda _round: True, former=Former), []

    async def play(peer):
        if peer is second:
            raise PeerError("a neighbour is another one")
        return "state"

    lives = Incarnations(lambda *_: second, play, store, notices.append, first)
    if ends:
        assert await lives.run() == "state"
        assert lives.peer is first
        assert [type(each) for each in notices] == [AwaitsReturn, LearningStopped]
    else:
        with pytest.raises(PeerError, match="another one"):
            await lives.run()


async def test_a_peer_with_files_of_a_restored_backup_ends_with_the_sentence_that_says_so():
    plan = SimpleNamespace(experiment=read(SMALL, changes=[*SIX, *STOP]), commits=True, saved=lambda _row: {})
    ada = SimpleNamespace(name="ada", undecided=True, outdated=True, wakes=None, done=2, plan=plan)

    async def play(_):
        return "state"

    notices = []
    lives = Incarnations(None, play, SimpleNamespace(holds=lambda _round: True), notices.append, ada)
    assert await lives.run() == "state"
    assert not notices  # those of the round are the last ones


@pytest.mark.slow
def test_without_an_outage_nobody_waits(tmp_path):
    found = timeless(run(tmp_path, *SIX, *STOP, "transport.outage=0", at=0))
    assert {end.peer.done for end in found.ended.values()} == {2}
    assert not [each for each in found.notices if isinstance(each, AwaitsReturn)]


@pytest.mark.slow
def test_the_same_round_is_begun_at_most_eight_times(tmp_path, monkeypatch):
    """A member that reports again and again that it lacks a model ends the run, as it could by sending nothing."""

    async def fails(self, *, complete):
        await attempts_report(self, complete=complete and self._me != VICTIM)

    attempts_report = round_attempts.Attempts.report
    monkeypatch.setattr(round_attempts.Attempts, "report", fails)
    found = timeless(run(tmp_path, *SIX, *STOP))
    waits = [each for each in found.notices if isinstance(each, AwaitsReturn) and each.peer == "peer0"]
    assert len(waits) == MAX_ATTEMPTS - 1
    assert {end.peer.done for end in found.ended.values()} == {0}
