"""Live peers that decide which models of a round count, and remove the masks of those that do not."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

import ballots
from dying import VICTIM, Death
from p2pfl.core.errors import ExperimentError, UndecidedError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.masking.model_protection import find_undecided
from p2pfl.network.peer.masking.release_verdicts import ReleaseVerdicts
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.peer.storage.journal import Journal, decode_journal, encode_journal
from p2pfl.network.protocol.interface.effects import Undecided
from p2pfl.network.protocol.ledgers.slots import Slot
from p2pfl.network.protocol.wire.verdict_messages import DROPPED, Ballot
from p2pfl.network.transport import MemoryTransport
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.results.notices.kinds import LearningStopped
from restarts import RestartablePeers, begun
from swarms import SMALL

FOUR = ["topology.kind=complete", "topology.peers=4", "gossip.steps=1", "rounds=5"]
MASKS = ["privacy.mode=pairwise", "privacy.mask=10.0"]
GO_ON = [*MASKS, "privacy.departures=go_on"]
DIGITS = ["data.name=digits", "data.split=iid", "model.hidden=[16]", "learning.rate=0.5"]


def death(*changes, **given):
    return Death(read(SMALL, changes=[*FOUR, *changes]), **given).run()


@pytest.mark.slow
def test_without_a_death_votes_are_all_that_is_added_and_no_number_changes():
    found = {departures: death(*MASKS, f"privacy.departures={departures}") for departures in ("unsettled", "go_on")}
    one, other = found.values()
    assert other.sent - one.sent == {"Votes": 4 * 5}
    assert all(torch.equal(one.states[name].rows, other.states[name].rows) for name in one.states)
    assert other.dropped == {round: [frozenset()] * 3 for round in range(5)}


EVENTS = 23
"""Events of a peer in a round of four."""


@pytest.mark.slow
def test_a_round_has_as_many_events_as_are_tried():
    assert death(*GO_ON).events == EVENTS


@pytest.mark.sampled(fast=0, all=6)
@pytest.mark.parametrize("at", range(EVENTS))
def test_survivors_of_a_death_at_any_event_of_a_round_agree_and_keep_no_mask(at):
    found = death(*GO_ON, at=at)
    assert found.dead
    assert found.states.keys() == {f"peer{number}" for number in range(3)}
    first = found.states["peer0"].rows
    assert all(torch.allclose(first, state.rows, atol=1e-6) for state in found.states.values())
    assert all(len({*verdicts}) == 1 for verdicts in found.dropped.values())
    dropped = [round for round, verdicts in found.dropped.items() if verdicts[0]]
    assert dropped == [2 if at < 4 else 3]  # its model of the round leaves in the fourth event
    assert not [each for each in found.notices if isinstance(each, LearningStopped)]


@pytest.mark.sampled(fast=0, all=3)
@pytest.mark.parametrize("at", range(EVENTS))
def test_a_round_of_several_gossip_steps_is_settled_after_the_first_one(at):
    """No event is added to the round, so a death at any of them is one in a round of one gossip step."""
    found, one = death(*GO_ON, "gossip.steps=3", at=at), death(*GO_ON, at=at)
    assert found.dead
    assert found.dropped == one.dropped
    assert found.sent == one.sent
    assert all(torch.equal(found.states[name].rows, one.states[name].rows) for name in one.states)


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
def test_masks_that_stay_spoil_the_models_and_masks_that_are_removed_do_not(unmasked):
    stays, removed = death(*DIGITS, *MASKS, at=0), death(*DIGITS, *GO_ON, at=0)
    assert stays.accuracy(2) < 0.3
    assert removed.accuracy(2) > unmasked.accuracy(2) - 0.02


@pytest.mark.slow
def test_peers_that_shall_stop_end_with_the_model_from_before_the_round():
    before = death(*MASKS, "rounds=2", "privacy.departures=stop")
    found = death(*MASKS, "privacy.departures=stop", at=0)
    told = [each for each in found.notices if isinstance(each, LearningStopped)]
    assert [each.reason for each in told] == ["undecided"] * 3
    assert f"the model of {VICTIM} in round 2 is missing for good" in told[0].message
    assert all(len(found.records[name]) == 2 for name in found.states)
    assert all(torch.equal(found.states[name].rows, before.states[name].rows) for name in found.states)


@pytest.mark.slow
def test_a_peer_with_too_few_partners_left_publishes_no_key():
    found = death(*GO_ON, "privacy.partners=3", at=0)
    told = [each for each in found.notices if isinstance(each, LearningStopped)]
    assert [each.reason for each in told] == ["partners"] * 3
    assert found.sent["Halves"] == 0


def third_model(*, copies=False):
    """Lose the models of the victim on their way to peer0, from the third on; and copies that others send."""
    lost = set()

    def lose(listener, message):
        large = listener.startswith("test-peer0-") and len(message.data) > 400
        place = large and f"/{VICTIM}/pub/" in message.topic
        if place:
            lost.add(bytes(message.data))
        return len(lost) > 2 and (place or (copies and large and "/peer0/in/" in message.topic))

    return lose


@pytest.mark.slow
def test_a_peer_that_alone_lacks_a_model_that_counts_gets_a_copy_from_another_one():
    found = death(*GO_ON, "transport.patience=5", lose=third_model(), at=12)
    assert found.sent["Copy"] == 1
    assert not [each for each in found.notices if isinstance(each, LearningStopped)]
    assert {name: len(rows) for name, rows in found.records.items() if name != VICTIM} == dict.fromkeys(found.states, 5)
    first = found.states["peer0"].rows
    assert all(torch.allclose(first, state.rows, atol=1e-6) for state in found.states.values())


@pytest.mark.slow
def test_two_of_four_are_no_majority_and_end_instead_of_going_on_with_masks():
    """One is dead, and one that alone lacks its model, and all copies of it, has ended."""
    found = death(*GO_ON, "transport.patience=5", lose=third_model(copies=True), at=12)
    told = [each.reason for each in found.notices if isinstance(each, LearningStopped)]
    assert told == ["undecided"] * 3


class Answering:
    """A connection that answers at once; what is asked and stored is noted."""

    def __init__(self, answer):
        self.answer, self.log = answer, []

    async def ask(self, event):
        self.log.append(event)
        return self.answer

    async def durable(self):
        self.log.append("durable")


@pytest.mark.parametrize(("goes_on", "charged"), [(True, [Slot(0, 2)]), (False, [])])
async def test_a_peer_that_learns_no_verdict_on_its_model_charges_it_durably_before_it_ends(goes_on, charged):
    connection, found = Answering(Undecided(frozenset({"eve"}))), []
    cover = SimpleNamespace(slot=Slot(0, 2), ledger=SimpleNamespace(peer="ada"))
    deciding = ReleaseVerdicts(connection, cover, found.append, goes_on=goes_on)
    with pytest.raises(UndecidedError, match=r"no majority answered about eve in time; .* raise transport\.patience"):
        await deciding.verdicts(2, arrived=["bob"])
    assert found == charged
    assert connection.log[1:] == ["durable"] * goes_on


async def test_who_withholds_keys_of_masks_is_named_and_the_cost_is_durable_before_a_key_leaves():
    connection, found = Answering(Undecided(frozenset({"eve"}))), []
    cover = SimpleNamespace(
        slot=Slot(0, 2), ledger=SimpleNamespace(peer="ada"), least=1, withdraw={"bob": bytes(32)}.get
    )
    deciding = ReleaseVerdicts(connection, cover, found.append, goes_on=True, masked={"bob": 1, "eve": 1, "mia": 1})
    with pytest.raises(UndecidedError, match="because eve did not publish the keys of masks shared with bob"):
        await deciding.halves(2, {"bob"}, applied=["eve", "mia"])
    assert found == [Slot(0, 2)]
    assert connection.log[0] == "durable"
    assert connection.log[1].awaited == {("eve", "bob"), ("mia", "bob")}


def test_a_peer_that_could_forget_its_votes_is_refused():
    found = plan(read(SMALL, changes=[*FOUR, *GO_ON]), only=["peer0"])
    with pytest.raises(ExperimentError, match="give Peer a store"):
        Peer("peer0", found, transport=MemoryTransport())


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
        return await lives.end()

    ended = virtually(back())
    rows = [each.state.rows for each in ended.values()]
    assert len(rows) == 4
    assert all(torch.allclose(rows[0], row, atol=1e-6) for row in rows)
    assert all(each.records[-1].scores["accuracy"] > 0.6 for each in ended.values())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([], 'privacy.mode is "none"'),
        ([*MASKS, "learning.algorithm=gradient_tracking"], "with gradient_tracking, which"),
        ([*MASKS, "privacy.mask_graph=complete"], "with privacy.mask_graph"),
    ],
)
def test_what_does_not_work_with_departures_is_refused(changes, why):
    with pytest.raises(ExperimentError, match=r"privacy\.departures") as caught:
        plan(read(SMALL, changes=[*FOUR, *changes, "privacy.departures=go_on"]))
    assert why in str(caught.value)


VOTE = ballots.cast("ada", 1, 4, "ada", 0, "ada", b"copy")
DROP = ballots.cast("ada", 1, 4, "bob", 1, "bob", DROPPED)


@pytest.mark.parametrize(
    ("record", "alone", "charged"),
    [
        ((VOTE, None), (), {Slot(0, 4)}),
        ((VOTE, None), ((0, 4),), set()),
        ((None, None), (), {Slot(0, 4)}),
        ((None, ballots.decision(DROP)), (), {Slot(0, 4)}),
        ((None, ballots.decision(DROP)), ((0, 4),), set()),
        ((None, ballots.decision(VOTE)), (), set()),
    ],
    ids=["voted", "charged", "promised", "dropped", "dropped and charged", "counted"],
)
def test_a_restart_charges_a_release_that_may_not_count_as_hidden_by_noise_alone(record, alone, charged):
    vote, (voted, decided) = VOTE, record
    records = (
        ballots.kept("ada", 1, 3, voted=vote, decided=ballots.decision(vote)),
        ballots.kept("ada", 1, 4, promised=Ballot(1, "bob"), voted=voted, decided=decided),
        ballots.kept("bob", 1, 4, voted=vote),
    )
    kept = Journal(1, b"", until=Slot(0, 5), alone=alone, verdicts=records)
    assert find_undecided(kept, "ada") == charged
    assert decode_journal(encode_journal(kept)) == kept
