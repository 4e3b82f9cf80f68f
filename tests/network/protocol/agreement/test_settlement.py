"""The settlement of one attempt at one peer: reports, the outcome that it proposes, and those that it believes."""

import pytest
from msgspec.structs import replace

from p2pfl.network.protocol.agreement.agreement_effects import Contradicted, MemberRecord, Send, StoreRecord, TickAt
from p2pfl.network.protocol.agreement.attempt_reports import (
    FAILED,
    AttemptOutcome,
    complete,
    decode_outcome,
    encode_outcome,
)
from p2pfl.network.protocol.agreement.settlement import GRACE, PAUSES, Settlement
from p2pfl.network.protocol.wire.bounds import TAG_BYTES
from p2pfl.network.protocol.wire.verdict_messages import (
    REPORTS,
    SEATS,
    Ballot,
    Committee,
    Decision,
    Place,
    Prepare,
    Promise,
    Proposal,
    Report,
    Reports,
    Vote,
    draw_committee,
)

PLACE = Place(3, 1)
NAMES = ("ada", "bob", "eve", "mia")
COUNTS = encode_outcome(AttemptOutcome(True, NAMES), NAMES)
AGAIN = encode_outcome(AttemptOutcome(False, NAMES), NAMES)
JOINED = encode_outcome(AttemptOutcome(True, NAMES, 5), NAMES)
WITHOUT_MIA = encode_outcome(AttemptOutcome(False, NAMES[:3]), NAMES)
FIRST = Ballot(0, "ada")


def settlement(name="bob", *, names=NAMES, **given):
    """A settlement whose committee are all members, in the order of their names."""
    return Settlement(name, PLACE, names, Committee(names[:SEATS]), **given)


def said(*names, value=None, **given):
    """Reports of members."""
    value = complete() if value is None else value
    return Reports(PLACE, tuple(Report(PLACE, name, value, **given) for name in names))


def proposed(value, name="ada", ballot=FIRST):
    return Vote(PLACE, name, ballot, value, final=False)


def written(made, effects, *, now=0.0):
    """Return all effects once the disk is done."""
    found, last = [*effects], effects
    while any(isinstance(each, StoreRecord) for each in last):
        last = made.finish_write(now=now)
        found += last
    return found


def sent(effects, kind):
    return [(each.to, each.message) for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def reporting(name="bob", *others, value=None, **given):
    """A settlement that has its own report, and those of others."""
    made = settlement(name, **given)
    effects = written(made, made.report(complete(), now=0.0))
    for other in others:
        effects += written(made, made.receive(other, said(other, value=value), now=0.0))
    return made, effects


def accepts(made):
    """Return the outcome that a member has accepted."""
    return made.agreement.record.accepted and made.agreement.record.accepted.value


# ---------------------------------------------------------------------- reports


TWELVE = tuple(f"peer{number}" for number in range(12))
HERALDS = TWELVE[:3]  # of seven, two may be malicious


@pytest.mark.parametrize(("value", "to"), [(complete(), TWELVE[:1]), (FAILED, HERALDS)])
def test_a_report_is_for_the_owner_alone_and_a_failure_for_those_that_announce_it(value, to):
    found = settlement("peer11", names=TWELVE).report(value, now=0.0)
    assert sent(found, Reports) == [(to, said("peer11", value=value))]


@pytest.mark.parametrize(("name", "announces"), [("peer2", True), ("peer3", False), ("peer11", False)])
def test_the_first_failure_is_announced_once_and_whoever_knows_it_reports_to_the_owner(name, announces):
    """So a malicious owner that keeps it to itself holds nobody up."""
    made = settlement(name, names=TWELVE)
    effects = [*made.receive("peer9", said("peer9", value=FAILED), now=0.0)]
    effects += made.receive("peer8", said("peer8", value=FAILED), now=0.0)
    others = tuple(sorted({*TWELVE} - {name}))
    assert sent(effects, Reports) == [(others, said("peer9", value=FAILED))] * announces
    assert sent(made.report(FAILED, now=0.0), Reports) == [(("peer0",), said(name, value=FAILED))]
    assert made.failed == "peer9"


def test_a_failure_that_becomes_known_after_the_decision_is_not_announced():
    made = settlement("peer2", names=TWELVE)
    counts = encode_outcome(AttemptOutcome(True, TWELVE), TWELVE)
    votes = tuple(Vote(PLACE, name, Ballot(0, "peer0"), counts) for name in TWELVE[:5])
    written(made, made.receive("peer0", Decision(PLACE, counts, votes), now=0.0))
    assert sent(made.receive("peer9", said("peer9", value=FAILED), now=0.0), Reports) == []


@pytest.mark.parametrize(
    ("name", "gone", "to"),
    [
        ("peer1", ["peer0", "peer2"], TWELVE),
        ("peer4", ["peer0", "peer2"], TWELVE),
        ("peer5", ["peer0", "peer2"], TWELVE[:SEATS]),
        ("peer11", ["peer1"], ("peer0", "peer2", "peer3")),
    ],
)
def test_members_that_are_gone_announce_nothing_and_others_do_instead(name, gone, to):
    made = settlement(name, names=TWELVE)
    made.doubt(gone=gone, slow=(), now=0.0)
    assert sent(made.report(FAILED, now=0.0), Reports) == [(tuple(sorted({*to} - {name})), said(name, value=FAILED))]


def test_if_the_owner_is_gone_a_report_is_for_the_whole_committee():
    names = tuple(f"peer{number}" for number in range(12))
    made = settlement("peer11", names=names)
    made.doubt(gone=["peer0"], slow=(), now=0.0)
    assert sent(made.report(complete(), now=0.0), Reports) == [(names[:SEATS], said("peer11"))]


def test_the_owner_of_a_large_swarm_passes_on_all_reports_in_few_messages_before_it_proposes():
    names = tuple(f"peer{number:03}" for number in range(250))
    _, effects = reporting(names[0], *names[1:], names=names)
    passed = sent(effects, Reports)
    for name in names[1:SEATS]:
        assert [len(message.reports) for to, message in passed if to == (name,)] == [REPORTS, REPORTS, 50]
        assert [message.proposal is None for to, message in passed if to == (name,)] == [True, True, False]
    assert not sent(effects, Vote)


def test_a_report_is_passed_on_with_the_tag_for_its_receiver_alone():
    names = tuple(f"p{number:02}" for number in range(12))
    seats = names[:SEATS]

    def tags(member):
        return b"".join(f"{member} for {each}".encode().ljust(TAG_BYTES) for each in seats if each != member)

    made = settlement(names[0], names=names)
    made.tag = lambda _: tags(names[0])
    for name in names[1:]:
        report = said(name).reports[0]
        made.receive(name, Reports(report.subject, (replace(report, tags=tags(name)),)), now=0.0)
    for to, message in sent(written(made, made.report(complete(), now=0.0)), Reports):
        tagged = {each.member: each.tags.decode().strip() for each in message.reports if each.member != to[0]}
        assert tagged == {name: f"{name} for {to[0]}" for name in names if name != to[0]}


@pytest.mark.parametrize(("count", "messages"), [(7, 1), (8, 1), (11, 1), (12, 6)])
def test_the_owner_sends_what_the_committee_needs_to_all_where_that_costs_less(count, messages):
    names = tuple(f"peer{number:02}" for number in range(count))
    _, effects = reporting(names[0], *names[1:], names=names)
    receivers = [to for to, _ in sent(effects, Reports)]
    assert receivers == ([names[1:]] if messages == 1 else [(name,) for name in names[1:SEATS]])


def test_no_member_withholds_its_acceptance_where_another_has_only_tagged_its_report():
    """The others lack the report that the owner believes, and cannot accept."""
    ada, _ = reporting("ada", "bob", "eve", "mia")
    assert ada.withheld == {"bob", "eve", "mia"}
    ada.proves = lambda report: report.member != "mia"
    assert ada.withheld == frozenset()


def test_a_peer_outside_of_the_committee_keeps_no_report_of_others():
    names = tuple(f"peer{number}" for number in range(12))
    made, effects = reporting("peer11", *names[:-1], names=names)
    assert made.silent == {*names[:-1]}
    assert len(effects) == 1


def test_two_reports_that_a_member_has_signed_contradict_each_other():
    bob, _ = reporting("bob", "ada", "eve", "mia")
    found, *_ = bob.receive("mia", said("mia", value=FAILED), now=0.0)
    assert found == Contradicted(*said("mia").reports, *said("mia", value=FAILED).reports)


def test_reports_of_another_attempt_and_of_others_than_members_are_ignored():
    ada, _ = reporting("ada", "bob", "eve")
    other = Report(PLACE._replace(attempt=0), "mia", complete())
    assert ada.receive("bob", Reports(PLACE, (other, *said("zoe").reports)), now=0.0) == []
    assert ada.receive("bob", Reports(PLACE._replace(round=2), said("mia").reports), now=0.0) == []
    assert ada.silent == {"mia"}


def test_a_member_that_asks_again_receives_what_it_may_lack_but_not_too_often():
    bob, _ = reporting("bob", "ada", "eve", "mia")
    written(bob, bob.receive("ada", proposed(COUNTS), now=0.0))
    answers = [bob.receive("eve", said("eve"), now=now) for now in (1.0, 1.2, 1.6)]
    assert [len(sent(each, Vote)) for each in answers] == [1, 0, 1]
    assert sent(answers[0], Reports) == [(("eve",), said(*NAMES))]


# ---------------------------------------------------------------------- what is proposed and believed


def test_the_owner_proposes_once_it_has_all_reports_and_the_others_accept_once_they_do():
    ada, _ = reporting("ada", "bob", "eve")
    assert accepts(ada) is None
    ada.receive("mia", said("mia"), now=0.0)
    assert accepts(ada) == COUNTS
    bob, _ = reporting("bob", "ada", "eve")
    bob.receive("ada", proposed(COUNTS), now=0.0)
    assert accepts(bob) is None
    bob.receive("ada", said("mia"), now=0.0)
    assert accepts(bob) == COUNTS


@pytest.mark.parametrize(
    ("doubts", "value", "believed"),
    [
        ({}, WITHOUT_MIA, False),
        ({"gone": ["mia"]}, WITHOUT_MIA, True),
        ({"slow": ["mia"]}, WITHOUT_MIA, True),
        ({"gone": ["eve"]}, WITHOUT_MIA, False),
        ({"gone": ["mia"]}, COUNTS, False),
        ({"gone": ["mia"]}, AGAIN, False),
        ({"gone": ["mia"]}, b"nonsense", False),
        ({"gone": ["mia"]}, encode_outcome(AttemptOutcome(False, ("ada", "eve")), NAMES), False),
        ({"gone": ["bob", "mia"]}, encode_outcome(AttemptOutcome(False, ("ada", "bob")), NAMES), False),
    ],
)
def test_a_member_is_dropped_only_if_a_member_misses_it_too(doubts, value, believed):
    bob, _ = reporting("bob", "ada", "eve")
    bob.doubt(gone=doubts.get("gone", ()), slow=doubts.get("slow", ()), now=0.0)
    bob.receive("ada", proposed(value), now=0.0)
    assert accepts(bob) == (value if believed else None)


@pytest.mark.parametrize(
    ("value", "proposal", "believed"),
    [
        (complete(), COUNTS, True),
        (complete(), AGAIN, False),
        (FAILED, COUNTS, False),
        (FAILED, AGAIN, True),
        (complete(b"other"), COUNTS, False),
        (complete(b"other"), AGAIN, True),
        (complete(joins=5), COUNTS, True),
        (complete(), JOINED, False),
        (complete(joins=5), JOINED, False),  # bob names nobody
    ],
)
def test_an_outcome_that_the_reports_contradict_is_not_believed(value, proposal, believed):
    bob, _ = reporting("bob", "ada", "eve", "mia", value=value)
    bob.receive("ada", proposed(proposal), now=0.0)
    assert accepts(bob) == (proposal if believed else None)


def test_a_slow_member_whose_report_has_come_is_not_dropped_but_one_that_is_gone_may_be():
    for doubts, believed in (({"slow": ["mia"]}, None), ({"gone": ["mia"]}, WITHOUT_MIA)):
        bob, _ = reporting("bob", "ada", "eve", "mia")
        bob.doubt(**{"gone": (), "slow": ()} | doubts, now=0.0)
        bob.receive("ada", proposed(WITHOUT_MIA), now=0.0)
        assert accepts(bob) == believed


@pytest.mark.parametrize("value", [COUNTS, AGAIN, WITHOUT_MIA])
def test_a_member_that_has_signed_two_reports_may_be_taken_at_either_or_be_dropped(value):
    bob, _ = reporting("bob", "ada", "eve", "mia")
    bob.receive("mia", said("mia", value=FAILED), now=0.0)
    bob.receive("ada", proposed(value), now=0.0)
    assert accepts(bob) == value


# ---------------------------------------------------------------------- other ballots


def ticks(effects):
    return [each.when for each in effects if isinstance(each, TickAt)]


def test_the_next_member_begins_a_ballot_if_the_owner_does_not_decide_in_time():
    bob, effects = reporting("bob", "ada", "eve", "mia", pause=2.0)
    assert {*ticks(effects)} == {2.0 * PAUSES}
    assert not sent(written(bob, bob.tick(now=3.9)), Prepare)
    asked = written(bob, bob.tick(now=4.0), now=4.0)
    assert sent(asked, Prepare) == [(("ada", "eve", "mia"), Prepare(PLACE, Ballot(1, "bob")))]
    assert sent(asked, Reports) == [(("ada", "eve", "mia"), said(*NAMES))]  # that none of them lacks one


def carried(made, *names, now):
    """Return the effects of acceptances of members at the owner."""
    found = []
    for name in names:
        found += written(made, made.receive(name, proposed(COUNTS, name), now=now), now=now)
    return found


def test_if_a_member_does_not_accept_a_majority_votes_after_as_long_again_as_it_took():
    ada, _ = reporting("ada", "bob", "eve", "mia", pause=2.0)
    effects = carried(ada, "bob", "eve", now=0.4)
    assert {*ticks(effects)} == {0.8, 2.0 * PAUSES}
    assert not sent(written(ada, ada.tick(now=0.75), now=0.75), Proposal)
    proof = tuple(proposed(COUNTS, name) for name in NAMES[:3])
    asked = written(ada, ada.tick(now=0.8), now=0.8)
    assert sent(asked, Proposal) == [(NAMES[1:], Proposal(proof[0], (), proof))]
    assert not sent(written(ada, ada.tick(now=0.9), now=0.9), Proposal)
    for name in NAMES[1:3]:
        assert ada.outcome is None
        effects = written(ada, ada.receive(name, Vote(PLACE, name, FIRST, COUNTS), now=1.0), now=1.0)
    assert ada.outcome == AttemptOutcome(True, NAMES)
    assert [to for to, _ in sent(effects, Decision)] == [NAMES[1:]]


def test_members_have_a_part_of_a_pause_to_accept_however_fast_a_majority_is():
    ada, _ = reporting("ada", "bob", "eve", "mia", pause=2.0)
    assert min(ticks(carried(ada, "bob", "eve", now=0.01))) == 2.0 * GRACE


def test_without_acceptances_of_a_majority_nobody_votes():
    ada, _ = reporting("ada", "bob", "eve", "mia")
    effects = carried(ada, "bob", now=0.1) + written(ada, ada.tick(now=1.9), now=1.9)
    assert not sent(effects, Proposal)
    assert ada.agreement.record.voted is None


@pytest.mark.parametrize("why", ["gone", "withheld before"])
def test_nobody_waits_for_the_acceptance_of_a_member_that_is_gone_or_has_withheld_one_before(why):
    ada, _ = reporting("ada", "bob", "eve", "mia", withholders=frozenset({"mia"} if why == "withheld before" else ()))
    if why == "gone":
        written(ada, ada.doubt(gone=["mia"], slow=(), now=0.1))
    assert not sent(carried(ada, "bob", now=0.1), Proposal)
    assert sent(carried(ada, "eve", now=0.1), Proposal)


def test_who_votes_with_the_owner_sends_its_vote_to_the_owner_alone_whether_or_not_it_believes_the_proposal():
    bob = settlement()
    proof = tuple(proposed(COUNTS, name) for name in ("ada", "eve", "mia"))
    effects = written(bob, bob.receive("ada", Proposal(proof[0], (), proof), now=0.0))
    assert sent(effects, Vote) == [(("ada",), Vote(PLACE, "bob", FIRST, COUNTS))]
    assert bob.agreement.record.accepted is None


@pytest.mark.parametrize(
    "proof",
    [
        (),
        tuple(proposed(COUNTS, name) for name in ("ada", "eve")),
        (proposed(COUNTS),) * 3,
        tuple(Vote(PLACE, name, FIRST, COUNTS) for name in ("ada", "eve", "mia")),
        tuple(proposed(JOINED, name) for name in ("ada", "eve", "mia")),
    ],
    ids=["nothing", "few", "one member's", "votes", "another outcome"],
)
def test_nobody_votes_with_the_owner_without_acceptances_of_a_majority(proof):
    bob = settlement()
    assert not sent(written(bob, bob.receive("ada", Proposal(proposed(COUNTS), (), proof), now=0.0)), Vote)
    assert bob.agreement.record.voted is None


def test_nobody_votes_in_a_ballot_below_one_that_it_has_promised():
    bob = settlement(record=MemberRecord(Ballot(1, "eve")))
    proof = tuple(proposed(COUNTS, name) for name in ("ada", "eve", "mia"))
    assert not written(bob, bob.receive("ada", Proposal(proof[0], (), proof), now=0.0))


def test_a_member_withholds_if_the_owner_has_its_report_and_not_its_acceptance():
    ada, _ = reporting("ada", "bob", "eve")
    assert ada.withheld == frozenset()  # nothing is proposed
    written(ada, ada.receive("mia", said("mia"), now=0.0))
    carried(ada, "bob", now=0.1)
    assert ada.withheld == {"eve", "mia"}
    written(ada, ada.doubt(gone=["eve"], slow=(), now=0.2), now=0.2)
    assert ada.withheld == {"mia"}
    carried(ada, "mia", now=9.0)  # late
    assert ada.withheld == frozenset()


def test_a_member_that_accepts_another_value_than_the_owner_has_proposed_withholds_its_acceptance():
    ada, _ = reporting("ada", "bob", "eve", "mia")
    carried(ada, "bob", "eve", now=0.1)
    for value in (JOINED, COUNTS):  # the second one proves that mia is malicious, and is no acceptance
        written(ada, ada.receive("mia", proposed(value, "mia"), now=0.1), now=0.1)
        assert ada.accepted == {"bob", "eve"}
        assert ada.withheld == {"mia"}


def test_acceptances_of_another_value_do_not_make_an_owner_ask_for_votes():
    ada, _ = reporting("ada", "bob", "eve", "mia", withholders=frozenset({"mia"}))
    carried(ada, "bob", now=0.1)
    effects = written(ada, ada.receive("eve", proposed(JOINED, "eve"), now=0.1), now=0.1)
    assert {*ticks(effects)} <= {PAUSES}  # no majority has accepted
    assert sent(carried(ada, "mia", now=0.1), Proposal) == []
    assert ada.withheld == {"eve"}


def test_a_member_that_may_have_promised_before_the_owner_proposed_is_not_said_to_withhold():
    """Whoever has reported to others alone lets them doubt the owner; they need its report too, which it repeats."""
    ada, _ = reporting("ada", "bob", "eve")
    ada.request()
    written(ada, ada.receive("mia", said("mia"), now=4.0), now=4.0)
    assert ada.withheld == frozenset()


def test_if_the_owner_is_gone_the_next_member_begins_a_ballot_at_once():
    bob, _ = reporting("bob", "ada", "eve", "mia")
    bob.doubt(gone=["ada"], slow=(), now=0.5)
    assert sent(written(bob, bob.tick(now=0.5)), Prepare)


def test_a_request_is_answered_once_the_member_doubts_too():
    """Else one member alone could prevent every ballot of the owner."""
    eve, _ = reporting("eve", "ada", "bob", "mia")
    assert not sent(written(eve, eve.receive("bob", Prepare(PLACE, Ballot(1, "bob")), now=0.0)), Promise)
    assert sent(written(eve, eve.tick(now=2.0)), Promise) == [(("bob",), Promise(PLACE, "eve", Ballot(1, "bob")))]


def test_a_member_answers_one_request_of_another_in_half_a_pause():
    eve, _ = reporting("eve", "ada", "bob", "mia", pause=2.0)
    eve.doubt(gone=["ada"], slow=(), now=0.0)
    answers = []
    for number, now in [(1, 0.0), (1, 0.5), (1, 0.9), (1, 1.0), (1, 1.9), (1, 2.0)]:
        effects = written(eve, eve.receive("bob", Prepare(PLACE, Ballot(number, "bob")), now=now))
        answers += [message.ballot.number for _, message in sent(effects, Promise)]
    assert answers == [1, 1, 1]


def test_a_ballot_is_promised_in_the_turn_of_its_proposer_and_no_ballot_of_another_number_ever():
    eve, _ = reporting("eve", "ada", "bob", "mia")
    eve.doubt(gone=["ada"], slow=(), now=10.0)
    assert written(eve, eve.receive("mia", Prepare(PLACE, Ballot(1, "mia")), now=10.0)) == []
    early = written(eve, eve.receive("mia", Prepare(PLACE, Ballot(3, "mia")), now=11.0), now=11.0)
    assert (sent(early, Promise), ticks(early)) == ([], [12.0])
    promised = written(eve, eve.tick(now=12.0), now=12.0)
    assert (("mia",), Promise(PLACE, "eve", Ballot(3, "mia"))) in sent(promised, Promise)


def test_a_proposer_without_a_vote_to_respect_proposes_what_it_knows_itself():
    bob, _ = reporting("bob", "ada", "eve")
    bob.doubt(gone=["ada", "mia"], slow=(), now=0.0)
    written(bob, bob.tick(now=0.0))
    effects = []
    for name in ("eve", "ada"):
        effects += written(bob, bob.receive(name, Promise(PLACE, name, Ballot(1, "bob")), now=0.0))
    ((_, message),) = sent(effects, Proposal)
    assert message.value == WITHOUT_MIA


# ---------------------------------------------------------------------- decisions


def decided(value=COUNTS, ballot=FIRST):
    return Decision(PLACE, value, tuple(Vote(PLACE, name, ballot, value) for name in NAMES[:3]))


def test_whoever_proposed_what_is_decided_sends_it_to_all():
    ada, _ = reporting("ada", "bob", "eve", "mia")
    effects = []
    for name in NAMES[1:]:
        assert sent(effects, Decision) == []
        effects += written(ada, ada.receive(name, proposed(COUNTS, name), now=0.0))
    accepted = tuple(proposed(COUNTS, name) for name in NAMES)
    assert sent(effects, Decision) == [(NAMES[1:], Decision(PLACE, COUNTS, accepted))]
    assert ada.outcome == AttemptOutcome(True, NAMES)
    bob, _ = reporting("bob", "ada", "eve", "mia")
    assert sent(written(bob, bob.receive("ada", decided(), now=0.0)), Decision) == []


@pytest.mark.parametrize(
    ("name", "ballot", "tells"),
    [("bob", FIRST, True), ("eve", FIRST, True), ("eve", Ballot(1, "bob"), False)],
)
def test_whoever_has_promised_a_later_ballot_than_that_which_decides_sends_the_decision_to_all(name, ballot, tells):
    """Else those that wait for the later ballot, which nobody finishes, wait until they ask again."""
    made, _ = reporting(name, *(each for each in NAMES if each != name))
    written(made, made.tick(now=2.0), now=2.0)
    if name != "bob":
        written(made, made.receive("bob", Prepare(PLACE, Ballot(1, "bob")), now=2.0), now=2.0)
    assert made.agreement.record.promised == Ballot(1, "bob")
    effects = written(made, made.receive("mia", decided(ballot=ballot), now=2.1), now=2.1)
    others = tuple(each for each in NAMES if each != name)
    assert sent(effects, Decision) == [(others, decided(ballot=ballot))] * tells


def test_whoever_knows_the_decision_answers_any_member_with_it():
    names = tuple(f"peer{number}" for number in range(12))
    made = settlement("peer11", names=names)
    written(made, made.report(complete(), now=0.0))
    seats = draw_committee(names, PLACE, swarm="").members
    made.committee = made.agreement.committee = Committee(seats)
    found = Decision(PLACE, COUNTS, tuple(Vote(PLACE, name, Ballot(0, seats[0]), COUNTS) for name in seats[:5]))
    written(made, made.receive("peer3", found, now=0.0))
    assert sent(made.receive("peer5", said("peer5"), now=1.0), Decision) == [(("peer5",), found)]
    assert made.request(["peer5"]) == []


def test_a_decision_that_is_no_outcome_ends_no_attempt():
    """More members of the committee are Byzantine than it tolerates."""
    bob, _ = reporting("bob", "ada", "eve", "mia")
    written(bob, bob.receive("ada", decided(b"nonsense"), now=0.0))
    assert bob.outcome is None


def test_an_outcome_among_other_members_is_none_of_this_attempt():
    """A peer that was dropped and has restarted may begin the same attempt with all members."""
    others = encode_outcome(AttemptOutcome(True, NAMES[:3]), NAMES[:3])
    mia, _ = reporting("mia", "ada", "bob", "eve")
    mia.receive("ada", proposed(others), now=0.0)
    assert accepts(mia) is None
    written(mia, mia.receive("ada", decided(others), now=0.0))
    assert mia.outcome is None


@pytest.mark.parametrize("places", [(), (0,), (3,), (0, 1, 3)])
def test_an_outcome_survives_its_encoding(places):
    left = tuple(name for place, name in enumerate(NAMES) if place not in places)
    for found in [AttemptOutcome(False, left)] + [AttemptOutcome(True, left, joins) for joins in (None, 7)] * (
        not places
    ):
        assert decode_outcome(encode_outcome(found, NAMES), NAMES) == found
