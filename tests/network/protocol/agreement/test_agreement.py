"""One member's part in an agreement: a few events, and all that follows."""

import math
from collections import Counter

import msgspec
import pytest

from ballots import AGAIN, COUNTS
from p2pfl.core.errors import InputError
from p2pfl.network.protocol.agreement.agreement import LEAP, Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Believe,
    Contradicted,
    Doubt,
    MemberRecord,
    MessageReceived,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TickAt,
    TimePassed,
)
from p2pfl.network.protocol.wire.verdict_messages import (
    HIGHEST,
    SEATS,
    Ballot,
    Committee,
    Decision,
    Place,
    Prepare,
    Promise,
    Proposal,
    Vote,
    draw_committee,
)

SUBJECT = Place(3, 0)
COMMITTEE = Committee(("ada", "bob", "eve"))
FIRST = COMMITTEE.first
SECOND = Ballot(1, "bob")
THIRD = Ballot(2, "eve")


def member(name="bob", **given):
    """A member that wants the attempt to be played again."""
    made = Agreement(name, SUBJECT, COMMITTEE, **given)
    made.wanted = AGAIN
    return made


def vote(name, ballot=FIRST, value=COUNTS):
    return Vote(SUBJECT, name, ballot, value)


def acceptance(name, ballot=SECOND, value=AGAIN):
    return Vote(SUBJECT, name, ballot, value, final=False)


PROOF = tuple(acceptance(name, FIRST, COUNTS) for name in ("ada", "bob"))
"""Acceptances that certify the owner's proposal."""

AGREED = tuple(acceptance(name, FIRST) for name in ("ada", "bob"))
"""Acceptances that certify that all play again."""


def accepting(promise):
    """The same promise of a member that has accepted that the round counts."""
    return msgspec.structs.replace(promise, accepted=FIRST, accepted_value=COUNTS)


def promise(name, ballot=SECOND, last=None, *proof):
    """A promise that reports a vote, with the proof of it."""
    if last is None:
        return Promise(SUBJECT, name, ballot)
    return Promise(SUBJECT, name, ballot, last.ballot, last.value, proof=proof or PROOF)


def proposal(name="bob", ballot=SECOND, value=AGAIN, *promises, proof=()):
    return Proposal(acceptance(name, ballot, value), promises, proof)


def prepared(name="bob", **given):
    """A member that has asked for promises, and holds its own."""
    made = member(name, **given)
    made.handle(Doubt(), now=0.0)
    made.handle(TimePassed(), now=made.due)
    made.handle(RecordStored(), now=made.due)
    return made


def accepted(made, message, *, now=0.0):
    """Everything that follows a message, with all writes done at once."""
    last = made.handle(MessageReceived(message.member if isinstance(message, Vote) else "bob", message), now=now)
    effects = [*last]
    if made.questioned is not None:
        last = made.handle(Believe(made.questioned), now=now)
        effects += last
    while any(isinstance(each, StoreRecord) for each in last):
        last = made.handle(RecordStored(), now=now)
        effects += last
    return effects


# ---------------------------------------------------------------------- the first ballot


def test_the_owner_proposes_and_sends_nothing_before_its_acceptance_is_durable():
    ada, proposed = member("ada"), acceptance("ada", FIRST, COUNTS)
    record = MemberRecord(FIRST, accepted=proposed)
    assert ada.handle(Propose(COUNTS), now=0.0) == [StoreRecord(record)]
    assert ada.handle(RecordStored(), now=0.0) == [Send(("bob", "eve"), proposed)]


def test_who_believes_the_proposal_accepts_it_votes_with_a_majority_and_decides_with_another_vote():
    bob, (first, own) = member(), AGREED
    assert bob.handle(MessageReceived("ada", first), now=0.0) == []
    assert bob.handle(Believe(AGAIN), now=0.0) == [StoreRecord(MemberRecord(FIRST, accepted=own))]
    record = MemberRecord(FIRST, vote("bob", value=AGAIN), accepted=own, proof=AGREED)
    assert bob.handle(RecordStored(), now=0.0) == [Send(("ada", "eve"), own), StoreRecord(record)]
    assert bob.handle(RecordStored(), now=0.0) == [Send(("ada", "eve"), vote("bob", value=AGAIN))]
    decision = Decision(SUBJECT, AGAIN, (vote("ada", value=AGAIN), vote("bob", value=AGAIN)))
    assert bob.handle(MessageReceived("ada", vote("ada", value=AGAIN)), now=0.0) == []
    assert (bob.value, bob.decision) == (AGAIN, decision)


def test_who_believes_that_a_round_counts_sends_its_acceptance_to_the_owner_alone_and_does_not_vote():
    bob, own = member(), acceptance("bob", FIRST, COUNTS)
    bob.handle(MessageReceived("ada", PROOF[0]), now=0.0)
    assert bob.handle(Believe(COUNTS), now=0.0) == [StoreRecord(MemberRecord(FIRST, accepted=own))]
    assert bob.handle(RecordStored(), now=0.0) == [Send(("ada",), own)]
    assert bob.record.voted is None


def test_acceptances_of_all_decide_that_a_round_counts_and_those_of_a_majority_do_not():
    ada = member("ada")
    ada.handle(Propose(COUNTS), now=0.0)
    ada.handle(RecordStored(), now=0.0)
    assert accepted(ada, PROOF[1]) == []
    decision = Decision(SUBJECT, COUNTS, (*PROOF, acceptance("eve", FIRST, COUNTS)))
    assert accepted(ada, acceptance("eve", FIRST, COUNTS)) == []
    eve = member("eve")
    assert (accepted(eve, Decision(SUBJECT, COUNTS, PROOF)), eve.decision) == ([], None)
    assert accepted(eve, decision) == []
    assert ada.decision == eve.decision == decision


def test_acceptances_of_all_decide_nothing_else():
    again = Decision(SUBJECT, AGAIN, tuple(acceptance(name, FIRST) for name in COMMITTEE.members))
    later = Decision(SUBJECT, COUNTS, tuple(acceptance(name, SECOND, COUNTS) for name in COMMITTEE.members))
    assert not again.holds(COMMITTEE)
    assert not later.holds(COMMITTEE)


def test_a_promise_reports_the_last_acceptance_also_after_a_crash():
    eve = member("eve", record=MemberRecord(FIRST, accepted=acceptance("eve", FIRST, COUNTS)))
    eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.0)
    assert eve.handle(RecordStored(), now=0.0) == [Send(("bob",), accepting(promise("eve")))]


def test_a_round_that_others_may_count_is_proposed_again_whatever_the_proposer_wants():
    bob = prepared(record=MemberRecord(FIRST, accepted=PROOF[1]))
    (store,) = bob.handle(MessageReceived("eve", accepting(promise("eve"))), now=0.0)
    assert store.record.accepted == acceptance("bob", SECOND, COUNTS)


def test_a_round_that_a_member_has_not_accepted_counts_nowhere_so_the_proposer_is_free():
    bob = prepared(record=MemberRecord(FIRST, accepted=PROOF[1]))
    (store,) = bob.handle(MessageReceived("eve", promise("eve")), now=0.0)
    assert store.record.accepted == acceptance("bob", SECOND, AGAIN)


def test_a_peer_outside_of_the_committee_takes_part_in_nothing_but_the_decision():
    zoe = member("zoe")
    for event in (Propose(COUNTS), Doubt(), MessageReceived("ada", PROOF[0]), MessageReceived("ada", vote("ada"))):
        assert zoe.handle(event, now=0.0) == []
    assert zoe.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.0) == []
    decision = Decision(SUBJECT, COUNTS, (vote("ada"), vote("bob")))
    assert zoe.handle(MessageReceived("zac", decision), now=0.0) == []
    assert zoe.decision == decision


def test_nobody_but_the_owner_proposes_in_the_first_ballot():
    bob = member()
    assert bob.handle(Propose(COUNTS), now=0.0) == []
    assert bob.handle(MessageReceived("eve", acceptance("eve", FIRST, COUNTS)), now=0.0) == []
    assert (bob.record, bob.questioned) == (BLANK, None)


def test_a_vote_without_acceptances_of_a_majority_leads_to_no_vote():
    bob = member()
    assert bob.handle(MessageReceived("ada", vote("ada")), now=0.0) == []
    assert bob.record == BLANK


def test_late_votes_and_repeated_ones_lead_to_no_message():
    bob, (one, other) = member(), (vote(name, value=AGAIN) for name in ("ada", "eve"))
    accepted(bob, AGREED[0])
    accepted(bob, one)
    assert bob.value == AGAIN
    assert [*accepted(bob, other), *accepted(bob, one), *accepted(bob, AGREED[0])] == []


# ---------------------------------------------------------------------- later ballots


def test_members_begin_a_ballot_in_the_order_of_their_names_and_the_owner_last():
    wakes = {name: member(name, pause=2.0).handle(Doubt(), now=1.0) for name in COMMITTEE.members}
    assert wakes == {"bob": [TickAt(1.0)], "eve": [TickAt(3.0)], "ada": [TickAt(5.0)]}


def test_a_proposer_stores_its_promise_before_it_asks_for_others():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    assert bob.handle(TimePassed(), now=0.0) == [StoreRecord(MemberRecord(SECOND)), TickAt(3.0)]
    assert bob.handle(RecordStored(), now=0.0) == [Send(("ada", "eve"), Prepare(SUBJECT, SECOND))]


def test_without_any_vote_the_proposer_proposes_what_it_wants():
    bob = prepared()
    record = MemberRecord(SECOND, accepted=acceptance("bob"))
    assert bob.handle(MessageReceived("eve", promise("eve")), now=0.0) == [StoreRecord(record)]
    sent = proposal("bob", SECOND, AGAIN, promise("bob"), promise("eve"))
    assert bob.handle(RecordStored(), now=0.0) == [Send(("ada", "eve"), sent)]


def test_who_accepts_a_proposal_tells_all_and_votes_once_a_majority_has():
    eve = member("eve")
    sent = proposal("bob", SECOND, AGAIN, promise("bob"), promise("eve"))
    assert eve.handle(MessageReceived("bob", sent), now=0.0) == []
    store, *_ = eve.handle(Believe(AGAIN), now=0.0)
    assert store == StoreRecord(MemberRecord(SECOND, accepted=acceptance("eve")))
    sends = [Send(("ada", "bob"), acceptance("eve"))]
    (*first, second) = eve.handle(RecordStored(), now=0.0)
    assert first == sends
    proof = (acceptance("bob"), acceptance("eve"))
    assert second == StoreRecord(MemberRecord(SECOND, vote("eve", SECOND, AGAIN), None, acceptance("eve"), proof))


def test_a_reported_vote_binds_the_proposer():
    bob = prepared()
    (store,) = bob.handle(MessageReceived("eve", promise("eve", SECOND, vote("eve"))), now=0.0)
    assert store == StoreRecord(MemberRecord(SECOND, accepted=acceptance("bob", SECOND, COUNTS)))
    sends = bob.handle(RecordStored(), now=0.0)
    assert {each.message.proof for each in sends} == {PROOF}


def test_of_two_reported_votes_the_one_in_the_higher_ballot_binds():
    group = Committee(("ada", "bob", "eve", "mia"))
    first = tuple(acceptance(name, FIRST, COUNTS) for name in ("ada", "bob", "eve"))
    bob = Agreement("bob", SUBJECT, group, MemberRecord(THIRD, vote("bob"), proof=first))
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=bob.due)
    bob.handle(RecordStored(), now=0.0)
    ballot = bob.record.promised
    assert ballot == Ballot(5, "bob")
    proof = tuple(map(acceptance, ("bob", "eve", "mia")))
    bob.handle(MessageReceived("eve", promise("eve", ballot, vote("eve", SECOND, AGAIN), *proof)), now=0.0)
    (store,) = bob.handle(MessageReceived("mia", promise("mia", ballot)), now=0.0)
    assert store.record.accepted == acceptance("bob", ballot, AGAIN)


def test_a_promise_reports_the_last_vote_and_leaves_once_it_is_durable():
    eve = member("eve", record=MemberRecord(FIRST, vote("eve"), proof=PROOF))
    store, wake = eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=5.0)
    assert (store, wake) == (StoreRecord(MemberRecord(SECOND, vote("eve"), proof=PROOF)), TickAt(9.0))
    assert eve.handle(RecordStored(), now=5.0) == [Send(("bob",), promise("eve", SECOND, vote("eve")))]


def test_a_ballot_of_another_member_postpones_ones_own():
    eve = member("eve")
    eve.handle(Doubt(), now=0.0)
    eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.5)
    assert eve.due == 1 + 4


def test_a_proposer_postpones_the_ballots_of_another_member_once():
    eve = member("eve")
    eve.handle(Doubt(), now=0.0)
    for number in (1, 4, 7):
        eve.handle(MessageReceived("bob", Prepare(SUBJECT, Ballot(number, "bob"))), now=0.5)
    assert eve.due == 1 + 4


def test_a_ballot_of_the_owner_which_hears_nobody_or_has_left_does_not_postpone_ones_own():
    eve = member("eve")
    eve.handle(Doubt(), now=0.0)
    eve.handle(MessageReceived("ada", Prepare(SUBJECT, Ballot(1, "ada"))), now=0.5)
    assert (eve.due, eve.record.promised) == (1.0, Ballot(1, "ada"))


def test_a_member_without_doubt_finishes_what_a_ballot_of_the_owner_began():
    eve = member("eve")
    eve.handle(MessageReceived("ada", Prepare(SUBJECT, Ballot(1, "ada"))), now=0.5)
    assert eve.due == 4.5


def test_after_a_promise_no_vote_follows_in_a_lower_ballot():
    eve = member("eve", record=MemberRecord(SECOND))
    accepted(eve, PROOF[0])
    assert accepted(eve, PROOF[1]) == []
    assert eve.record.accepted is eve.record.voted is None


def test_a_proposer_that_promised_a_higher_ballot_in_the_meantime_proposes_nothing():
    bob = prepared()
    bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0)
    assert bob.handle(MessageReceived("eve", promise("eve")), now=0.0) == []
    assert bob.record == MemberRecord(THIRD)


def test_a_request_for_a_lower_ballot_is_answered_with_the_promise_that_is_in_its_way():
    eve = member("eve", record=MemberRecord(THIRD))
    assert eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.0)[0] == Send(
        ("bob",), promise("eve", THIRD)
    )
    bob = prepared()
    bob.handle(MessageReceived("eve", promise("eve", THIRD)), now=0.0)
    bob.handle(TimePassed(), now=bob.due)
    assert bob.record.promised == Ballot(4, "bob")


def test_a_proposer_waits_twice_as_long_after_each_ballot():
    bob, pauses = prepared(), []
    for _ in range(9):
        before = bob.due
        bob.handle(TimePassed(), now=before)
        bob.handle(RecordStored(), now=before)
        pauses.append(bob.due - before)
    assert pauses == [6, 12, 24, 48, 96, 192, 192, 192, 192]


# ---------------------------------------------------------------------- decisions


def test_who_has_the_decision_answers_requests_with_it():
    bob = member()
    accepted(bob, AGREED[0])
    accepted(bob, vote("ada", value=AGAIN))
    decision = bob.record.decided
    assert bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0) == [Send(("eve",), decision)]


def test_a_decision_is_not_written_and_answers_at_once():
    bob = member(record=MemberRecord(FIRST, vote("bob"), proof=PROOF))
    assert bob.handle(MessageReceived("ada", vote("ada")), now=0.0) == []
    assert bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0) == [Send(("eve",), bob.decision)]


def test_what_a_decision_overtakes_before_it_is_durable_is_never_sent():
    """The promise is sent, because its write was begun before; the acceptance that waits behind it is not."""
    eve, decision = member("eve"), Decision(SUBJECT, AGAIN, (vote("ada", value=AGAIN), vote("bob", value=AGAIN)))
    assert eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.0)[0] == StoreRecord(MemberRecord(SECOND))
    promises = (promise("bob"), promise("ada"))
    eve.handle(MessageReceived("bob", proposal("bob", SECOND, AGAIN, *promises)), now=0.0)
    eve.handle(Believe(AGAIN), now=0.0)
    assert eve.record.accepted == acceptance("eve", SECOND, AGAIN)
    assert eve.handle(MessageReceived("bob", decision), now=0.0) == []
    assert eve.handle(RecordStored(), now=0.0) == [Send(("bob",), promise("eve"))]
    assert eve.handle(RecordStored(), now=0.0) == []


def test_a_decision_is_taken_with_the_votes_of_a_majority_and_not_with_fewer():
    eve = member("eve")
    few = Decision(SUBJECT, COUNTS, (vote("ada"), vote("ada")))
    assert eve.handle(MessageReceived("bob", few), now=0.0) == []
    mixed = Decision(SUBJECT, COUNTS, (vote("ada"), vote("bob", SECOND)))
    assert eve.handle(MessageReceived("bob", mixed), now=0.0) == []
    good = Decision(SUBJECT, COUNTS, (vote("ada"), vote("bob")))
    assert eve.handle(MessageReceived("bob", good), now=0.0) == []
    assert eve.value == COUNTS


def test_after_a_decision_nothing_is_begun():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    accepted(bob, AGREED[0])
    accepted(bob, vote("ada", value=AGAIN))
    assert bob.due == math.inf
    assert bob.handle(Doubt(), now=9.0) == bob.handle(TimePassed(), now=9.0) == []


# ---------------------------------------------------------------------- crashes


def test_a_vote_that_was_stored_binds_the_member_after_a_crash():
    bob = member(record=MemberRecord(FIRST, vote("bob"), proof=PROOF))
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    bob.handle(RecordStored(), now=0.0)
    (store,) = bob.handle(MessageReceived("eve", promise("eve")), now=0.0)
    assert store.record.accepted == acceptance("bob", SECOND, COUNTS)


def test_a_member_begins_no_ballot_twice_after_a_crash():
    bob = member(record=MemberRecord(SECOND))
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=bob.due)
    assert (bob.record.promised, bob.due) == (Ballot(4, "bob"), 2.0 + 6.0)


def test_an_owner_that_has_proposed_proposes_nothing_else_in_the_first_ballot_after_a_crash():
    ada = member("ada", record=MemberRecord(FIRST, accepted=PROOF[0]))
    assert ada.handle(Propose(AGAIN), now=2.0) == []


def test_a_proposer_that_does_not_know_yet_what_it_wants_proposes_once_it_does():
    bob = prepared()
    bob.wanted = None
    assert bob.handle(MessageReceived("eve", promise("eve")), now=0.0) == []
    (store,) = bob.handle(Propose(COUNTS), now=1.0)
    assert store.record.accepted == acceptance("bob", SECOND, COUNTS)


# ---------------------------------------------------------------------- what others may send


def test_two_values_in_one_ballot_prove_that_their_sender_lies():
    bob = member()
    bob.handle(MessageReceived("eve", vote("eve", THIRD, AGAIN)), now=0.0)
    found = bob.handle(MessageReceived("eve", vote("eve", THIRD, COUNTS)), now=0.0)
    assert found == [Contradicted(vote("eve", THIRD, AGAIN), vote("eve", THIRD, COUNTS))]


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("mia", vote("mia")),
        ("eve", vote("ada")),
        ("eve", Prepare(SUBJECT, SECOND)),
        ("eve", Prepare(SUBJECT, Ballot(0, "eve"))),
        ("eve", Prepare(SUBJECT, Ballot(-1, "eve"))),
        ("eve", Prepare(SUBJECT, Ballot(HIGHEST, "eve"))),
        ("eve", Prepare(SUBJECT._replace(round=4), THIRD)),
        ("eve", vote("eve", Ballot(HIGHEST, "eve"))),
        ("bob", proposal("bob", Ballot(HIGHEST, "bob"), AGAIN, *(promise(n, Ballot(HIGHEST, "bob")) for n in "ab"))),
        ("eve", vote("eve", Ballot(3, "mia"))),
    ],
)
def test_what_a_member_cannot_send_changes_nothing(sender, message):
    bob = member()
    assert bob.handle(MessageReceived(sender, message), now=0.0) == []
    assert (bob.record, bob.due) == (BLANK, math.inf)
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    assert bob.record.promised == SECOND


def test_one_message_uses_up_few_ballot_numbers_and_members_that_are_behind_catch_up():
    bob, far = member(), 3 * LEAP
    for known in (LEAP, 2 * LEAP):
        assert bob.handle(MessageReceived("eve", Prepare(SUBJECT, Ballot(far, "eve"))), now=0.0) == []
        assert bob._highest == known
    bob.handle(MessageReceived("eve", Prepare(SUBJECT, Ballot(far, "eve"))), now=0.0)
    assert bob.record.promised == Ballot(far, "eve")


def test_votes_and_promises_that_nobody_asked_for_use_up_no_ballot_numbers():
    bob, far = member(), Ballot(LEAP, "eve")
    for statement in (vote("eve", far, AGAIN), acceptance("eve", far), promise("eve", far)):
        bob.handle(MessageReceived("eve", statement), now=0.0)
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    assert bob.record.promised == SECOND


def test_a_member_that_prevents_a_ballot_moves_the_next_one_above_its_own_promise_once():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    for number in (5, LEAP):
        bob.handle(MessageReceived("eve", promise("eve", Ballot(number, "eve"))), now=0.0)
    bob.handle(TimePassed(), now=100.0)
    assert bob.record.promised == Ballot(7, "bob")


def test_a_promise_moves_the_ballot_of_another_member_by_one_cycle_at_most():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    bob.handle(MessageReceived("eve", promise("eve", Ballot(HIGHEST - 2, "eve"))), now=0.0)
    bob.handle(TimePassed(), now=bob.due)
    assert bob.record.promised == Ballot(7, "bob")


def test_a_proposal_that_a_majority_has_promised_is_accepted_however_high_its_ballot():
    eve, ballot = member("eve"), Ballot(5 * LEAP, "bob")
    promises = promise("ada", ballot), promise("bob", ballot)
    eve.handle(MessageReceived("bob", proposal("bob", ballot, AGAIN, *promises)), now=0.0)
    eve.handle(Believe(AGAIN), now=0.0)
    assert eve.record.accepted == acceptance("eve", ballot)


def test_a_vote_is_signed_with_all_that_it_says():
    signed = []
    ada = member("ada", sign=lambda statement: signed.append(statement) or b"signature")
    (store,) = ada.handle(Propose(COUNTS), now=0.0)
    assert store.record.accepted.signature == b"signature"
    statements = {
        Vote(subject, name, ballot, value, incarnation=incarnation, final=final).statement
        for subject in (SUBJECT, SUBJECT._replace(attempt=1), SUBJECT._replace(round=4))
        for name in ("ada", "bob")
        for ballot in (FIRST, SECOND)
        for value in (COUNTS, AGAIN)
        for incarnation in (0, 1)
        for final in (False, True)
    }
    assert len(statements) == 96
    assert signed[0] in statements
    assert statements.isdisjoint({promise("ada").statement, promise("ada", SECOND, vote("ada")).statement})


def test_a_committee_names_each_member_once():
    for names in ((), ("ada", "ada")):
        with pytest.raises(InputError, match="form no committee"):
            Committee(names)


@pytest.mark.parametrize("size", range(1, 8))
def test_two_majorities_share_an_honest_member_and_one_of_honest_members_is_there(size):
    least, byzantine = Committee(tuple("abcdefg"[:size])).majority, (size - 1) // 3
    assert 2 * least - size > byzantine
    assert least <= size - byzantine


def test_all_members_sit_in_a_committee_in_turn_and_own_one():
    names = tuple(f"peer{number}" for number in range(20))
    drawn = [draw_committee(names, Place(round, 0), swarm="run") for round in range(400)]
    seats = Counter(name for each in drawn for name in each.members)
    assert min(seats.values()) > 0.7 * 400 * SEATS / 20
    assert {each.owner for each in drawn} == {*names}
    assert draw_committee(names[::-1], Place(7, 0), swarm="run") == drawn[7]
    assert draw_committee(names, Place(7, 1), swarm="run") != drawn[7] != draw_committee(names, Place(7, 0), swarm="x")
