"""Commits of sessions: events in, effects out, without a network."""

from collections import Counter

import pytest

from ballots import AGAIN, COUNTS, cast, decision, kept, prepare, reported
from commit_sessions import NAMES, Swarm
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, AttemptOutcome, complete, encode_outcome
from p2pfl.network.protocol.interface.effects import Concluded, Fail, Missing, Publish, Undecided
from p2pfl.network.protocol.interface.requests import Begin, Expect, Open, ReportAttempt, Try
from p2pfl.network.protocol.session.decisions.signed_statements import Statements
from p2pfl.network.protocol.wire.verdict_messages import SEATS, Decision, Prepare, Report, Reports, Vote
from sessions import LIFE, announced, arrived, heartbeat, met, session


def alike(names, *answers):
    """Return the same answers for each name."""
    return {name: [*answers] for name in names}


def kinds(sent):
    return {type(message) for _, message in sent}


def test_a_round_counts_once_all_members_are_complete():
    four = Swarm()
    four.report("ada", "bob", "dan")
    assert four.outcomes == alike(NAMES)
    four.report("eve")
    assert four.outcomes == alike(NAMES, Concluded(committed=True, members=NAMES))
    assert kinds(four.sent) == {Reports, Vote, Decision}


def test_each_member_of_a_large_swarm_sends_one_report_and_receives_one_decision():
    """All else that is sent is to the members of the committee: reports with a proposal, and acceptances."""
    names = tuple(f"peer{number:02}" for number in range(24))
    many = Swarm(names=names)
    many.report(*names)
    assert many.outcomes == alike(names, Concluded(committed=True, members=names))
    seats = many.settlement(names[0]).committee.members
    sent = Counter(name for name, _ in many.sent)
    assert {sent[name] for name in {*names} - {*seats}} == {1}
    assert sent[seats[0]] == SEATS
    assert {sent[name] for name in seats[1:]} == {2}


@pytest.mark.parametrize("dead", [1, 2])
def test_a_round_is_settled_without_members_of_its_committee_that_died_unnoticed(dead):
    """Its owner, and another one: with seven members, the committee needs five."""
    names = tuple(f"peer{number:02}" for number in range(9))
    nine = Swarm(names=names)
    gone = nine.settlement(names[0]).committee.members[:dead]
    nine.dead |= {*gone}
    left = tuple(name for name in names if name not in gone)
    nine.report(*left)
    for _ in range(20):
        nine.wait(1)
    assert nine.outcomes == alike(left, Concluded(committed=False, members=left))


def test_if_most_of_a_committee_die_at_once_the_others_end_without_an_outcome():
    """The dead may know one, so no other members can decide: docs/notes/settled-rounds.md says why."""
    names = tuple(f"peer{number:02}" for number in range(9))
    nine = Swarm(names=names)
    gone = nine.settlement(names[0]).committee.members[:3]
    for name in gone:
        nine.leaves(name)
    left = tuple(name for name in names if name not in gone)
    nine.report(*left)
    for _ in range(40):
        nine.wait(1)
    assert {type(each) for name in left for each in nine.answers[name]} == {Undecided}


def test_a_decision_that_one_peer_knows_reaches_its_neighbours_although_the_committee_is_gone():
    names = tuple(f"peer{number:02}" for number in range(9))
    nine = Swarm(names=names)
    seats = nine.settlement(names[0]).committee.members
    others = tuple(name for name in names if name not in seats)
    nine.lost = {others[1]}
    nine.report(*names)
    assert nine.answers[others[0]] == [Concluded(committed=True, members=names)]
    assert not nine.answers[others[1]]
    for name in seats:
        nine.leaves(name)
    nine.lost = set()
    nine.wait(2.5)  # asks the committee
    nine.wait(2.5)
    assert nine.answers[others[1]] == [Concluded(committed=True, members=names)]


def test_a_peer_that_lacks_a_decision_asks_the_committee_and_then_a_few_neighbours_in_turn():
    names = tuple(f"peer{number:02}" for number in range(24))
    many = Swarm(names=names)
    seats = many.settlement(names[0]).committee.members
    alone = next(name for name in names if name not in seats)
    many.dead = {*names} - {alone}  # unnoticed
    many.report(alone)
    asked = []
    for seconds in (2, 2, 4, 8):
        many.places.clear()
        many.wait(seconds)
        asked.append({place for place in many.places if place not in {f"in/{seat}" for seat in seats}})
    assert [len(each) for each in asked] == [0, 7, 7, 7]
    assert len(set.union(*asked)) > 14


def test_a_vote_of_a_member_that_has_restarted_since_proves_a_decision():
    """The first statement of the member that eve receives is one of its earlier incarnation."""
    names = tuple(f"peer{number:02}" for number in range(9))
    nine = Swarm(names=names)
    seats = nine.settlement(names[0]).committee.members
    eve = next(name for name in names if name not in seats)
    nine.lost = {eve}
    nine.report(*names)
    decision = nine.settlement(seats[0]).decision
    voter = decision.votes[0].member
    for message in (announced(voter, life=LIFE + 1), arrived(seats[1], decision)):
        nine.ask(eve, message)
    nine.flush()
    assert nine.answers[eve] == [Concluded(committed=True, members=names)]


def test_all_that_the_owner_of_a_large_committee_sends_early_is_kept():
    names = tuple(f"peer{number:03}" for number in range(512))
    bob = session(names[0], life=LIFE, keeps=True, names=names, commits=True)
    bob.handle(Begin(0), now=0.0)
    bob.handle(Try(0, 0, names), now=0.0)
    early = [reported(names[1], FAILED, place=(1, 0), voter=LIFE)] * 10
    for message in early:
        bob.commits.receive(names[1], message)
    assert len(bob.commits._early) == 10


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


def test_a_failure_reaches_all_members_of_a_larger_swarm_and_they_know_who_reported_it():
    names = tuple(f"peer{number:02}" for number in range(12))
    many = Swarm(names=names)
    seats = many.settlement(names[0]).committee.members
    others = [name for name in names if name not in seats]
    waiting = [name for name in names if name != others[0]]
    for name in waiting:
        many.ask(name, Open((0, 1), (others[0],), since=0))
        many.ask(name, Expect(others[0]))
    many.report(others[0], complete=False)
    assert {name: many.answers[name] for name in waiting} == alike(waiting, Missing(others[0], "abandoned"))
    for name in waiting:
        many.answers[name].clear()
    many.report(*waiting, complete=False)
    assert many.outcomes == alike(names, Concluded(committed=False, members=names))
    assert {each.failed for found in many.outcomes.values() for each in found} == {others[0]}


def test_a_failure_reaches_all_members_although_members_of_the_committee_that_announce_it_are_gone():
    names = tuple(f"peer{number:02}" for number in range(12))
    many = Swarm(names=names)
    seats = many.settlement(names[0]).committee.members
    for name in seats[:2]:
        many.leaves(name)
    others = [name for name in names if name not in seats]
    waiting = [name for name in names if name not in {others[0], *seats[:2]}]
    for name in waiting:
        many.ask(name, Open((0, 1), (others[0],), since=0))
        many.ask(name, Expect(others[0]))
    many.dead |= {seats[2]}  # unnoticed
    many.report(others[0], complete=False)
    heard = [name for name in waiting if name != seats[2]]
    assert {name: many.answers[name] for name in heard} == alike(heard, Missing(others[0], "abandoned"))


def test_a_member_that_is_slow_is_not_doubted_before_the_timeout():
    four = Swarm()
    four.report("ada", "bob", "dan")
    four.wait(9)
    assert Prepare not in kinds(four.sent)
    four.report("eve")
    assert set(map(len, four.answers.values())) == {1}


@pytest.mark.parametrize("step", [0, 1])
def test_a_member_that_waits_for_others_is_not_slow_to_those_that_have_reported(step):
    four = Swarm()
    four.report("ada", "bob", "dan")
    for _ in range(8):
        for name in ("ada", "bob", "dan"):
            four.ask(name, heartbeat("eve", step=step, waiting=True))
        four.wait(2)
    assert Prepare not in kinds(four.sent)
    four.report("eve")
    assert four.outcomes == alike(NAMES, Concluded(committed=True, members=NAMES))


def test_what_a_member_reported_before_it_died_counts_and_is_forgotten_with_its_attempt():
    four = Swarm()
    four.dead.add("dan")
    for name in ("ada", "bob", "eve"):
        four.ask(name, arrived("dan", reported("dan", FAILED, voter=LIFE)))
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
    assert four.outcomes == alike(("ada", "bob"), Undecided(frozenset({"dan", "eve"})))


@pytest.mark.parametrize("mute", NAMES)
def test_what_a_member_lost_is_requested_and_repeated_without_a_ballot(mute):
    four = Swarm()
    four.mute = mute
    four.report(*NAMES)
    assert not four.answers[mute]
    four.mute = ""
    four.wait(2.5)
    four.wait(2.5)
    assert four.outcomes == alike(NAMES, Concluded(committed=True, members=NAMES))


def test_reports_that_come_before_an_attempt_begins_are_kept_for_it():
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


def test_a_report_on_an_attempt_that_is_far_off_is_not_kept():
    four = Swarm()
    for round in range(2, 40):
        four.ask("bob", arrived("ada", reported("ada", FAILED, place=(round, 0), voter=LIFE)))
    assert not four.sessions["bob"].commits._early


@pytest.mark.parametrize(
    ("early", "restarts"),
    [
        (cast("ada", 1, "nobody", AGAIN, place=(1, 0), voter=LIFE), False),  # no such ballot
        (reported("ada", FAILED, place=(1, 0), voter=LIFE), True),  # of its earlier incarnation
    ],
)
def test_an_early_message_that_means_nothing_once_its_attempt_begins_is_refused_and_ends_nobody(early, restarts):
    four = Swarm()
    bob = four.sessions["bob"]
    four.ask("bob", arrived("ada", early))
    four.ask("bob", arrived("dan", reported("dan", FAILED, place=(1, 0), voter=LIFE)))
    four.report(*NAMES)
    if restarts:
        four.ask("bob", announced("ada", life=LIFE + 1))
    effects = bob.handle(Try(1, 0, NAMES), now=four.now)
    assert not [each for each in effects if isinstance(each, Fail)]
    assert bob.shared.refused == {"ada: not a message": 1}
    assert bob.shared.abandoned  # handled after it


def test_a_member_votes_the_same_after_a_restart():
    four = Swarm()
    four.report(*NAMES[:3])
    four.mute = "bob"
    four.ask("eve", ReportAttempt(complete=True))
    while four.queue and not four.sessions["bob"].commits.records():
        four.ask(*four.queue.popleft())
    kept = four.sessions["bob"].commits.records()
    assert [each.record.accepted.member for each in kept] == ["bob"]
    again = met("bob", others=four.others("bob"), keeps=True, names=NAMES, commits=True)
    again.commits.restore(kept)
    assert again.commits.records() == kept
    again.handle(Try(0, 0, NAMES), now=0.0)
    assert again.commits.records() == kept


def test_a_member_that_has_restarted_answers_with_the_decision_that_it_has_stored():
    """It does so although it does not take part in that attempt any more."""
    four = Swarm()
    owner, counted = four.owner, Concluded(committed=True, members=NAMES)
    for name in NAMES:
        four.ask(name, ReportAttempt(complete=True))
    while not four.answers[owner]:
        four.ask(*four.queue.popleft())
    four.queue.clear()
    kept = four.sessions[owner].commits.records()
    four.sessions[owner] = met(owner, others=four.others(owner), keeps=True, names=NAMES, commits=True)
    four.sessions[owner].commits.restore(kept)
    four.wait(2.5)
    assert {name: four.answers[name] for name in four.others(owner)} == alike(four.others(owner), counted)


@pytest.mark.parametrize("message", [prepare("bob", 1), reported("bob", complete())])
def test_a_decision_from_before_a_restart_answers_requests_alone(message):
    decided = kept(0, decided=decision(cast("ada", 0, "ada", COUNTS), cast("bob", 0, "ada", COUNTS)))
    again = met("ada", others=("bob", "dan", "eve"), keeps=True, names=NAMES, commits=True)
    assert not [each for each in again.handle(arrived("bob", message), now=0.0) if isinstance(each, Publish)]
    again.commits.restore([decided])
    published = [each for each in again.handle(arrived("bob", message), now=0.0) if isinstance(each, Publish)]
    assert published == [Publish("in/bob", decided.record.decided)]
    for other in (reported("dan", complete()), cast("bob", 0, "ada", COUNTS), decided.record.decided):
        assert not [each for each in again.handle(arrived("bob", other), now=0.0) if isinstance(each, Publish)]
    assert again.commits.records() == (decided,)


def test_decisions_of_an_earlier_run_from_the_same_checkpoint_are_not_believed():
    """Both runs play attempt 0 at round 0, and an insider repeats a decision of the first one to bob alone."""
    first = Swarm()
    first.report(*NAMES)
    old = first.settlement("ada").decision
    again = Swarm(life=LIFE + 1)
    again.ask("bob", arrived("ada", old))
    assert again.sessions["bob"].shared.refused
    again.report("ada", "bob", "dan")
    assert not again.answers["bob"]
    again.report("eve", complete=False)
    assert again.outcomes == alike(NAMES, Concluded(committed=False, members=NAMES))


def test_no_healthy_peer_is_dropped_because_the_owner_of_the_committee_says_so():
    four = Swarm()
    owner = four.owner
    healthy = next(name for name in NAMES if name != owner)
    lie = encode_outcome(AttemptOutcome(False, tuple(name for name in NAMES if name != healthy)), NAMES)
    four.dead.add(owner)
    for name in four.others(owner):
        four.ask(name, arrived(owner, cast(owner, 0, owner, lie, voter=LIFE, final=False)))
        four.ask(name, arrived(owner, reported(owner, complete(), voter=LIFE)))
    four.report(*four.others(owner))
    for _ in range(20):
        four.wait(1)
    found = {name: four.answers[name] for name in four.others(owner)}
    assert found == alike(found, Concluded(committed=True, members=NAMES))


def test_a_member_that_reports_differently_to_each_half_is_excluded_and_no_two_outcomes_are_known():
    four = Swarm()
    attacker = next(name for name in NAMES if name != four.owner)
    honest = four.others(attacker)
    four.dead.add(attacker)
    for number, name in enumerate(honest):
        value = FAILED if number else complete()
        four.ask(name, arrived(attacker, reported(attacker, value, voter=LIFE)))
    four.report(*honest)
    for _ in range(30):
        four.wait(1)
    found = {tuple(four.answers[name]) for name in honest}
    assert len(found) == 1
    assert all(attacker in four.sessions[name].membership.excluded for name in honest)


def test_a_member_that_reports_to_one_other_alone_keeps_nobody_waiting():
    four = Swarm()
    attacker = next(name for name in NAMES if name != four.owner)
    honest = four.others(attacker)
    four.dead.add(attacker)
    four.ask(honest[0], arrived(attacker, reported(attacker, complete(), voter=LIFE)))
    four.report(*honest)
    for _ in range(40):
        four.wait(1)
    found = {tuple(four.answers[name]) for name in honest}
    assert len(found) == 1
    assert {type(each) for each in found.pop()} == {Concluded}


@pytest.mark.parametrize("owns", [True, False])
@pytest.mark.parametrize("receivers", [1, 2, 3])
def test_a_member_that_tags_a_report_without_a_signature_keeps_nobody_waiting(owns, receivers, monkeypatch):
    """All honest members come to one outcome, whether one of them or all believe the report by its tag."""
    signs = Statements.has_signed
    monkeypatch.setattr(
        Statements, "has_signed", lambda self, stated: signs(self, stated) and not _is_report(stated, attacker)
    )
    monkeypatch.setattr(Statements, "_has_tagged", lambda _, report: report.member == attacker)
    attacker = ""
    four = Swarm()
    attacker = four.owner if owns else four.others(four.owner)[0]
    honest = four.others(attacker)
    four.dead.add(attacker)
    counts = encode_outcome(AttemptOutcome(True, NAMES), NAMES)
    for name in honest[:receivers]:
        four.ask(name, arrived(attacker, reported(attacker, complete(), voter=LIFE)))
        if owns:
            four.ask(name, arrived(attacker, cast(attacker, 0, attacker, counts, voter=LIFE, final=False)))
    four.report(*honest)
    for _ in range(40):
        four.wait(1)
    outcomes = {tuple(four.answers[name]) for name in honest}
    assert len(outcomes) == 1
    members = NAMES if receivers + owns > 2 else tuple(sorted(honest))  # promises then show two that have accepted
    assert outcomes == {(Concluded(committed=members == NAMES, members=members),)}


def _is_report(stated, member):
    return isinstance(stated, Report) and stated.member == member


def test_what_the_owner_has_counted_is_believed_by_those_that_take_no_announcement_of_the_member_any_more():
    """They have excluded it before it announces a later incarnation, in which the owner hears that it accepts."""
    four = Swarm()
    owner, *others, attacker = four.settlement("ada").committee.members
    counts = encode_outcome(AttemptOutcome(True, NAMES), NAMES)
    again = encode_outcome(AttemptOutcome(False, tuple(name for name in NAMES if name != attacker)), NAMES)
    four.dead.add(attacker)
    for name in (owner, *others):
        four.ask(name, arrived(attacker, reported(attacker, complete(), voter=LIFE)))
    four.report(owner, *others)

    def accepts(name, value, life):
        four.ask(name, arrived(attacker, cast(attacker, 0, owner, value, voter=life, final=False)))

    for name in others:
        for value in (again, counts):
            accepts(name, value, LIFE)
        assert attacker in four.sessions[name].membership.excluded
    for name in (owner, *others):
        for event in (announced(attacker, life=LIFE + 1), heartbeat(attacker, life=LIFE + 1)):
            four.ask(name, event)
    accepts(owner, counts, LIFE + 1)
    four.flush()
    for _ in range(30):
        four.wait(1)
    assert four.outcomes == alike([owner, *others], Concluded(committed=True, members=NAMES))
