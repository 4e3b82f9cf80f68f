"""The reports of one attempt: what a peer does until all of them have a verdict."""

from ballots import COUNTED
from p2pfl.network.protocol.agreement.agreement_effects import BLANK, Contradicted, MemberRecord, Send, TickAt
from p2pfl.network.protocol.agreement.settlement import Settlement, Write
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Committee,
    Decision,
    Prepare,
    Promise,
    Proposal,
    Release,
    Vote,
)

NAMES = ("ada", "bob", "eve")
RELEASES = {name: Release(name, 7, 3, 0) for name in NAMES}
COMMITTEES = {RELEASES[name]: Committee(NAMES, owner=name) for name in NAMES}


def settlement(name="bob", *, records=None, **given):
    made = Settlement(name, **given)
    for release, committee in COMMITTEES.items():
        made.admit(release, committee, record=(records or {}).get(release, BLANK))
    return made


def vote(name, owner, ballot=None, value=COUNTED):
    release = RELEASES[owner]
    return Vote(release, name, COMMITTEES[release].first if ballot is None else ballot, value)


def acceptance(name, owner, ballot, value=COUNTED):
    return Vote(RELEASES[owner], name, ballot, value, final=False)


def promise(name, owner, ballot):
    return Promise(RELEASES[owner], name, ballot)


def written(made, effects):
    """Return all effects once the disk is done."""
    found = list(effects)
    writes = [each for each in found if isinstance(each, Write)]
    while writes:
        more = made.finish_write(writes.pop(0).release, now=0.0)
        found += more
        writes += [each for each in more if isinstance(each, Write)]
    return found


def received(made, owner):
    """Return the effects of the report of a peer."""
    return written(made, made.receives(owner, vote(owner, owner), now=0.0))


def released(made):
    return written(made, made.releases(RELEASES[made.me], value=COUNTED, now=0.0))


def wakes(effects):
    return [each.when for each in effects if isinstance(each, TickAt)]


def decided(owner, value):
    """A verdict, as two members show it."""
    ballot = Ballot(1, "eve")
    votes = tuple(vote(each, owner, ballot, value) for each in NAMES if each != owner)
    return Decision(RELEASES[owner], value, votes)


def test_a_round_in_which_all_reports_arrive_is_settled_without_a_prompt_message():
    bob = settlement()
    effects = [*released(bob), *received(bob, "ada"), *received(bob, "eve")]
    assert [bob.verdict(RELEASES[name]) for name in NAMES] == [COUNTED, None, COUNTED]
    effects += written(bob, bob.receives("ada", vote("ada", "bob"), now=0.0))
    assert bob.verdict(RELEASES["bob"]) == COUNTED
    assert not any(each.prompt for each in effects if isinstance(each, Send))
    assert {type(each) for each in effects} == {Send, Write}


def test_a_report_leaves_once_it_is_durable():
    bob = settlement()
    (write,) = bob.releases(RELEASES["bob"], value=COUNTED, now=0.0)
    own = vote("bob", "bob")
    assert write == Write(RELEASES["bob"], MemberRecord(Ballot(0, "bob"), own, proof=(own,)))
    assert [each.message for each in bob.finish_write(RELEASES["bob"], now=0.0)] == [vote("bob", "bob")] * 2


def test_the_report_of_a_peer_that_died_after_a_majority_had_it_counts():
    bob = settlement()
    received(bob, "ada")
    bob.doubts("ada", now=0.0)
    assert bob.verdict(RELEASES["ada"]) == COUNTED


def test_a_doubt_begins_a_ballot_at_the_first_member_that_lives():
    bob = settlement()
    bob.doubts("ada", now=1.0)
    asked = written(bob, bob.tick(now=1.0))
    assert [each.message for each in asked if isinstance(each, Send)] == [
        Prepare(RELEASES["ada"], Ballot(1, "bob")),
        Prepare(RELEASES["ada"], Ballot(1, "bob")),
    ]
    sent = written(bob, bob.receives("eve", promise("eve", "ada", Ballot(1, "bob")), now=1.0))
    assert acceptance("bob", "ada", Ballot(1, "bob"), DROPPED) in [
        each.message.vote for each in sent if isinstance(each, Send) and isinstance(each.message, Proposal)
    ]


def test_a_ballot_that_is_due_later_is_announced_again_when_an_earlier_one_begins():
    """One timer serves all ballots of a round."""
    eve = settlement("eve")
    (first,) = wakes(eve.doubts("ada", now=0.0))
    (second,) = wakes(eve.doubts("bob", now=first / 2))
    assert first < second
    assert second in wakes(eve.tick(now=first))


def test_a_request_is_answered_once_the_member_doubts_the_owner_too():
    """Else one member alone could bring the others to drop a member whose report has not reached them yet."""
    bob, prepare = settlement(), Prepare(RELEASES["ada"], Ballot(1, "eve"))
    assert bob.receives("eve", prepare, now=0.0) == []
    sent = written(bob, bob.doubts("ada", now=1.0))
    assert Send("eve", promise("bob", "ada", Ballot(1, "eve"))) in sent


def test_a_request_after_the_verdict_is_answered_without_a_doubt():
    bob = settlement(records={RELEASES["ada"]: MemberRecord(decided=decided("ada", DROPPED))})
    sent = bob.receives("eve", Prepare(RELEASES["ada"], Ballot(1, "eve")), now=0.0)
    assert sent == [Send("eve", decided("ada", DROPPED))]


def test_a_member_answers_one_request_of_another_in_half_a_pause():
    bob = settlement(pause=2.0)
    bob.doubts("ada", now=0.0)
    answers = []
    for number, now in [(1, 0.0), (2, 0.5), (1, 0.9), (3, 1.0), (4, 1.9), (5, 2.0)]:
        sent = written(bob, bob.receives("eve", Prepare(RELEASES["ada"], Ballot(number, "eve")), now=now))
        answers += [each.message.ballot.number for each in sent if isinstance(each, Send) and each.to == "eve"]
    assert answers == [1, 3, 5]


def test_a_doubting_member_that_has_voted_for_the_report_proposes_that_it_counts():
    record = MemberRecord(Ballot(0, "ada"), vote("bob", "ada"), proof=(vote("ada", "ada"),))
    bob = settlement(records={RELEASES["ada"]: record})
    bob.doubts("ada", now=1.0)
    written(bob, bob.tick(now=1.0))
    sent = written(bob, bob.receives("eve", promise("eve", "ada", Ballot(1, "bob")), now=1.0))
    proposed = next(each.message for each in sent if isinstance(each, Send) and isinstance(each.message, Proposal))
    assert (proposed.value, proposed.proof) == (COUNTED, (vote("ada", "ada"),))


def test_two_reports_that_a_member_has_signed_contradict_each_other():
    bob = settlement()
    bob.receives("ada", vote("ada", "ada"), now=0.0)
    other = vote("ada", "ada", value=b"other")
    assert bob.receives("ada", other, now=0.0) == [Contradicted(vote("ada", "ada"), other)]
    assert bob.latest[RELEASES["ada"]].voted == vote("bob", "ada")


def test_what_is_not_of_this_attempt_is_ignored():
    bob = settlement()
    other = RELEASES["ada"]._replace(round=9)
    assert bob.receives("eve", Prepare(other, Ballot(1, "eve")), now=0.0) == []
    assert bob.receives("ada", Vote(other, "ada", Ballot(0, "ada"), COUNTED), now=0.0) == []
