"""One member's part in an agreement: a few events, and all that follows."""

import math

import pytest

from ballots import COUNTED
from p2pfl.core.errors import InputError
from p2pfl.network.protocol.agreement.agreement import LEAP, Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
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
    DROPPED,
    HIGHEST,
    Ballot,
    Committee,
    Decision,
    Prepare,
    Promise,
    Proposal,
    Release,
    Vote,
)

SUBJECT = Release("ada", 7, 3, 0)
COMMITTEE = Committee(("ada", "bob", "eve"), owner="ada")
FIRST = COMMITTEE.first
SECOND = Ballot(1, "bob")
THIRD = Ballot(2, "eve")


def member(name="bob", **given):
    return Agreement(name, SUBJECT, COMMITTEE, **{"wanted": DROPPED} | given)


def vote(name, ballot=FIRST, value=COUNTED):
    return Vote(SUBJECT, name, ballot, value)


def acceptance(name, ballot=SECOND, value=DROPPED):
    return Vote(SUBJECT, name, ballot, value, final=False)


def promise(name, ballot=SECOND, last=None, *proof):
    """A promise that reports a vote, with the proof of it."""
    if last is None:
        return Promise(SUBJECT, name, ballot)
    return Promise(SUBJECT, name, ballot, last.ballot, last.value, proof=proof or (vote("ada"),))


def proposal(name="bob", ballot=SECOND, value=DROPPED, *promises, proof=()):
    return Proposal(acceptance(name, ballot, value), promises, proof)


def prepared(name="bob"):
    """A member that has asked for promises, and holds its own."""
    made = member(name)
    made.handle(Doubt(), now=0.0)
    made.handle(TimePassed(), now=made.due)
    made.handle(RecordStored(), now=made.due)
    return made


def accepted(made, message, *, now=0.0):
    """Everything that follows a message, with all writes done at once."""
    last = made.handle(MessageReceived(message.member if isinstance(message, Vote) else "bob", message), now=now)
    effects = [*last]
    while any(isinstance(each, StoreRecord) for each in last):
        last = made.handle(RecordStored(), now=now)
        effects += last
    return effects


# ---------------------------------------------------------------------- the first ballot


def test_the_owner_votes_for_its_release_and_sends_nothing_before_the_vote_is_durable():
    ada = member("ada")
    record = MemberRecord(FIRST, vote("ada"), proof=(vote("ada"),))
    assert ada.handle(Propose(COUNTED), now=0.0) == [StoreRecord(record)]
    sent = [Send(each, vote("ada"), prompt=False) for each in ("bob", "eve")]
    assert ada.handle(RecordStored(), now=0.0) == sent


def test_who_receives_the_release_votes_likewise_and_decides_with_the_owner():
    bob = member()
    assert bob.handle(MessageReceived("ada", vote("ada")), now=0.0) == [
        StoreRecord(MemberRecord(FIRST, vote("bob"), proof=(vote("ada"),)))
    ]
    decision = Decision(SUBJECT, COUNTED, (vote("ada"), vote("bob")))
    assert bob.handle(RecordStored(), now=0.0) == [
        Send("ada", vote("bob"), prompt=False),
        Send("eve", vote("bob"), prompt=False),
        StoreRecord(MemberRecord(decided=decision)),
    ]
    assert bob.value is None
    assert bob.handle(RecordStored(), now=0.0) == []
    assert bob.value == COUNTED


def test_nobody_but_the_owner_proposes_in_the_first_ballot():
    bob = member()
    assert bob.handle(Propose(COUNTED), now=0.0) == []
    assert bob.handle(MessageReceived("eve", vote("eve")), now=0.0) == []
    assert bob.record == BLANK


def test_late_votes_and_repeated_ones_lead_to_no_message():
    bob = member()
    accepted(bob, vote("ada"))
    assert [*accepted(bob, vote("eve")), *accepted(bob, vote("ada")), *accepted(bob, vote("eve"))] == []


# ---------------------------------------------------------------------- later ballots


def test_members_begin_a_ballot_in_the_order_of_their_names_and_the_owner_last():
    wakes = {name: member(name, pause=2.0).handle(Doubt(), now=1.0) for name in COMMITTEE.members}
    assert wakes == {"bob": [TickAt(1.0)], "eve": [TickAt(3.0)], "ada": [TickAt(5.0)]}


def test_a_proposer_stores_its_promise_before_it_asks_for_others():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    assert bob.handle(TimePassed(), now=0.0) == [StoreRecord(MemberRecord(SECOND)), TickAt(3.0)]
    assert bob.handle(RecordStored(), now=0.0) == [Send(each, Prepare(SUBJECT, SECOND)) for each in ("ada", "eve")]


def test_without_any_vote_the_proposer_proposes_what_it_wants():
    bob = prepared()
    record = MemberRecord(SECOND, accepted=acceptance("bob"))
    assert bob.handle(MessageReceived("eve", promise("eve")), now=0.0) == [StoreRecord(record)]
    sent = proposal("bob", SECOND, DROPPED, promise("bob"), promise("eve"))
    assert bob.handle(RecordStored(), now=0.0) == [Send("ada", sent), Send("eve", sent)]


def test_who_accepts_a_proposal_tells_all_and_votes_once_a_majority_has():
    eve = member("eve")
    sent = proposal("bob", SECOND, DROPPED, promise("bob"), promise("eve"))
    store, *_ = eve.handle(MessageReceived("bob", sent), now=0.0)
    assert store == StoreRecord(MemberRecord(SECOND, accepted=acceptance("eve")))
    sends = [Send(each, acceptance("eve")) for each in ("ada", "bob")]
    (*first, second) = eve.handle(RecordStored(), now=0.0)
    assert first == sends
    proof = (acceptance("bob"), acceptance("eve"))
    assert second == StoreRecord(MemberRecord(SECOND, vote("eve", SECOND, DROPPED), None, acceptance("eve"), proof))


def test_a_reported_vote_binds_the_proposer():
    bob = prepared()
    (store,) = bob.handle(MessageReceived("eve", promise("eve", SECOND, vote("eve"))), now=0.0)
    assert store == StoreRecord(MemberRecord(SECOND, accepted=acceptance("bob", SECOND, COUNTED)))
    sends = bob.handle(RecordStored(), now=0.0)
    assert {each.message.proof for each in sends} == {(vote("ada"),)}


def test_of_two_reported_votes_the_one_in_the_higher_ballot_binds():
    group = Committee(("ada", "bob", "eve", "mia"), owner="ada")
    bob = Agreement(
        "bob", SUBJECT, group, wanted=DROPPED, record=MemberRecord(THIRD, vote("bob"), proof=(vote("ada"),))
    )
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    bob.handle(RecordStored(), now=0.0)
    ballot = bob.record.promised
    assert ballot == Ballot(3, "bob")
    proof = tuple(map(acceptance, ("bob", "eve", "mia")))
    bob.handle(MessageReceived("eve", promise("eve", ballot, vote("eve", SECOND, DROPPED), *proof)), now=0.0)
    (store,) = bob.handle(MessageReceived("mia", promise("mia", ballot)), now=0.0)
    assert store.record.accepted == acceptance("bob", ballot, DROPPED)


def test_a_promise_reports_the_last_vote_and_leaves_once_it_is_durable():
    eve = member("eve", record=MemberRecord(FIRST, vote("eve"), proof=(vote("ada"),)))
    store, wake = eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=5.0)
    assert (store, wake) == (StoreRecord(MemberRecord(SECOND, vote("eve"), proof=(vote("ada"),))), TickAt(9.0))
    assert eve.handle(RecordStored(), now=5.0) == [Send("bob", promise("eve", SECOND, vote("eve")))]


def test_a_ballot_of_another_member_postpones_ones_own():
    eve = member("eve")
    eve.handle(Doubt(), now=0.0)
    eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.5)
    assert eve.due == 4.5


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
    assert eve.handle(MessageReceived("ada", vote("ada")), now=0.0) == []
    assert eve.record.voted is None


def test_a_proposer_that_promised_a_higher_ballot_in_the_meantime_proposes_nothing():
    bob = prepared()
    bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0)
    assert bob.handle(MessageReceived("eve", promise("eve")), now=0.0) == []
    assert bob.record == MemberRecord(THIRD)


def test_a_request_for_a_lower_ballot_is_answered_with_the_promise_that_is_in_its_way():
    eve = member("eve", record=MemberRecord(THIRD))
    assert eve.handle(MessageReceived("bob", Prepare(SUBJECT, SECOND)), now=0.0)[0] == Send(
        "bob", promise("eve", THIRD)
    )
    bob = prepared()
    bob.handle(MessageReceived("eve", promise("eve", THIRD)), now=0.0)
    bob.handle(TimePassed(), now=bob.due)
    assert bob.record.promised == Ballot(3, "bob")


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
    accepted(bob, vote("ada"))
    decision = bob.record.decided
    assert bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0) == [Send("eve", decision)]


def test_a_decision_that_is_not_durable_yet_is_not_sent():
    bob = member(record=MemberRecord(FIRST, vote("bob"), proof=(vote("ada"),)))
    assert [type(each) for each in bob.handle(MessageReceived("ada", vote("ada")), now=0.0)] == [StoreRecord]
    assert bob.handle(MessageReceived("eve", Prepare(SUBJECT, THIRD)), now=0.0) == []
    assert [type(each) for each in bob.handle(RecordStored(), now=0.0)] == [Send]


def test_a_decision_is_taken_with_the_votes_of_a_majority_and_not_with_fewer():
    eve = member("eve")
    few = Decision(SUBJECT, COUNTED, (vote("ada"), vote("ada")))
    assert eve.handle(MessageReceived("bob", few), now=0.0) == []
    mixed = Decision(SUBJECT, COUNTED, (vote("ada"), vote("bob", SECOND)))
    assert eve.handle(MessageReceived("bob", mixed), now=0.0) == []
    good = Decision(SUBJECT, COUNTED, (vote("ada"), vote("bob")))
    assert eve.handle(MessageReceived("bob", good), now=0.0) == [StoreRecord(MemberRecord(decided=good))]
    assert eve.handle(RecordStored(), now=0.0) == []
    assert eve.value == COUNTED


def test_after_a_decision_nothing_is_begun():
    bob = member()
    bob.handle(Doubt(), now=0.0)
    accepted(bob, vote("ada"))
    assert bob.due == math.inf
    assert bob.handle(Doubt(), now=9.0) == bob.handle(TimePassed(), now=9.0) == []


# ---------------------------------------------------------------------- crashes


def test_a_vote_that_was_stored_binds_the_member_after_a_crash():
    bob = member(record=MemberRecord(FIRST, vote("bob"), proof=(vote("ada"),)))
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    bob.handle(RecordStored(), now=0.0)
    (store,) = bob.handle(MessageReceived("eve", promise("eve")), now=0.0)
    assert store.record.accepted == acceptance("bob", SECOND, COUNTED)


def test_a_member_begins_no_ballot_twice_after_a_crash():
    bob = member(record=MemberRecord(SECOND))
    bob.handle(Doubt(), now=0.0)
    bob.handle(TimePassed(), now=0.0)
    assert bob.record.promised == Ballot(2, "bob")


def test_an_owner_that_crashed_before_its_vote_was_durable_may_want_its_release_dropped():
    ada = member("ada")
    ada.handle(Doubt(), now=0.0)
    ada.handle(TimePassed(), now=2.0)
    ada.handle(RecordStored(), now=2.0)
    (store,) = ada.handle(MessageReceived("bob", promise("bob", Ballot(1, "ada"))), now=2.0)
    assert store.record.accepted.value == DROPPED
    assert ada.handle(Propose(COUNTED), now=2.0) == []


# ---------------------------------------------------------------------- what others may send


def test_two_values_in_one_ballot_prove_that_their_sender_lies():
    bob = member()
    bob.handle(MessageReceived("eve", vote("eve", THIRD, DROPPED)), now=0.0)
    found = bob.handle(MessageReceived("eve", vote("eve", THIRD, COUNTED)), now=0.0)
    assert found == [Contradicted(vote("eve", THIRD, DROPPED), vote("eve", THIRD, COUNTED))]


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("ada", vote("ada", value=DROPPED)),
        ("eve", vote("eve", THIRD, "perhaps")),
        ("mia", vote("mia")),
        ("eve", vote("ada")),
        ("eve", Prepare(SUBJECT, SECOND)),
        ("eve", Prepare(SUBJECT, Ballot(0, "eve"))),
        ("eve", Prepare(SUBJECT, Ballot(-1, "eve"))),
        ("eve", Prepare(SUBJECT, Ballot(HIGHEST, "eve"))),
        ("eve", Prepare(SUBJECT._replace(round=4), THIRD)),
        ("eve", vote("eve", Ballot(HIGHEST, "eve"))),
        ("bob", proposal("bob", Ballot(HIGHEST, "bob"), DROPPED, *(promise(n, Ballot(HIGHEST, "bob")) for n in "ab"))),
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
    for statement in (vote("eve", far, DROPPED), acceptance("eve", far), promise("eve", far)):
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
    assert bob.record.promised == Ballot(6, "bob")


def test_a_proposal_that_a_majority_has_promised_is_accepted_however_high_its_ballot():
    eve, ballot = member("eve"), Ballot(5 * LEAP, "bob")
    promises = promise("ada", ballot), promise("bob", ballot)
    eve.handle(MessageReceived("bob", proposal("bob", ballot, DROPPED, *promises)), now=0.0)
    assert eve.record.accepted == acceptance("eve", ballot)


def test_a_vote_is_signed_with_all_that_it_says():
    signed = []
    ada = member("ada", sign=lambda statement: signed.append(statement) or b"signature")
    (store,) = ada.handle(Propose(COUNTED), now=0.0)
    assert store.record.voted.signature == b"signature"
    statements = {
        Vote(subject, name, ballot, value, incarnation=incarnation, final=final).statement
        for subject in (SUBJECT, SUBJECT._replace(attempt=1), SUBJECT._replace(round=4))
        for name in ("ada", "bob")
        for ballot in (FIRST, SECOND)
        for value in (COUNTED, DROPPED)
        for incarnation in (0, 1)
        for final in (False, True)
    }
    assert len(statements) == 96
    assert signed[0] in statements
    assert statements.isdisjoint({promise("ada").statement, promise("ada", SECOND, vote("ada")).statement})


def test_a_committee_names_each_member_once_and_its_owner():
    with pytest.raises(InputError, match="form no committee"):
        Committee(("ada", "bob"), owner="eve")
    with pytest.raises(InputError, match="form no committee"):
        Committee(("ada", "ada"), owner="ada")


@pytest.mark.parametrize(("size", "least"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (7, 5), (16, 9)])
def test_two_majorities_share_two_members_from_four_on(size, least):
    names = tuple(f"peer{number}" for number in range(size))
    assert Committee(names, owner="peer0").majority == least


# ---------------------------------------------------------------------- participant sets
