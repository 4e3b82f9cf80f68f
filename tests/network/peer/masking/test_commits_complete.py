"""Live peers on a complete graph: a round counts at all of them, or they play it again without those that are gone."""

import asyncio

import pytest
import torch

from dying import VICTIM, Death
from p2pfl.core.errors import ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.results.notices.kinds import JoinsLate, LearningStopped
from restarts import RestartablePeers, begun
from swarms import SMALL

FOUR = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "rounds=5"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0"]
GO_ON = [*MASKS, "privacy.departures=go_on"]
DIGITS = ["data.name=digits", "data.split=iid", "model.hidden=[16]", "learning.rate=0.5"]


def death(*changes, **given):
    return Death(read(SMALL, changes=[*FOUR, *changes]), **given).run()


@pytest.mark.slow
def test_without_a_death_reports_and_votes_are_all_that_is_added_and_no_number_changes():
    one, other = death("privacy.mode=independent"), death(*GO_ON)
    assert other.sent - one.sent == {"Reports": 4 * 5, "Vote": 3 * 5, "Decision": 5}
    assert all(torch.allclose(one.states[name].rows, other.states[name].rows, atol=1e-5) for name in one.states)
    assert {each.committed for of_round in other.outcomes.values() for (each,) in of_round.values()} == {True}


EVENTS = 17
"""Events of a peer in a round of four."""


@pytest.mark.slow
def test_a_round_has_as_many_events_as_are_tried():
    assert death(*GO_ON).events == EVENTS


@pytest.mark.sampled(fast=0, all=6)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("at", range(EVENTS))
def test_survivors_of_a_death_at_any_event_of_a_round_agree_and_keep_no_mask(at, steps):
    found = death(*GO_ON, f"gossip.steps={steps}", at=at)
    assert found.dead
    assert found.states.keys() == {f"peer{number}" for number in range(3)}
    first = found.states["peer0"].rows
    assert all(torch.allclose(first, state.rows, atol=1e-6) for state in found.states.values())
    for outcomes in found.outcomes.values():
        assert len({tuple(each) for each in outcomes.values()}) == 1
        assert [each.committed for each in outcomes["peer0"]] in ([True], [False, True])
    assert not [each for each in found.notices if isinstance(each, LearningStopped)]


@pytest.fixture(scope="module")
def unmasked():
    return death(*DIGITS, at=0)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(EVENTS))
def test_scores_after_a_death_are_those_without_masks(at, unmasked):
    found = death(*DIGITS, *GO_ON, at=at)
    for round in range(2, 5):
        assert found.accuracy(round) > unmasked.accuracy(round) - 0.02


@pytest.mark.slow
def test_survivors_that_go_on_keep_the_accuracy_that_they_have_without_masks(unmasked):
    assert death(*DIGITS, *GO_ON, at=0).accuracy(2) > unmasked.accuracy(2) - 0.02


@pytest.mark.slow
def test_peers_that_end_without_a_verdict_are_charged_and_play_on_together_when_they_are_resumed(tmp_path):
    """Two of four die, so no majority is left; the others keep the right to release."""

    async def ended():
        lives = RestartablePeers(
            read(SMALL, changes=[*FOUR, *GO_ON, "transport.patience=5"]), MemoryTransport(), tmp_path
        )
        lives.start()
        await lives.until(lambda now: all(begun(peer) and peer.mailbox.gossip_step[0] >= 2 for peer in now.values()))
        await lives.kill("peer2", "peer3")
        await asyncio.gather(lives.tasks["peer0"], lives.tasks["peer1"])
        kept = {name: CheckpointStore(tmp_path, name).journal() for name in ("peer0", "peer1")}
        reasons = [each.reason for each in lives.notices if isinstance(each, LearningStopped)]
        lives.start(resume=True)
        return kept, reasons, await lives.end()

    kept, reasons, again = virtually(ended())
    assert reasons == ["undecided"] * 2
    assert not any(each.over for each in kept.values())
    assert all(each.uncovered for each in kept.values())
    assert again.keys() == {f"peer{number}" for number in range(4)}
    assert {each.records[-1].round for each in again.values()} == {4}


def virtually(main):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@pytest.mark.slow
def test_a_run_that_is_stopped_and_resumed_ends_with_the_scores_of_one_that_is_not(tmp_path):
    whole = death(*GO_ON)

    async def stopped():
        lives = RestartablePeers(read(SMALL, changes=[*FOUR, *GO_ON]), MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: all(peer.mailbox.gossip_step[0] >= 3 for peer in now.values()))
        await lives.kill()
        lives.start(resume=True)
        return await lives.end()

    ended = virtually(stopped())
    for name, state in whole.states.items():
        assert torch.allclose(ended[name].state.rows, state.rows, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("resume", [True, False])
def test_a_peer_that_comes_back_after_its_model_was_dropped_shares_the_others_models_again(tmp_path, resume):
    async def back():
        lives = RestartablePeers(read(SMALL, changes=[*FOUR, *GO_ON, "rounds=8"]), MemoryTransport(), tmp_path)
        lives.start()
        await lives.until(lambda now: begun(now[VICTIM]) and now[VICTIM].mailbox.gossip_step[0] == 2)
        await lives.kill(VICTIM)
        lives.start(VICTIM, resume=resume)
        return await lives.end(), lives.notices

    ended, notices = virtually(back())
    rows = [each.state.rows for each in ended.values()]
    assert len(rows) == 4
    (late,) = [each for each in notices if isinstance(each, JoinsLate)]
    assert (late.peer, late.round in range(3, 6)) == (VICTIM, True)
    assert all(torch.allclose(rows[0], row, atol=1e-6) for row in rows)
    assert all(each.records[-1].scores["accuracy"] > 0.6 for each in ended.values())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], 'privacy.mode is "none"'),
    ],
)
def test_what_does_not_work_with_departures_is_refused(changes, why):
    with pytest.raises(ExperimentError, match=r"privacy\.departures") as caught:
        plan(read(SMALL, changes=[*FOUR, *changes, "privacy.departures=go_on"]))
    assert why in str(caught.value)
