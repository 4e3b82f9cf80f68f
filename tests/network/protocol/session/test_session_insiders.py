"""Tests of the statements that a malicious member may not make, and of the proof that is kept against it."""

import pytest
from msgspec.structs import replace

from ballots import COUNTED, cast, decision, kept, prepare, promised, proven
from counting import totalling
from honest import promise, resigned, vote
from known_peers import IDENTITIES, SWARM
from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.interface.effects import Decided
from p2pfl.network.protocol.interface.requests import Open
from p2pfl.network.protocol.session.decisions import signed_statements
from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Decision,
    Halves,
    Proposal,
    Release,
    Votes,
)
from sessions import announced, arrived, arrives, met
from verdict_sessions import KEY, ThreeSessions


def signed(vote, by):
    statement = SWARM.encode() + b"/" + vote.statement
    return replace(vote, signature=by.sign(statement, domain="vote"))


PROPOSED = resigned(cast("bob", 1, 0, "ada", 1, "ada", DROPPED, voter=1, final=False))
FREE = promise("ada"), promise("cleo")
UNSIGNED = replace(vote("bob", "bob"), signature=bytes(64))
FORGED = replace(promise("cleo"), signature=bytes(64))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Votes((cast("ada", 1, 0, "cleo", 0, "ada", COUNTED),)), 'expected statements of "ada"'),
        (Votes((cast("ada", 1, 0, "ada", 0, "ada", COUNTED),)), 'a statement that "ada" has signed'),
        (Votes((signed(cast("ada", 1, 0, "ada", 0, "ada", COUNTED, b""), IDENTITIES["eve"]),)), "has signed"),
        (Votes((cast("eve", 1, 0, "ada", 0, "eve", COUNTED),)), "is not on the committee"),
        (Decision(Release("ada", 1, 0, 0), COUNTED, ()), "that its statements prove, got a Decision"),
        (promise("cleo"), 'expected statements of "ada"'),
        (promised("bob", 1, 0, "ada", 1, "ada"), 'a statement that "ada" has signed'),
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
        (Halves(0, {"eve": KEY}), 'keys of masks of "ada"'),
        (Halves(0, {"bob": KEY[:5]}), 'keys of masks of "ada"'),
    ],
)
def test_what_an_insider_may_not_say_is_refused(message, why):
    bob = totalling("bob", "bob")
    with pytest.raises(DecodeError, match=why):
        bob.verdicts.receive("ada", message)
    assert bob.verdicts.records() == ()


def test_the_proof_against_a_member_that_signs_two_values_in_one_ballot_is_kept():
    bob = totalling("bob", "bob")
    for value in (COUNTED, DROPPED):
        lie = cast("bob", 1, 0, "ada", 1, "ada", value, voter=1, final=False)
        bob.handle(arrived("ada", Votes((resigned(lie),)), swarm=SWARM), now=0.0)
    assert bob.membership.excluded == {"ada"}
    assert bob.verdicts.ballots.proofs["ada"].holds(IDENTITIES["ada"].public)


@pytest.mark.parametrize("signed", [True, False])
def test_after_a_verdict_only_signed_statements_that_contradict_it_are_kept_as_a_proof(signed):
    bob = totalling("bob", "bob")
    votes = tuple(vote(member, "bob") for member in ("bob", "ada", "cleo"))
    bob.verdicts.restore([kept("bob", 1, 0, decided=decision(*votes))])
    lie = cast("bob", 1, 0, "ada", 0, "bob", DROPPED, voter=1)
    bob.handle(arrived("ada", Votes((resigned(lie) if signed else lie,)), swarm=SWARM), now=0.0)
    assert bob.membership.excluded == ({"ada"} if signed else set())
    assert {name: proof.holds(IDENTITIES[name].public) for name, proof in bob.verdicts.ballots.proofs.items()} == (
        {"ada": True} if signed else {}
    )


def test_an_insider_cannot_fill_the_memory_with_releases_that_cannot_be():
    bob = totalling("bob", "bob")
    for incarnation in (0, 1, 2, 50):
        for round in (0, 1, 2, 3, 1000):
            bob.verdicts.receive("ada", prepare("ada", "cleo", incarnation, round, 1))
    found = {each.release[1:3] for each in bob.verdicts.records()}
    assert found <= {(life, round) for life in (0, 1) for round in (0, 1, 2)}


def test_a_single_member_cannot_drop_a_model_that_the_others_hold():
    """It votes without a proposal, and proposes without promises."""
    three = ThreeSessions()
    three.release("ada", "bob")
    three.decide("ada", "bob")
    acceptance = cast("ada", 7, 0, "eve", 1, "eve", DROPPED, voter=7, final=False)
    for name in ("ada", "bob"):
        three.ask(name, arrived("eve", Votes((replace(acceptance, final=True), acceptance))))
        three.ask(name, arrived("eve", Proposal(acceptance, ())))
        own = promised("ada", 7, 0, "eve", 1, "eve", 7)
        three.ask(name, arrived("eve", Proposal(acceptance, (own, own))))
    three.flush()
    three.decide("bob", "ada", masked=("ada",))
    assert three.answers["bob"] == [Decided(frozenset())]


@pytest.mark.parametrize("announced_life", [7, 9])
def test_requests_about_releases_that_never_were_do_not_crowd_out_the_real_one(announced_life):
    """The release is of the announced incarnation, or of the one that released before its owner restarted."""
    ada = met("ada", keeps=True)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=0.0)
    for event in arrives("bob", voted=True):
        ada.handle(event, now=0.0)
    ada.handle(announced("bob", life=announced_life), now=0.0)
    for incarnation in range(5):
        ada.handle(arrived("eve", prepare("eve", "bob", incarnation, 0, 1)), now=0.0)
    ada.handle(arrived("eve", Votes((cast("bob", 7, 0, "eve", 0, "bob", COUNTED, voter=7),))), now=0.0)
    admitted = {each.incarnation for each in ada.verdicts.ballots.open[0, 0].admitted if each.peer == "bob"}
    assert admitted == {0, 1, 2, 3, 7}


def test_a_release_counts_although_a_malicious_peer_has_asked_about_others_of_its_owner_first():
    three = ThreeSessions("eve")
    for incarnation in range(4):
        three.ask("bob", arrived("eve", prepare("eve", "ada", incarnation, 0, 1)))
    three.release("ada", "bob")
    three.ask("bob", arrived("eve", prepare("eve", "ada", 7, 0, 2)))
    for name, other in (("ada", "bob"), ("bob", "ada")):
        three.decide(name, other, masked=(other,))
    assert three.answers["bob"] == [Decided(frozenset())]


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
    bob = totalling("bob", "bob")
    with pytest.raises(DecodeError, match="that its statements prove"):
        bob.verdicts.receive("ada", message)
    assert verified == []


def test_a_signature_is_verified_once(verified):
    bob = totalling("bob", "bob")
    bob.verdicts.receive("ada", Votes((vote("ada"), vote("ada"))))
    bob.verdicts.receive("ada", Votes((vote("ada"),)))
    assert verified == ["ada"]


def test_statements_of_earlier_incarnations_still_prove():
    """Ada shows what it has signed before it restarted."""
    bob = totalling("bob", "bob")
    old = resigned(replace(vote("ada", "bob"), incarnation=0))
    bob.verdicts.receive("ada", decision(old, vote("bob", "bob")))
    assert [each.counted for each in bob.verdicts.records()] == [True]
