"""Commits of sessions: events in, effects out, without a network."""

import pytest

from ballots import COUNTED, cast
from commit_sessions import NAMES, Swarm
from p2pfl.network.protocol.agreement.attempt_reports import report
from p2pfl.network.protocol.interface.effects import Concluded, Fail, Missing, Undecided
from p2pfl.network.protocol.interface.requests import Expect, Open, ReportAttempt, Try
from p2pfl.network.protocol.wire.verdict_messages import (
    Prepare,
    Release,
    Votes,
)
from sessions import LIFE, announced, arrived, met


def alike(names, *answers):
    """Return the same answers for each name."""
    return {name: [*answers] for name in names}


def kinds(sent):
    return {type(message) for _, message in sent}


def test_a_round_counts_once_all_members_are_complete_and_votes_are_all_that_is_sent():
    four = Swarm()
    four.report("ada", "bob", "dan")
    assert four.outcomes == alike(NAMES)
    four.report("eve")
    assert four.outcomes == alike(NAMES, Concluded(committed=True, members=NAMES))
    assert kinds(four.sent) == {Votes}
    assert len(four.sent) <= 3 * len(NAMES)


def test_a_round_that_failed_at_one_member_is_played_again_by_all():
    four = Swarm()
    four.report("ada", "bob", "dan")
    four.report("eve", complete=False)
    assert four.outcomes == alike(NAMES, Concluded(committed=False, members=NAMES))


def test_a_round_is_played_again_without_a_member_that_died_even_if_all_others_are_complete():
    """Nobody knows with which incarnations a member without a report shared masks, so the attempt does not count."""
    four = Swarm()
    four.leaves("dan")
    four.report("ada", "bob", "eve")
    four.wait(4)
    left = ("ada", "bob", "eve")
    assert four.outcomes == alike(left, Concluded(committed=False, members=left))
    assert all("dan" not in each.membership.present for name, each in four.sessions.items() if name != "dan")


def test_a_round_is_played_again_without_a_member_that_died_before_all_have_what_it_sends():
    four = Swarm()
    four.leaves("dan")
    four.report("ada", complete=False)
    four.report("bob", "eve")
    four.wait(4)
    left = ("ada", "bob", "eve")
    assert four.outcomes == alike(left, Concluded(committed=False, members=left))


def test_a_round_is_played_again_if_members_knew_different_incarnations_when_they_chose_their_masks():
    four = Swarm()
    for name in NAMES:
        four.ask(name, ReportAttempt(complete=True, incarnations=b"old" if name == "ada" else b"new"))
    four.flush()
    assert four.outcomes == alike(NAMES, Concluded(committed=False, members=NAMES))


def test_whoever_waits_for_a_model_stops_when_another_member_has_failed():
    four = Swarm()
    four.ask("bob", Open((0, 1), ("ada", "dan"), since=0))
    four.ask("bob", Expect("ada"))
    assert not four.answers["bob"]
    four.report("eve", complete=False)
    assert four.answers["bob"] == [Missing("ada", "abandoned")]


def test_a_member_that_is_slow_is_not_doubted_before_the_timeout():
    four = Swarm()
    four.report("ada", "bob", "dan")
    four.wait(9)
    assert not [message for _, message in four.sent if isinstance(message, Prepare) and message.ballot.number]
    four.report("eve")
    assert set(map(len, four.answers.values())) == {1}


def test_who_waits_for_a_member_that_is_slow_asks_that_member_alone():
    four = Swarm()
    four.report("ada", "bob", "dan")
    four.wait(1)
    four.sent.clear()
    four.wait(1)
    assert {(type(said), said.subject, said.ballot.number) for _, said in four.sent} == {
        (Prepare, Release("eve", 0, 0, 0), 0)
    }


def test_what_a_member_reported_before_it_died_counts_and_is_forgotten_with_its_attempt():
    four = Swarm()
    four.dead.add("dan")
    vote = cast("dan", 0, 0, "dan", 0, "dan", b"\0", voter=7)
    four.ask("ada", arrived("dan", Votes((vote,))))
    assert four.sessions["ada"].shared.abandoned
    four.report("ada", "bob", "eve")
    for _ in range(8):
        four.wait(2)
    assert four.answers["ada"] == [Concluded(committed=False, members=NAMES)]
    assert not four.sessions["ada"].shared.abandoned


def test_a_member_that_lives_and_reports_nothing_is_dropped_after_the_timeout_and_learns_it():
    four = Swarm()
    four.report("ada", "bob", "dan")
    for _ in range(8):
        four.wait(2)
    left = ("ada", "bob", "dan")
    assert {name: four.answers[name] for name in left} == alike(left, Concluded(False, left))
    four.report("eve")
    four.wait(1)
    assert four.answers["eve"] == [Concluded(committed=False, members=left)]


def test_two_of_four_are_no_majority():
    four = Swarm()
    four.leaves("dan")
    four.leaves("eve")
    four.report("ada", "bob")
    for _ in range(32):
        four.wait(1)
    assert four.outcomes == alike(("ada", "bob"), Undecided(frozenset(NAMES)))


def test_a_lost_vote_is_requested_and_repeated_without_a_ballot():
    four = Swarm()
    four.mute = "ada"
    four.report(*NAMES)
    assert not four.answers["bob"]
    four.mute = ""
    four.wait(2.5)
    assert four.outcomes == alike(NAMES, Concluded(committed=True, members=NAMES))
    assert {message.ballot.number for _, message in four.sent if isinstance(message, Prepare)} == {0}


def test_votes_that_come_before_an_attempt_begins_are_kept_for_it():
    four = Swarm()
    four.report(*NAMES)
    for name in NAMES[:3]:
        four.ask(name, Try(1, 0, NAMES))
    four.report(*NAMES[:3])
    four.ask("eve", Try(1, 0, NAMES))
    four.report("eve")
    assert {name: answers[1:] for name, answers in four.answers.items()} == alike(
        NAMES, Concluded(committed=True, members=NAMES)
    )


def test_a_vote_on_an_attempt_that_is_far_off_is_not_kept():
    four = Swarm()
    for round in range(2, 40):
        four.ask("bob", arrived("ada", Votes((cast("ada", 0, round, "ada", 0, "ada", COUNTED, voter=7),))))
    assert not four.sessions["bob"].commits._early


@pytest.mark.parametrize(
    ("vote", "restarts"),
    [
        (cast("dan", 0, 1, "ada", 1, "nobody", b"\1", voter=7), False),  # no such ballot
        (cast("ada", 0, 1, "ada", 0, "ada", b"\0", voter=7), True),  # of its earlier incarnation
    ],
)
def test_an_early_vote_that_means_nothing_once_its_attempt_begins_is_refused_and_ends_nobody(vote, restarts):
    four = Swarm()
    bob = four.sessions["bob"]
    four.ask("bob", arrived("ada", Votes((vote,))))
    four.ask("bob", arrived("dan", Votes((cast("dan", 0, 1, "dan", 0, "dan", b"\1", voter=7),))))
    four.report(*NAMES)
    if restarts:
        four.ask("bob", announced("ada", life=8))
    effects = bob.handle(Try(1, 0, NAMES), now=four.now)
    assert not [each for each in effects if isinstance(each, Fail)]
    assert bob.shared.refused == {"ada: not a message": 1}
    assert {each.release.peer for each in bob.commits.records() if each.release.round == 1} == {
        "dan"
    }  # handled after it


def test_a_member_votes_the_same_after_a_restart():
    four = Swarm()
    four.report("ada")
    kept = four.sessions["bob"].commits.records()
    assert [each.record.voted.member for each in kept] == ["bob"]
    again = met("bob", others=four.others("bob"), keeps=True, names=NAMES, commits=True)
    again.commits.restore(kept)
    assert again.commits.records() == kept
    again.handle(Try(0, 0, NAMES), now=0.0)
    assert again.commits.records() == kept


def test_verdicts_of_an_earlier_run_from_the_same_checkpoint_are_not_believed():
    """Both runs play attempt 0 at round 0, and an insider repeats a verdict of the first one to bob alone."""
    first = Swarm()
    first.report(*NAMES)
    old = first.sessions["ada"].commits.ballots.open[0, 0].latest[report("eve", 0, 0)].decided
    again = Swarm(life=LIFE + 1)
    again.ask("bob", arrived("ada", old))
    assert again.sessions["bob"].shared.refused
    again.report("ada", "bob", "dan")
    assert not again.answers["bob"]
    again.report("eve", complete=False)
    assert again.outcomes == alike(NAMES, Concluded(committed=False, members=NAMES))
