"""A member accepts only what the proposer of a ballot was free to propose."""

from dataclasses import dataclass

import pytest

from ballots import AGAIN, COUNTS
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Believe,
    Contradicted,
    Doubt,
    MemberRecord,
    MessageReceived,
    Propose,
    RecordStored,
    TimePassed,
)
from p2pfl.network.protocol.agreement.proofs import follows
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Committee,
    Decision,
    Place,
    Promise,
    Proposal,
    Vote,
)

NAMES = ("ada", "bob", "eve", "mia")
SUBJECT = Place(3, 0)
OTHER = SUBJECT._replace(round=4)
COMMITTEE = Committee(NAMES)
FIRST, SECOND, THIRD = COMMITTEE.first, Ballot(1, "mia"), Ballot(2, "mia")


def vote(name, ballot=FIRST, value=COUNTS, **given):
    return Vote(SUBJECT, name, ballot, value, **given)


def accepted(*names, ballot=SECOND, value=AGAIN):
    return tuple(vote(name, ballot, value, final=False) for name in names)


def promise(name, ballot=SECOND, voted=None, value=None, **given):
    return Promise(given.pop("subject", SUBJECT), name, ballot, voted, value, **given)


def proposal(*promises, value=AGAIN, ballot=SECOND, name="mia", proof=(), **given):
    return Proposal(vote(name, ballot, value, **{"final": False} | given), promises, proof)


BINDING = accepted("ada", "bob", "eve", ballot=FIRST, value=COUNTS)
FREE = tuple(map(promise, ("bob", "eve", "mia")))
COUNTED = tuple(promise(name, accepted=FIRST, accepted_value=COUNTS) for name in ("bob", "eve"))
BOUND = promise("bob", voted=FIRST, value=COUNTS)
LATER = tuple(promise(name, THIRD) for name in ("bob", "eve"))


@pytest.mark.parametrize(
    "proposed",
    [
        proposal(*FREE),
        proposal(*FREE, value=COUNTS),
        proposal(BOUND, *FREE[1:], value=COUNTS, proof=BINDING),
        proposal(*COUNTED, FREE[2], value=COUNTS),
        proposal(COUNTED[0], *FREE[1:]),
        proposal(*LATER, promise("mia", THIRD, SECOND, AGAIN), ballot=THIRD, proof=accepted("ada", "bob", "mia")),
    ],
)
def test_a_member_accepts_a_proposal_that_follows_from_promises(proposed):
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("mia", proposed), now=0.0)
    eve.handle(Believe(proposed.value), now=0.0)
    ballot = proposed.vote.ballot
    assert eve.record == MemberRecord(ballot, accepted=vote("eve", ballot, proposed.value, final=False))


@pytest.mark.parametrize(
    "proposed",
    [
        proposal(),
        proposal(*FREE[:2]),
        proposal(*FREE[:2], FREE[0]),
        proposal(*FREE[:2], promise("zoe")),
        proposal(*FREE[:2], promise("mia", THIRD)),
        proposal(*FREE[:2], promise("mia", subject=OTHER)),
        proposal(*FREE, final=True),
        proposal(*FREE, name="eve"),
        proposal(*FREE, ballot=Ballot(1, "zoe"), name="zoe"),
        proposal(BOUND, *FREE[1:]),
        proposal(BOUND, *FREE[1:], proof=BINDING),
        proposal(*COUNTED, FREE[2]),
        proposal(*FREE[:2], promise("mia", accepted=FIRST)),
        proposal(*FREE[:2], promise("mia", accepted=SECOND, accepted_value=AGAIN)),
        proposal(BOUND, *FREE[1:], value=COUNTS, proof=accepted("ada", "bob", ballot=FIRST, value=COUNTS)),
        proposal(BOUND, *FREE[1:], value=COUNTS),
        proposal(BOUND, *FREE[1:], value=COUNTS, proof=(vote("mia"),)),
        proposal(BOUND, promise("eve", voted=FIRST, value=AGAIN), *FREE[2:], value=COUNTS, proof=BINDING),
        proposal(promise("bob", value=COUNTS), *FREE[1:]),
        proposal(promise("bob", voted=SECOND, value=AGAIN), *FREE[1:], proof=accepted("ada", "bob", "mia")),
        proposal(*LATER, promise("mia", THIRD, SECOND, AGAIN), ballot=THIRD, proof=accepted("ada", "mia")),
        proposal(*LATER, promise("mia", THIRD, SECOND, AGAIN), ballot=THIRD, proof=accepted("ada", "mia", "zoe")),
        proposal(
            *LATER, promise("mia", THIRD, SECOND, AGAIN), ballot=THIRD, value=COUNTS, proof=accepted("ada", "bob")
        ),
        proposal(
            *LATER,
            promise("mia", THIRD, SECOND, AGAIN),
            ballot=THIRD,
            proof=tuple(vote(name, SECOND, AGAIN) for name in ("ada", "bob", "mia")),
        ),
    ],
)
def test_a_member_accepts_no_proposal_that_does_not_follow(proposed):
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("mia", proposed), now=0.0)
    eve.handle(Believe(proposed.value), now=0.0)
    assert eve.record == BLANK
    assert not follows(proposed, committee=COMMITTEE)


def test_a_member_accepts_what_it_does_not_believe_only_if_a_vote_demands_it():
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0)
    assert (eve.record, eve.questioned) == (BLANK, AGAIN)
    eve.handle(Believe(COUNTS), now=0.0)
    assert eve.record == BLANK
    bound = promise("mia", THIRD, SECOND, AGAIN, accepted=SECOND, accepted_value=AGAIN)
    demanded = proposal(*LATER, bound, ballot=THIRD, proof=accepted("ada", "bob", "mia"))
    eve.handle(MessageReceived("mia", demanded), now=0.0)
    assert eve.record.accepted == vote("eve", THIRD, AGAIN, final=False)


def test_a_proposal_that_another_member_passes_on_is_not_accepted():
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("bob", proposal(*FREE)), now=0.0)
    assert eve.record == BLANK


def test_of_two_proposals_in_one_ballot_a_member_accepts_the_first_also_after_a_crash():
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0)
    eve.handle(Believe(AGAIN), now=0.0)
    again = Agreement("eve", SUBJECT, COMMITTEE, record=eve.record)
    for made in (eve, again):
        made.handle(MessageReceived("mia", proposal(*FREE, value=COUNTS)), now=0.0)
        made.handle(Believe(COUNTS), now=0.0)
        assert made.record.accepted == vote("eve", SECOND, AGAIN, final=False)


def test_votes_for_a_value_that_no_majority_has_accepted_lead_to_no_vote():
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0)
    eve.handle(Believe(AGAIN), now=0.0)
    eve.handle(RecordStored(), now=0.0)
    eve.handle(MessageReceived("mia", vote("mia", SECOND, AGAIN)), now=0.0)
    assert eve.record.voted is None
    eve.handle(MessageReceived("bob", *accepted("bob")), now=0.0)
    assert eve.record.voted == vote("eve", SECOND, AGAIN)


def test_votes_for_two_values_in_one_ballot_are_not_added_up():
    eve = Agreement("eve", SUBJECT, COMMITTEE)
    for name, value in (("ada", COUNTS), ("bob", AGAIN), ("mia", AGAIN)):
        eve.handle(MessageReceived(name, vote(name, SECOND, value)), now=0.0)
    assert eve.record == BLANK
    mixed = Decision(SUBJECT, AGAIN, accepted("ada", "bob", "mia"))
    eve.handle(MessageReceived("mia", mixed), now=0.0)
    assert eve.record == BLANK


@dataclass
class Preparing:
    """Bob, which has asked for promises, and holds its own."""

    def __post_init__(self):
        self.bob = Agreement("bob", SUBJECT, COMMITTEE)
        self.bob.handle(Propose(AGAIN), now=0.0)
        self.bob.handle(Doubt(), now=0.0)
        self.bob.handle(TimePassed(), now=0.0)
        self.bob.handle(RecordStored(), now=0.0)
        self.ballot = self.bob.record.promised

    def hears(self, *promises):
        for each in promises:
            self.bob.handle(MessageReceived(each.member, each), now=0.0)
        return self.bob.record.accepted


def test_a_proposer_takes_no_promise_whose_vote_is_not_proved():
    made = Preparing()
    lie = promise("mia", made.ballot, FIRST, COUNTS, proof=(vote("mia"),))
    assert made.hears(lie, promise("eve", made.ballot)) is None
    assert made.hears(promise("ada", made.ballot)) == vote("bob", made.ballot, AGAIN, final=False)


def test_a_promise_that_hides_a_vote_is_a_proof_against_its_sender_and_is_not_taken():
    """Also where the member has forgotten: its statements are of two incarnations then."""
    made, known = Preparing(), vote("mia", incarnation=1)
    made.bob.handle(MessageReceived("mia", known), now=0.0)
    hides = promise("mia", made.ballot, incarnation=2)
    assert Contradicted(known, hides) in made.bob.handle(MessageReceived("mia", hides), now=0.0)
    assert made.hears(promise("eve", made.ballot)) is None
    assert made.hears(promise("ada", made.ballot)) is not None


def test_a_promise_that_hides_an_acceptance_is_a_proof_against_its_sender_and_is_not_taken():
    """Else two members that have accepted the round, of which one lies, would not bind the proposer."""
    made, known = Preparing(), vote("mia", value=COUNTS, final=False)
    made.bob.handle(MessageReceived("mia", known), now=0.0)
    hides = promise("mia", made.ballot)
    assert Contradicted(known, hides) in made.bob.handle(MessageReceived("mia", hides), now=0.0)
    assert made.hears(promise("eve", made.ballot)) is None


def test_a_proposal_whose_promises_hide_a_known_vote_is_not_accepted():
    eve, known = Agreement("eve", SUBJECT, COMMITTEE), vote("bob", incarnation=1)
    eve.handle(MessageReceived("bob", known), now=0.0)
    assert eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0) == [Contradicted(known, FREE[0])]
    assert eve.record == BLANK
