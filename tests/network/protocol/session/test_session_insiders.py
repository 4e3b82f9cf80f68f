"""Tests of the statements that a malicious member may not make, and of the proof that is kept against it."""

import pytest
from msgspec.structs import replace

from ballots import COUNTED, cast, decision, prepare, promised, proven
from honest import promise, resigned, vote, voting
from known_peers import IDENTITIES, SWARM
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.attempt_reports import report
from p2pfl.network.protocol.session.decisions import signed_statements
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Decision,
    Proposal,
    Votes,
)


def signed(vote, by):
    statement = SWARM.encode() + b"/" + vote.statement
    return replace(vote, signature=by.sign(statement, domain="vote"))


PROPOSED = resigned(cast("bob", 0, 0, "ada", 1, "ada", DROPPED, voter=1, final=False))
FREE = promise("ada"), promise("cleo")
UNSIGNED = replace(vote("bob", "bob"), signature=bytes(64))
FORGED = replace(promise("cleo"), signature=bytes(64))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Votes((cast("ada", 0, 0, "cleo", 0, "ada", COUNTED),)), 'expected statements of "ada"'),
        (Votes((cast("ada", 0, 0, "ada", 0, "ada", COUNTED),)), 'a statement that "ada" has signed'),
        (Votes((signed(cast("ada", 0, 0, "ada", 0, "ada", COUNTED, b""), IDENTITIES["eve"]),)), "has signed"),
        (Decision(report("ada", 0, 0), COUNTED, ()), "that its statements prove, got a Decision"),
        (promise("cleo"), 'expected statements of "ada"'),
        (promised("bob", 0, 0, "ada", 1, "ada"), 'a statement that "ada" has signed'),
        (proven(promise("ada"), (vote("eve", "bob"),)), 'statements of the committee of "bob"'),
        (proven(promise("ada"), (vote("bob", "cleo"),)), 'statements of the committee of "bob"'),
        (proven(promise("ada"), (UNSIGNED,)), 'a statement that "bob" has signed'),
        (
            proven(promise("ada"), (vote("bob", "bob"),) * 150),
            "that its statements prove, got a Promise",
        ),
        (
            resigned(replace(promise("ada"), ballot=Ballot(0, "ada"))),
            "that its statements prove, got a Promise",
        ),
        (Votes((resigned(replace(vote("ada"), value=DROPPED)),)), "that its statements prove, got a Vote"),
        (Proposal(PROPOSED, (promise("ada"),)), "that its statements prove, got a Proposal"),
        (Proposal(PROPOSED, (promise("ada"),) * 150), "that its statements prove, got a Proposal"),
        (decision(vote("ada")), "that its statements prove, got a Decision"),
        (decision(vote("ada"), vote("ada"), vote("bob")), "that its statements prove, got a Decision"),
        (Votes((resigned(replace(vote("ada"), incarnation=0)),)), 'the announced incarnation of "ada"'),
        (Votes((resigned(replace(vote("ada"), incarnation=2)),)), 'the announced incarnation of "ada"'),
        (resigned(replace(promise("ada"), incarnation=0)), 'the announced incarnation of "ada"'),
        (Proposal(resigned(replace(PROPOSED, incarnation=2)), FREE), 'the announced incarnation of "ada"'),
        (decision(vote("ada"), resigned(replace(vote("bob"), incarnation=2))), 'the announced incarnation of "bob"'),
        (Proposal(vote("cleo"), ()), 'expected statements of "ada"'),
        (Proposal(PROPOSED, (promise("ada"), FORGED)), 'a statement that "cleo" has signed'),
    ],
)
def test_what_an_insider_may_not_say_is_refused(message, why):
    bob = voting()
    with pytest.raises(DecodeError, match=why):
        bob.receive("ada", message)
    assert bob.records() == ()


def test_the_proof_against_a_member_that_signs_two_values_in_one_ballot_is_kept():
    bob = voting()
    for value in (COUNTED, DROPPED):
        bob.receive("ada", Votes((resigned(cast("bob", 0, 0, "ada", 1, "ada", value, voter=1, final=False)),)))
    assert bob.shared.membership.excluded == {"ada"}
    assert bob.ballots.proofs["ada"].holds(IDENTITIES["ada"].public)


@pytest.mark.parametrize("signed", [True, False])
def test_after_a_verdict_only_signed_statements_that_contradict_it_are_kept_as_a_proof(signed):
    bob = voting()
    bob.receive("ada", decision(*(vote(member, "cleo") for member in ("bob", "ada", "cleo"))))
    lie = cast("cleo", 0, 0, "ada", 0, "cleo", DROPPED, voter=1)
    bob.receive("ada", Votes((resigned(lie) if signed else lie,)))
    assert bob.shared.membership.excluded == ({"ada"} if signed else set())
    assert {name: proof.holds(IDENTITIES[name].public) for name, proof in bob.ballots.proofs.items()} == (
        {"ada": True} if signed else {}
    )


def test_an_insider_cannot_fill_the_memory_with_reports_that_cannot_be():
    bob = voting()
    for incarnation in (0, 1, 2, 50):
        for round in (0, 1, 2, 3, 1000):
            bob.receive("ada", prepare("ada", "cleo", incarnation, round, 1))
    assert {each.release for each in bob.records()} <= {report(name, 0, 0) for name in ("ada", "bob", "cleo")}


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
        Proposal(PROPOSED, (promise("ada"),) * 150, (vote("bob", "bob"),) * 150),
        proven(promise("ada"), (vote("bob", "bob"),) * 150),
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
    bob.receive("ada", Votes((vote("ada"), vote("ada"))))
    bob.receive("ada", Votes((vote("ada"),)))
    assert verified == ["ada"]
