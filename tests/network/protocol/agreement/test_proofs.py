"""A member accepts only what the proposer of a ballot was free to propose."""

from dataclasses import dataclass

import pytest

from ballots import COUNTED
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Contradicted,
    Doubt,
    MemberRecord,
    MessageReceived,
    RecordStored,
    TimePassed,
)
from p2pfl.network.protocol.agreement.proofs import follows
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Committee,
    Decision,
    Promise,
    Proposal,
    Release,
    Vote,
)

NAMES = ("ada", "bob", "eve", "mia")
SUBJECT = Release("ada", 7, 3, 0)
OTHER = SUBJECT._replace(round=4)
COMMITTEE = Committee(NAMES, owner="ada")
FIRST, SECOND, THIRD = COMMITTEE.first, Ballot(1, "mia"), Ballot(2, "mia")


def vote(name, ballot=FIRST, value=COUNTED, **given):
    return Vote(SUBJECT, name, ballot, value, **given)


def accepted(*names, ballot=SECOND, value=DROPPED):
    return tuple(vote(name, ballot, value, final=False) for name in names)


def promise(name, ballot=SECOND, voted=None, value=None, **given):
    return Promise(given.pop("subject", SUBJECT), name, ballot, voted, value, **given)


def proposal(*promises, value=DROPPED, ballot=SECOND, name="mia", proof=(), **given):
    return Proposal(vote(name, ballot, value, **{"final": False} | given), promises, proof)


FREE = tuple(map(promise, ("bob", "eve", "mia")))
COUNTS = promise("bob", voted=FIRST, value=COUNTED)
LATER = tuple(promise(name, THIRD) for name in ("bob", "eve"))


@pytest.mark.parametrize(
    "proposed",
    [
        proposal(*FREE),
        proposal(*FREE, value=COUNTED),
        proposal(COUNTS, *FREE[1:], value=COUNTED, proof=(vote("ada"),)),
        proposal(*LATER, promise("mia", THIRD, SECOND, DROPPED), ballot=THIRD, proof=accepted("ada", "bob", "mia")),
    ],
)
def test_a_member_accepts_a_proposal_that_follows_from_promises(proposed):
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    eve.handle(MessageReceived("mia", proposed), now=0.0)
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
        proposal(COUNTS, *FREE[1:]),
        proposal(COUNTS, *FREE[1:], proof=(vote("ada"),)),
        proposal(COUNTS, *FREE[1:], value=COUNTED),
        proposal(COUNTS, *FREE[1:], value=COUNTED, proof=(vote("mia"),)),
        proposal(promise("bob", voted=FIRST, value=DROPPED), *FREE[1:], proof=(vote("ada", FIRST, DROPPED),)),
        proposal(promise("bob", value=COUNTED), *FREE[1:]),
        proposal(promise("bob", voted=SECOND, value=DROPPED), *FREE[1:], proof=accepted("ada", "bob", "mia")),
        proposal(*LATER, promise("mia", THIRD, SECOND, DROPPED), ballot=THIRD, proof=accepted("ada", "mia")),
        proposal(*LATER, promise("mia", THIRD, SECOND, DROPPED), ballot=THIRD, proof=accepted("ada", "mia", "zoe")),
        proposal(
            *LATER, promise("mia", THIRD, SECOND, DROPPED), ballot=THIRD, value=COUNTED, proof=accepted("ada", "bob")
        ),
        proposal(
            *LATER,
            promise("mia", THIRD, SECOND, DROPPED),
            ballot=THIRD,
            proof=tuple(vote(name, SECOND, DROPPED) for name in ("ada", "bob", "mia")),
        ),
    ],
)
def test_a_member_accepts_no_proposal_that_does_not_follow(proposed):
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    eve.handle(MessageReceived("mia", proposed), now=0.0)
    assert eve.record == BLANK
    assert not follows(proposed, committee=COMMITTEE)


ONE, TWO = b"one", b"two"
COPIES = tuple(vote("ada", value=value) for value in (ONE, TWO))
SPLIT = {"bob": ONE, "eve": ONE, "mia": TWO}
EVEN = {"bob": ONE, "eve": None, "mia": TWO}


def of_copies(votes, value, *, proof=COPIES):
    """A proposal after its owner has signed two copies of a release, of which members hold one each."""
    promises = [promise(name, voted=each and FIRST, value=each) for name, each in votes.items()]
    return proposal(*promises, value=value, proof=proof)


@pytest.mark.parametrize("proposed", [of_copies(SPLIT, ONE), of_copies(EVEN, DROPPED)])
def test_of_two_copies_the_one_that_may_be_decided_is_accepted(proposed):
    assert follows(proposed, committee=COMMITTEE)


@pytest.mark.parametrize(
    "proposed",
    [
        of_copies(SPLIT, TWO),
        of_copies(SPLIT, DROPPED),
        of_copies(SPLIT, ONE, proof=COPIES[:1]),
        of_copies(EVEN, ONE),
        of_copies(EVEN, TWO),
        of_copies(EVEN, DROPPED, proof=COPIES[1:]),
    ],
)
def test_of_two_copies_no_other_one_is_accepted_nor_any_without_proof(proposed):
    assert not follows(proposed, committee=COMMITTEE)


def test_a_proposer_that_cannot_tell_which_copy_was_decided_waits_for_more_promises():
    """Of six members, two others hold one copy and two another one; the fifth tells which of them may be decided."""
    group = Committee(("ada", "bob", "eve", "mia", "sam", "tom"), owner="ada")
    bob = Agreement(
        "bob", SUBJECT, group, wanted=DROPPED, record=MemberRecord(FIRST, vote("bob", value=ONE), proof=COPIES[:1])
    )
    for event in (Doubt(), TimePassed(), RecordStored()):
        bob.handle(event, now=9.0)
    ballot, effects = bob.record.promised, []
    for name, value in {"eve": ONE, "mia": TWO, "sam": TWO}.items():
        shown = promise(name, ballot, voted=FIRST, value=value, proof=(vote("ada", value=value),))
        effects += bob.handle(MessageReceived(name, shown), now=9.0)
    assert bob.record.accepted is None
    assert Contradicted(*COPIES) in effects
    last = promise("tom", ballot, voted=FIRST, value=TWO, proof=COPIES[1:])
    bob.handle(MessageReceived("tom", last), now=9.0)
    assert bob.record.accepted == vote("bob", ballot, TWO, final=False)


def test_a_proposal_that_another_member_passes_on_is_not_accepted():
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    eve.handle(MessageReceived("bob", proposal(*FREE)), now=0.0)
    assert eve.record == BLANK


def test_of_two_proposals_in_one_ballot_a_member_accepts_the_first_also_after_a_crash():
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0)
    again = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED, record=eve.record)
    for made in (eve, again):
        made.handle(MessageReceived("mia", proposal(*FREE, value=COUNTED)), now=0.0)
        assert made.record.accepted == vote("eve", SECOND, DROPPED, final=False)


def test_votes_for_a_value_that_no_majority_has_accepted_lead_to_no_vote():
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0)
    eve.handle(RecordStored(), now=0.0)
    eve.handle(MessageReceived("mia", vote("mia", SECOND, DROPPED)), now=0.0)
    assert eve.record.voted is None
    eve.handle(MessageReceived("bob", *accepted("bob")), now=0.0)
    assert eve.record.voted == vote("eve", SECOND, DROPPED)


def test_votes_for_two_values_in_one_ballot_are_not_added_up():
    eve = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED)
    for name, value in (("ada", COUNTED), ("bob", DROPPED), ("mia", DROPPED)):
        eve.handle(MessageReceived(name, vote(name, SECOND, value)), now=0.0)
    assert eve.record == BLANK
    mixed = Decision(SUBJECT, DROPPED, accepted("ada", "bob", "mia"))
    eve.handle(MessageReceived("mia", mixed), now=0.0)
    assert eve.record == BLANK


@dataclass
class Preparing:
    """Bob, which has asked for promises, and holds its own."""

    def __post_init__(self):
        self.bob = Agreement("bob", SUBJECT, COMMITTEE, wanted=DROPPED)
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
    lie = promise("mia", made.ballot, FIRST, COUNTED, proof=(vote("mia"),))
    assert made.hears(lie, promise("eve", made.ballot)) is None
    assert made.hears(promise("ada", made.ballot)) == vote("bob", made.ballot, DROPPED, final=False)


def test_a_promise_that_hides_a_vote_is_a_proof_against_its_sender_and_is_not_taken():
    """Also where the member has forgotten: its statements are of two incarnations then."""
    made, known = Preparing(), vote("mia", incarnation=1)
    made.bob.handle(MessageReceived("mia", known), now=0.0)
    hides = promise("mia", made.ballot, incarnation=2)
    assert Contradicted(known, hides) in made.bob.handle(MessageReceived("mia", hides), now=0.0)
    assert made.hears(promise("eve", made.ballot)) is None
    assert made.hears(promise("ada", made.ballot)) is not None


def test_a_proposal_whose_promises_hide_a_known_vote_is_not_accepted():
    eve, known = Agreement("eve", SUBJECT, COMMITTEE, wanted=DROPPED), vote("bob", incarnation=1)
    eve.handle(MessageReceived("bob", known), now=0.0)
    assert eve.handle(MessageReceived("mia", proposal(*FREE)), now=0.0) == [Contradicted(known, FREE[0])]
    assert eve.record == BLANK
