"""Tests of the statements that a malicious member may not make, and of the proof that is kept against it."""

import pytest
from msgspec.structs import replace

from ballots import AGAIN, COUNTS, cast, decision, prepare, promised, proven
from counting import totalling
from honest import OWNER, TRIO, promise, report, resigned, vote, voting
from known_peers import IDENTITIES, SWARM, envelopes
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.interface.requests import Try
from p2pfl.network.protocol.session.decisions import signed_statements
from p2pfl.network.protocol.wire.verdict_messages import Ballot, Decision, Place, Proposal, Reports


def signed(statement, by):
    return replace(statement, signature=by.sign(SWARM.encode() + b"/" + statement.statement, domain="vote"))


PROPOSED = vote("ada", AGAIN, number=1, final=False)
FREE = promise("ada"), promise("cleo")
VOTED = promise("ada", voted=True)
UNSIGNED = replace(vote("bob", final=False), signature=bytes(64))
FORGED = replace(promise("cleo"), signature=bytes(64))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (cast("cleo", 0, OWNER, COUNTS), 'expected statements of "ada"'),
        (cast("ada", 0, OWNER, COUNTS), 'a statement that "ada" has signed'),
        (signed(vote("ada"), IDENTITIES["eve"]), "has signed"),
        (resigned(cast("ada", 1, "nobody", COUNTS, voter=1)), "that its statements prove, got a Vote"),
        (Reports(Place(0, 0), (replace(report("cleo"), signature=bytes(64)),)), "reports that members have signed"),
        (Reports(Place(0, 0), (signed(report("cleo"), IDENTITIES["ada"]),)), "reports that members have signed"),
        (Reports(Place(0, 0), (resigned(replace(report("ada"), incarnation=0)),)), "reports that members have signed"),
        (Reports(Place(0, 0), (resigned(replace(report("ada"), incarnation=2)),)), "reports that members have signed"),
        (Reports(Place(0, 0), (report("eve"),)), "reports that members have signed"),
        (Reports(Place(0, 0), (report("cleo"),), vote("cleo", final=False)), 'expected statements of "ada"'),
        (Reports(Place(0, 0), (report("cleo"),), signed(vote("ada"), IDENTITIES["eve"])), "has signed"),
        (Decision(Place(0, 0), COUNTS, ()), "that its statements prove, got a Decision"),
        (promise("cleo"), 'expected statements of "ada"'),
        (promised("ada", 1, "ada"), 'a statement that "ada" has signed'),
        (proven(VOTED, (vote("eve", final=False),)), "statements of the committee"),
        (proven(VOTED, (resigned(cast("bob", 0, OWNER, COUNTS, place=(0, 1), final=False)),)), "of the committee"),
        (proven(VOTED, (UNSIGNED,)), 'a statement that "bob" has signed'),
        (proven(VOTED, (vote("bob", final=False),) * 150), "that its statements prove, got a Promise"),
        (resigned(replace(promise("ada"), ballot=Ballot(0, "eve"))), "that its statements prove, got a Promise"),
        (Proposal(PROPOSED, (promise("ada"),)), "that its statements prove, got a Proposal"),
        (Proposal(PROPOSED, (promise("ada"),) * 150), "that its statements prove, got a Proposal"),
        (Proposal(PROPOSED, (VOTED, promise("cleo"))), "that its statements prove, got a Proposal"),
        (decision(vote("ada")), "that its statements prove, got a Decision"),
        (decision(vote("ada"), vote("ada"), vote("bob")), "that its statements prove, got a Decision"),
        (decision(vote("ada"), vote("bob", final=False)), "that its statements prove, got a Decision"),
        (resigned(replace(vote("ada"), incarnation=0)), 'the announced incarnation of "ada"'),
        (resigned(replace(vote("ada"), incarnation=2)), 'the announced incarnation of "ada"'),
        (resigned(replace(promise("ada"), incarnation=0)), 'the announced incarnation of "ada"'),
        (Proposal(resigned(replace(PROPOSED, incarnation=2)), FREE), 'the announced incarnation of "ada"'),
        (decision(vote("ada"), resigned(replace(vote("cleo"), incarnation=0))), 'announced incarnation of "cleo"'),
        (Proposal(vote("cleo", number=1, final=False), ()), 'expected statements of "ada"'),
        (Proposal(PROPOSED, (promise("ada"), FORGED)), 'a statement that "cleo" has signed'),
    ],
)
def test_what_an_insider_may_not_state_is_refused(message, why):
    bob = voting()
    with pytest.raises(DecodeError, match=why):
        bob.receive("ada", message)
    assert bob.records() == ()


def test_of_reports_that_are_passed_on_those_that_nobody_has_signed_are_left_out():
    bob = voting()
    bob.receive("ada", Reports(Place(0, 0), (report("cleo"), replace(report("ada"), signature=bytes(64)))))
    assert bob._settlement.silent == {"ada"}


ME, OTHER = (name for name in TRIO if name != OWNER)
"""A member to which the owner passes on the report of the other one."""


def tag_report(member, value=b"\1", *, to=ME, by=None, attempt=0):
    """Return an unsigned report with the tag of its member, or of somebody else, for another member."""
    made = replace(report(member, value), signature=bytes(64), subject=Place(0, attempt))
    envelope = {each.me: each for each in envelopes(TRIO)}[by or member]
    return replace(made, tags=envelope.tags(SWARM.encode() + b"/" + made.statement, to=[to]))


def begin_attempt():
    """Return the commits of a member, not the owner, that has begun the first attempt and has keys with the others."""
    made = totalling(ME, ME)
    made.handle(Try(0, 0, TRIO), now=0.0)
    made.shared.codec.envelope = envelopes(TRIO)[TRIO.index(ME)]
    return made.commits


def test_a_report_that_is_passed_on_is_believed_by_its_tag_alone_and_nobody_verifies_its_signature(monkeypatch):
    me = begin_attempt()
    monkeypatch.setattr(signed_statements, "verify", lambda *_, **__: pytest.fail("a signature was verified"))
    me.receive(OWNER, Reports(Place(0, 0), (tag_report(OTHER), tag_report(OWNER))))
    assert me._settlement.silent == frozenset()


@pytest.mark.parametrize(
    "false",
    [
        tag_report(OTHER, b"\0"),
        tag_report(OTHER, to=OWNER),
        tag_report(OTHER, by=OWNER),
        replace(tag_report(OTHER), value=b"\2"),
    ],
    ids=["a failure, which others must believe", "for another member", "of another member", "of another report"],
)
def test_a_tag_stands_for_no_signature_of_what_it_does_not_cover_or_others_must_believe(false):
    me = begin_attempt()
    with pytest.raises(DecodeError, match="reports that members have signed"):
        me.receive(OWNER, Reports(Place(0, 0), (false,)))
    signed_too = replace(false, signature=resigned(false).signature)
    me.receive(OWNER, Reports(Place(0, 0), (signed_too,)))
    assert me._settlement.silent == {OWNER}


def test_a_tag_is_not_enough_for_a_report_that_neither_its_member_nor_the_owner_has_sent():
    """Whoever passes it on could have changed its signature, for which its member would be distrusted."""
    me = begin_attempt()
    with pytest.raises(DecodeError, match="reports that members have signed"):
        me.receive(OTHER, Reports(Place(0, 0), (tag_report(OWNER),)))


def test_an_owner_has_proposed_although_the_reports_beside_its_proposal_are_not_signed():
    """The last of several messages may have those of a malicious member alone."""
    me = begin_attempt()
    unsigned = replace(report(OTHER), signature=bytes(64))
    me.receive(OWNER, Reports(Place(0, 0), (unsigned,), vote(OWNER, final=False)))
    assert me._settlement.proposed
    assert OTHER in me._settlement.silent


def test_who_begins_to_doubt_forgets_and_passes_on_no_report_that_only_its_tag_proves():
    me = begin_attempt()
    me.receive(OWNER, Reports(Place(0, 0), (report(OWNER, b"\1"), tag_report(OTHER))))
    effects = me._settlement._begin_doubt(now=0.0)
    assert me._settlement.silent == {OTHER}
    passed = [each.message for each in effects if isinstance(getattr(each, "message", None), Reports)]
    assert [[each.member for each in message.reports] for message in passed] == [[OWNER]]


def test_who_doubts_believes_no_report_that_only_its_tag_proves():
    me = begin_attempt()
    me._settlement._begin_doubt(now=0.0)
    with pytest.raises(DecodeError, match="reports that members have signed"):
        me.receive(OWNER, Reports(Place(0, 0), (tag_report(OTHER),)))


def test_a_member_that_has_tagged_what_it_has_not_signed_is_believed_by_its_tag_never_again():
    me = begin_attempt()
    me.receive(OWNER, Reports(Place(0, 0), (tag_report(OTHER),)))
    me.receive(OTHER, Reports(Place(0, 0), (report(OTHER),)))
    me._settlement._begin_doubt(now=0.0)
    me.begin(Try(0, 1, TRIO))
    again = tag_report(OTHER, attempt=1)
    with pytest.raises(DecodeError, match="reports that members have signed"):
        me.receive(OTHER, Reports(Place(0, 1), (again,)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (vote("ada", COUNTS, number=1, final=False), vote("ada", AGAIN, number=1, final=False)),
        (Reports(Place(0, 0), (report("ada"),)), Reports(Place(0, 0), (report("ada", b"\1\xff\xff"),))),
    ],
)
def test_the_proof_against_a_member_that_signs_two_statements_is_kept(one, other):
    bob = voting()
    for each in (one, other):
        bob.receive("ada", each)
    assert bob.shared.membership.excluded == {"ada"}
    assert bob.ballots.proofs["ada"].holds(IDENTITIES["ada"].public)


@pytest.mark.parametrize("is_signed", [True, False])
def test_after_a_decision_only_signed_statements_that_contradict_it_are_kept_as_a_proof(is_signed):
    bob = voting()
    bob.receive("ada", decision(*(vote(member) for member in TRIO)))
    lie = cast("ada", 0, OWNER, AGAIN, voter=1)
    bob.receive("ada", resigned(lie) if is_signed else lie)
    assert bob.shared.membership.excluded == ({"ada"} if is_signed else set())
    assert {name: proof.holds(IDENTITIES[name].public) for name, proof in bob.ballots.proofs.items()} == (
        {"ada": True} if is_signed else {}
    )


def test_an_insider_cannot_fill_the_memory_with_attempts_that_nobody_plays():
    bob = voting()
    for attempt in (0, 1, 2, 50):
        for round in (0, 1, 2, 3, 1000):
            bob.receive("ada", prepare("ada", 1, place=(round, attempt)))
    assert {*bob.ballots.open} == {Place(0, 0)}
    assert len(bob._early) <= 2


@pytest.fixture
def verified(monkeypatch):
    """Members whose signatures were verified, in order."""
    found, verify = [], signed_statements.verify
    names = {identity.public: name for name, identity in IDENTITIES.items()}

    def counted(key, *given, **how):
        found.append(names[key])
        return verify(key, *given, **how)

    monkeypatch.setattr(signed_statements, "verify", counted)
    return found


@pytest.mark.parametrize(
    "message",
    [
        Proposal(PROPOSED, (promise("ada"),) * 150, (vote("bob", final=False),) * 150),
        proven(VOTED, (vote("bob", final=False),) * 150),
        decision(*[vote("ada")] * 200),
    ],
)
def test_no_signature_is_verified_in_a_message_that_proves_nothing(message, verified):
    bob = voting()
    with pytest.raises(DecodeError, match="that its statements prove"):
        bob.receive("ada", message)
    assert verified == []


def test_a_signature_is_verified_once(verified):
    bob = voting()
    for _ in range(3):
        bob.receive("ada", vote("ada"))
    assert verified == ["ada"]
