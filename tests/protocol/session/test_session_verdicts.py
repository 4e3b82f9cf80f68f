"""Verdicts of sessions: events in, effects out, without a network."""

from collections import deque

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from honest import IDENTITIES, LARGEST, SIGNED, SWARM, promise, repromised, revoted, totalling, vote
from p2pfl.errors import DecodeError
from p2pfl.protocol.agreement.messages import Release
from p2pfl.protocol.agreement.translation import VerdictRecord, read_vote
from p2pfl.protocol.interface.effects import Decided, Disclosed, Publish, Sent, Store, Undecided
from p2pfl.protocol.interface.events import Begin, Decide, Disclose, Offer, Open, Stored, Tick
from p2pfl.protocol.session.deciding import statements
from p2pfl.protocol.wire.messages import Account, Chunk, Moved
from p2pfl.protocol.wire.rows import row_bytes
from p2pfl.protocol.wire.stream import Outbox
from p2pfl.protocol.wire.verdicts import (
    Copy,
    Decision,
    Halves,
    OfVerdicts,
    Prepare,
    Promise,
    Promised,
    Proposal,
    Vote,
    Votes,
)
from sessions import LENGTH, NAMES, announced, arrived, arrives, heartbeat, met, model, published, session

KEY = bytes([7]) * 32


class Triangle:
    """Three sessions that have begun, and the messages about verdicts between them."""

    names = NAMES

    def __init__(self, *dead, given=None):
        given = {"keeps": True, "names": self.names} | (given or {})
        self.sessions = {name: met(name, others=self.others(name), **given) for name in self.names}
        self.dead, self.now, self.answers, self.sent = {*dead}, 0.0, {name: [] for name in self.names}, []
        self.queue, self.lost, self.drop = deque(), None, lambda _: False

    def others(self, name):
        return [each for each in self.names if each != name]

    def ask(self, name, event):
        """Pass an event to a session; store what it stores, and keep its answers."""
        if name in self.dead:
            return
        for effect in self.sessions[name].handle(event, now=self.now):
            match effect:
                case Store():
                    self.queue.append((name, Stored()))
                case Publish(_, message) if self.drop(message):
                    pass
                case Publish(place, message) if isinstance(message, OfVerdicts):
                    self.sent.append((name, message))
                    to = [place[3:]] if place.startswith("in/") else self.others(name)
                    if not isinstance(message, Votes) or (message.votes[0].peer, message.votes[0].number) != self.lost:
                        self.queue.extend((each, arrived(name, message)) for each in to)
                case Publish(_, Chunk() as message):
                    self.queue.extend((each, arrived(name, message)) for each in self.others(name))
                case Decided() | Disclosed() | Undecided():
                    self.answers[name].append(effect)

    def flush(self):
        while self.queue:
            self.ask(*self.queue.popleft())

    def release(self, *names, round=0):
        for name in names:
            senders = tuple(self.others(name))
            self.ask(name, Open((round, 0), senders, since=round))
            self.ask(name, Offer(model(round, voted=True), phase=0, decided=True))
        self.flush()

    def decide(self, name, *held, round=0, masked=None):
        masked = {each: 7 for each in masked or self.names if each != name}
        self.ask(name, Decide(round, frozenset(held), masked))
        self.flush()

    def wait(self, seconds):
        self.now += seconds
        for name in self.names:
            self.ask(name, Tick())
        self.flush()


class Square(Triangle):
    """Four sessions, of which the first one lies: it sends what a test chooses."""

    names = ("ada", "bob", "dan", "eve")


def kinds(sent):
    return {type(message) for _, message in sent}


def test_a_model_leaves_with_its_owners_vote_once_that_is_durable():
    ada = met("ada", keeps=True)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=0.0)
    effects = ada.handle(Offer(model(voted=True), phase=0, decided=True), now=0.0)
    assert not published(effects)
    assert effects[:2] == [Store(), Store()]
    assert not published(ada.handle(Stored(), now=0.0))
    second = ada.handle(Stored(), now=0.0)
    assert [place for place, _ in published(second)] == ["pub/0"]


def test_where_all_models_arrive_votes_are_all_that_is_sent():
    three = Triangle()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    assert three.answers == {name: [Decided(frozenset())] for name in NAMES}
    assert kinds(three.sent) == {Votes}
    assert len(three.sent) == len(NAMES)  # for those that they hold; their own leave with the models


def test_a_model_that_nobody_holds_is_dropped_and_its_owner_is_gone():
    three = Triangle("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    for name in ("ada", "bob"):
        assert three.answers[name] == [Decided(frozenset({"eve"}))]
        assert "eve" not in three.sessions[name].membership.present


def test_a_model_that_its_owner_and_one_neighbour_hold_counts_and_the_third_that_lacks_it_does_not_go_on():
    three = Triangle()
    three.release(*NAMES)
    three.dead.add("eve")
    three.decide("ada", "bob", "eve")
    three.decide("bob", "ada")
    assert three.answers["ada"] == [Decided(frozenset())]
    three.wait(5.0)
    three.wait(5.0)
    assert three.answers["bob"] == [Undecided(frozenset({"eve"}))]


def test_a_peer_that_was_cut_off_learns_that_its_model_was_dropped():
    three = Triangle()
    three.release("ada", "bob")
    three.dead.add("eve")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    three.dead.clear()  # it was cut off, and sends its model too late
    three.release("eve")
    three.decide("eve", "ada", "bob")
    for _ in range(6):
        three.wait(1.0)
    assert three.answers["eve"] == [Decided(frozenset({"eve"}))]
    assert any(name != "eve" and isinstance(message, Decision) for name, message in three.sent)


def test_a_model_on_which_the_others_have_voted_before_it_was_sent_never_leaves():
    three = Triangle()
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)  # eve is slow, and hears the ballot that drops its model
    eve = three.sessions["eve"]
    eve.handle(Open((0, 0), ("ada", "bob"), since=0), now=three.now)
    effects = eve.handle(Offer(model(voted=True), phase=0, decided=True), now=three.now)
    assert Sent() in effects
    for effect in effects:  # grows
        effects += eve.handle(Stored(), now=three.now) if isinstance(effect, Store) else []
    assert "pub/0" not in [place for place, _ in published(effects)]
    three.decide("eve", "ada", "bob")
    three.wait(1.0)
    assert three.answers["eve"] == [Decided(frozenset({"eve"}))]


def test_without_a_majority_nobody_decides():
    three = Triangle("bob", "eve")
    three.release("ada")
    three.decide("ada")
    for _ in range(10):
        three.wait(1.0)
    assert three.answers["ada"] == [Undecided(frozenset(NAMES))]


def test_a_restart_forgets_no_vote():
    three = Triangle()
    three.release(*NAMES)
    three.decide("bob", "ada", "eve")
    kept = three.sessions["bob"].verdicts.records()
    again = met("bob", others=("ada", "eve"), keeps=True)
    again.verdicts.restore(kept)
    answer = published(again.handle(arrived("eve", Prepare("ada", 7, 0, 1)), now=0.0))
    assert [(place, type(said)) for place, said in answer] == [("in/eve", Decision)]
    assert again.verdicts.records() == kept


@pytest.mark.parametrize(("incarnation", "excluded"), [(7, {"eve"}), (8, set())])
def test_a_member_that_hides_its_vote_is_excluded_and_one_that_has_forgotten_it_is_not_taken(incarnation, excluded):
    """Who comes back with an old backup signs as another incarnation; its promise is refused all the same."""
    three = Triangle("eve")
    three.release("ada", "bob")
    three.decide("ada")
    three.dead.add("ada")
    knows = three.sessions["ada"]
    knows.handle(arrived("eve", Votes((Vote("bob", 7, 0, "eve", 0, "bob", True, bytes(64), 7),))), now=0.0)
    hides = Promised("bob", 7, 0, "eve", 1, "ada", bytes(64), incarnation)
    three.now = 1.0
    for event in (Tick(), Stored(), Stored(), arrived("eve", Promise(hides)), Stored()):
        effects = knows.handle(event, now=three.now) if knows.shared.stores or not isinstance(event, Stored) else []
        assert not [each for _, each in published(effects) if isinstance(each, Proposal)]
    assert knows.membership.excluded == excluded


def answers(made, peer="eve", *, incarnation=7, round=0):
    """What a session sends after bob has requested a promise on a release of a peer."""
    effects = made.handle(arrived("bob", Prepare(peer, incarnation, round, 1)), now=0.0)
    while made.shared.stores:
        effects += made.handle(Stored(), now=0.0)
    return [type(message) for place, message in published(effects) if place == "in/bob"]


def test_a_peer_that_takes_part_in_a_round_promises_nothing_before_it_has_waited_for_the_models_itself():
    ada = met("ada", keeps=True)
    assert answers(ada) == []
    effects = ada.handle(Decide(0, frozenset({"bob"}), {"bob": 7, "eve": 7}), now=0.0)
    while ada.shared.stores:
        effects += ada.handle(Stored(), now=0.0)
    assert Promise in [type(message) for place, message in published(effects) if place == "in/bob"]


def test_a_peer_that_has_no_part_in_a_round_promises_at_once():
    assert answers(met("ada", keeps=True, first=1)) == [Promise]


def test_a_peer_that_joins_late_promises_in_the_round_before_its_first():
    assert answers(met("ada", keeps=True, first=50), round=49) == [Promise]


def test_a_peer_that_restarts_in_a_late_round_answers_before_it_takes_part_again():
    three = Triangle(given={"first": 50})
    three.release(*NAMES, round=50)
    three.decide("bob", "ada", "eve", round=50)
    again = session("bob", keeps=True)
    again.verdicts.restore(three.sessions["bob"].verdicts.records())
    for other in ("ada", "eve"):
        again.handle(announced(other), now=0.0)
        again.handle(heartbeat(other), now=0.0)
    answer = published(again.handle(arrived("eve", Prepare("ada", 7, 50, 1)), now=0.0))
    assert [(place, type(said)) for place, said in answer] == [("in/eve", Decision)]


def test_a_run_that_resumes_from_an_earlier_round_decides_that_round():
    three = Triangle(given={"first": 50})
    three.release(*NAMES, round=50)
    again = met("bob", others=("ada", "eve"), keeps=True)
    again.verdicts.restore(three.sessions["bob"].verdicts.records())
    again.handle(Begin(40), now=0.0)
    again.handle(Decide(40, frozenset({"ada"}), {"ada": 7}), now=0.0)
    assert again.verdicts.waits == {"ada", "bob"}


def test_requests_about_later_rounds_do_not_move_a_peer_that_restarts():
    again = session("ada", keeps=True)
    again.verdicts.restore([VerdictRecord("eve", 7, 52, (1, "bob"))])
    assert again.verdicts._now == 0


def test_a_peer_that_decides_without_a_release_promises_for_those_that_need_it():
    """It has met another incarnation of the owner than they have."""
    ada = met("ada", keeps=True)
    ada.handle(announced("eve", life=8), now=0.0)
    assert answers(ada, incarnation=8) == []
    effects = ada.handle(Decide(0, frozenset({"bob"}), {"bob": 7, "eve": 7}), now=0.0)
    while ada.shared.stores:
        effects += ada.handle(Stored(), now=0.0)
    assert Promise in [type(message) for place, message in published(effects) if place == "in/bob"]


def test_a_peer_waits_for_the_keys_of_those_whose_models_it_mixes_and_asks_again():
    three = Triangle("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    three.dead.add("bob")  # for now: what ada publishes is lost
    three.ask("ada", Disclose(0, {"eve": KEY}, frozenset({("bob", "eve")})))
    three.flush()
    three.dead.discard("bob")
    three.ask("bob", Disclose(0, {"eve": b""}, frozenset({("ada", "eve")})))
    three.flush()
    assert three.answers["ada"][1:] == [Disclosed({("bob", "eve"): b""})]
    assert three.answers["bob"][1:] == []
    three.wait(1.0)
    assert three.answers["bob"][1:] == [Disclosed({("ada", "eve"): KEY})]


def test_a_peer_that_has_not_masked_with_a_dropped_one_says_so_when_it_is_asked():
    three = Triangle("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob", masked=("bob",))
    three.decide("bob", "ada", masked=("ada",))
    assert three.answers["bob"] == [Decided(frozenset())]
    three.ask("bob", arrived("ada", Halves(0, {"eve": KEY}, ("eve",), 7)))
    assert three.sent[-1] == ("bob", Halves(0, {"eve": b""}, (), 7))


def test_keys_of_an_incarnation_that_has_not_released_are_refused():
    three = Triangle("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob")
    three.decide("bob", "ada")
    three.wait(1.0)
    ada = three.sessions["ada"]
    ada.handle(Disclose(0, {"eve": KEY}, frozenset({("bob", "eve")})), now=three.now)
    with pytest.raises(DecodeError, match='the incarnation of "bob" that released'):
        ada.verdicts.receive("bob", Halves(0, {"eve": KEY}, (), 6))
    found = ada.handle(arrived("bob", Halves(0, {"eve": KEY}, (), 7)), now=three.now)
    assert Disclosed({("bob", "eve"): KEY}) in found


def test_a_model_is_of_the_incarnation_that_sent_it_even_if_its_owner_restarts_before_the_verdict():
    ada = met("ada", keeps=True)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=0.0)
    for event in arrives("bob", voted=True):
        ada.handle(event, now=0.0)
    ada.handle(announced("bob", life=8), now=0.0)
    ada.handle(Decide(0, frozenset({"bob"}), {}), now=0.0)
    assert Release("bob", 7, 0, 0) in ada.verdicts._needed
    assert Release("bob", 8, 0, 0) not in ada.verdicts._needed


def test_no_peer_is_asked_for_the_key_of_a_model_that_counts():
    three = Triangle()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    before = len(three.sent)
    three.ask("bob", arrived("ada", Halves(0, {}, ("eve",), 7)))
    three.flush()
    assert three.sent[before:] == []  # an insider asks in vain


def signed(vote, by):
    statement = SWARM.encode() + b"/" + read_vote(vote).statement
    return Vote(*(getattr(vote, each) for each in vote.__struct_fields__[:-1]), by.sign(statement, domain="vote"))


PROPOSED = revoted(Vote("bob", 1, 0, "ada", 1, "ada", False, bytes(64), 1, False))
FREE = promise("ada").promise, promise("cleo").promise
UNSIGNED = replace(vote("bob", "bob"), signature=bytes(64))
FORGED = replace(promise("cleo").promise, signature=bytes(64))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Votes((Vote("ada", 1, 0, "cleo", 0, "ada", True, bytes(64)),)), 'expected votes of "ada"'),
        (Votes((Vote("ada", 1, 0, "ada", 0, "ada", True, bytes(64)),)), 'a statement that "ada" has signed'),
        (Votes((signed(Vote("ada", 1, 0, "ada", 0, "ada", True, b""), IDENTITIES["eve"]),)), "has signed"),
        (Votes((Vote("eve", 1, 0, "ada", 0, "eve", True, bytes(64)),)), "is not on the committee"),
        (Decision(()), "expected votes for one value"),
        (Promise(promise("cleo").promise), 'a promise of "ada"'),
        (Promise(Promised("bob", 1, 0, "ada", 1, "ada", bytes(64))), 'a statement that "ada" has signed'),
        (Promise(promise("ada").promise, (vote("eve", "bob"),)), 'statements of the committee of "bob"'),
        (Promise(promise("ada").promise, (vote("bob", "cleo"),)), 'statements of the committee of "bob"'),
        (Promise(promise("ada").promise, (UNSIGNED,)), 'a statement that "bob" has signed'),
        (Promise(promise("ada").promise, (vote("bob", "bob"),) * 150), "that its statements prove, got a Promise"),
        (Promise(repromised(replace(promise("ada").promise, number=0))), "that its statements prove, got a Promise"),
        (Votes((revoted(replace(vote("ada"), counted=False)),)), "that its statements prove, got a Vote"),
        (Proposal(PROPOSED, (promise("ada").promise,)), "that its statements prove, got a Proposal"),
        (Proposal(PROPOSED, (promise("ada").promise,) * 150), "that its statements prove, got a Proposal"),
        (Decision((vote("ada"),)), "that its statements prove, got a Decision"),
        (Decision((vote("ada"), vote("ada"), vote("bob"))), "that its statements prove, got a Decision"),
        (Votes((revoted(replace(vote("ada"), voter=0)),)), 'the announced incarnation of "ada"'),
        (Votes((revoted(replace(vote("ada"), voter=2)),)), 'the announced incarnation of "ada"'),
        (Promise(repromised(replace(promise("ada").promise, voter=0))), 'the announced incarnation of "ada"'),
        (Proposal(revoted(replace(PROPOSED, voter=2)), FREE), 'the announced incarnation of "ada"'),
        (Decision((vote("ada"), revoted(replace(vote("bob"), voter=2)))), 'the announced incarnation of "bob"'),
        (Proposal(vote("cleo"), ()), 'a proposal of "ada"'),
        (Proposal(PROPOSED, (promise("ada").promise, FORGED)), 'a statement that "cleo" has signed'),
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
    for counted in (True, False):
        lie = Vote("bob", 1, 0, "ada", 1, "ada", counted, bytes(64), 1, False)
        bob.handle(arrived("ada", Votes((revoted(lie),)), swarm=SWARM), now=0.0)
    assert bob.membership.excluded == {"ada"}
    assert bob.verdicts.ballots.proofs["ada"].holds(IDENTITIES["ada"].public)


@pytest.mark.parametrize("signed", [True, False])
def test_after_a_verdict_only_signed_statements_that_contradict_it_are_kept_as_a_proof(signed):
    bob = totalling("bob", "bob")
    votes = tuple(vote(member, "bob") for member in ("bob", "ada", "cleo"))
    bob.verdicts.restore([VerdictRecord("bob", 1, 0, (0, "bob"), decided=votes)])
    lie = Vote("bob", 1, 0, "ada", 0, "bob", False, bytes(64), 1)
    bob.handle(arrived("ada", Votes((revoted(lie) if signed else lie,)), swarm=SWARM), now=0.0)
    assert bob.membership.excluded == ({"ada"} if signed else set())
    assert {name: proof.holds(IDENTITIES[name].public) for name, proof in bob.verdicts.ballots.proofs.items()} == (
        {"ada": True} if signed else {}
    )


def test_an_insider_cannot_fill_the_memory_with_releases_that_cannot_be():
    bob = totalling("bob", "bob")
    for incarnation in (0, 1, 2, 50):
        for round in (0, 1, 2, 3, 1000):
            bob.verdicts.receive("ada", Prepare("cleo", incarnation, round, 1))
    kept = {(each.incarnation, each.round) for each in bob.verdicts.records()}
    assert kept <= {(life, round) for life in (0, 1) for round in (0, 1, 2)}


def test_a_single_member_cannot_drop_a_model_that_the_others_hold():
    """It votes without a proposal, and proposes without promises."""
    three = Triangle()
    three.release("ada", "bob")
    three.decide("ada", "bob")
    acceptance = Vote("ada", 7, 0, "eve", 1, "eve", False, bytes(64), 7, False)
    for name in ("ada", "bob"):
        three.ask(name, arrived("eve", Votes((replace(acceptance, final=True), acceptance))))
        three.ask(name, arrived("eve", Proposal(acceptance, ())))
        own = Promised("ada", 7, 0, "eve", 1, "eve", bytes(64), 7)
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
        ada.handle(arrived("eve", Prepare("bob", incarnation, 0, 1)), now=0.0)
    ada.handle(arrived("eve", Votes((Vote("bob", 7, 0, "eve", 0, "bob", True, bytes(64), 7),))), now=0.0)
    admitted = {each.incarnation for each in ada.verdicts.ballots.open[0, 0].admitted if each.peer == "bob"}
    assert admitted == {0, 1, 2, 3, 7}


def test_a_release_counts_although_a_liar_has_asked_about_others_of_its_owner_first():
    three = Triangle("eve")
    for incarnation in range(4):
        three.ask("bob", arrived("eve", Prepare("ada", incarnation, 0, 1)))
    three.release("ada", "bob")
    three.ask("bob", arrived("eve", Prepare("ada", 7, 0, 2)))
    for name, other in (("ada", "bob"), ("bob", "ada")):
        three.decide(name, other, masked=(other,))
    assert three.answers["bob"] == [Decided(frozenset())]


@pytest.fixture
def verified(monkeypatch):
    """Members whose signatures were verified, in order."""
    found, verify = [], statements.verify
    names = {identity.public: name for name, identity in IDENTITIES.items()}

    def counted(key, *given, **how):
        found.append(names[key])
        return verify(key, *given, **how)

    monkeypatch.setattr(statements, "verify", counted)
    return found


@pytest.mark.parametrize(
    "message",
    [
        Proposal(PROPOSED, (promise("ada").promise,) * 150, (vote("bob", "bob"),) * 150),
        Promise(promise("ada").promise, (vote("bob", "bob"),) * 150),
        Decision((vote("ada"),) * 200),
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
    old = revoted(replace(vote("ada", "bob"), voter=0))
    bob.verdicts.receive("ada", Decision((old, vote("bob", "bob"))))
    assert [each.counted for each in bob.verdicts.records()] == [True]


def without_votes_on_ada(three):
    """Lose the votes on the model of ada in the first ballot, and let all have all models."""
    three.lost = ("ada", 0)
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))


def test_a_lost_vote_is_requested_and_repeated_without_a_ballot():
    three = Triangle()
    without_votes_on_ada(three)
    assert three.answers["ada"] == []
    three.lost = None
    for _ in range(2):
        three.wait(1.0)
    assert three.answers == {name: [Decided(frozenset())] for name in NAMES}
    assert Promise not in kinds(three.sent)


def test_who_holds_a_model_votes_on_it_although_all_other_votes_of_its_owner_are_lost():
    three = Triangle()
    three.release(*NAMES)
    three.dead.add("ada")
    three.decide("bob", "ada", "eve")
    assert "ada" not in three.sessions["bob"].verdicts.waits
    assert {each.counted for each in three.sessions["bob"].verdicts.records() if each.peer == "ada"} == {True}


@pytest.mark.parametrize("vote", [[], [bytes(64)]])
def test_a_model_without_its_owners_vote_does_not_count_as_held(vote):
    """Or with a vote that the owner has not signed: such a model is refused."""
    bob = totalling("bob", "bob")
    bob.handle(Open((0, 0), ("ada", "cleo"), since=0), now=0.0)
    announcement = bob.membership.up["ada"]
    bob.streams.open(announcement)
    bob.mailbox.know("ada")
    outbox = Outbox(1, chunk=LARGEST, trailer=SIGNED)
    outbox.listen("bob")
    outbox.put([*model(voted=bool(vote)), *vote])
    for chunk in outbox.ready():
        bob.handle(arrived("ada", chunk, swarm=SWARM), now=0.0)
    assert bob.mailbox.peek("ada") is None or not vote
    bob.handle(Decide(0, frozenset({"ada"}), {"ada": 1, "cleo": 1}), now=0.0)
    assert {each.peer: each.voted for each in bob.verdicts.records()}.get("ada") is None


def test_a_peer_repeats_its_vote_for_one_member_at_most_twice_in_a_second():
    three = Triangle("eve")
    three.release("ada")
    three.sent.clear()
    for _ in range(3):
        three.ask("ada", arrived("eve", Prepare("ada", 7, 0, 0)))
    assert kinds(three.sent) == {Votes}
    assert len(three.sent) == 1


def test_a_broker_and_a_liar_together_cannot_drop_a_model_that_the_others_hold():
    """The broker loses all votes of its owner; the liar proposes to drop it, with a promise that shows no vote."""
    three = Triangle("eve")
    three.lost = ("ada", 0)
    three.release("ada", "bob")
    three.dead.add("ada")
    three.decide("bob", "ada")
    own = Promised("ada", 7, 0, "eve", 1, "eve", bytes(64), 7)
    for _ in range(9):
        three.wait(1.0)
        three.ask("bob", arrived("eve", Prepare("ada", 7, 0, 1)))
        three.flush()
        given = [said.promise for name, said in three.sent if name == "bob" and isinstance(said, Promise)]
        for promised in [each for each in given if (each.peer, each.proposer) == ("ada", "eve")]:
            dropped = Vote("ada", 7, 0, "eve", 1, "eve", False, bytes(64), 7, False)
            three.ask("bob", arrived("eve", Proposal(dropped, (promised, own))))
            three.ask("bob", arrived("eve", Votes((replace(dropped, final=True), dropped))))
            three.flush()
    assert Decided(frozenset({"ada"})) not in three.answers["bob"]
    assert [each.counted for each in three.sessions["bob"].verdicts.records() if each.peer == "ada"] != [False]


def mixing(square, name, *applied):
    """Open the gossip step of a session, and mix the models of others, by the value of their numbers."""
    ledgers = square.sessions[name].ledgers
    ledgers.open((0, 0), np.zeros(LENGTH, np.float32), weights=dict.fromkeys(square.others(name), 0.25), chain=0)
    return sum(ledgers.apply(peer, (0, 0), np.full(LENGTH, value, np.float32)) for peer, value in applied)


@pytest.mark.parametrize("sent", [(2.0,), (1.0, 2.0), (2.0, 1.0), ()], ids=["other", "both", "both late", "none"])
def test_an_owner_that_sends_different_copies_ends_nobody_and_all_mix_the_one_that_counts(sent):
    """The owner sends one copy to two of the others, and to the third another one, both, or none."""
    square = Square("ada")
    square.release("bob", "dan", "eve")
    for name in ("bob", "dan"):
        for event in arrives("ada", value=1.0, voted=True):
            square.ask(name, event)
    for sequence, value in enumerate(sent):
        for event in arrives("ada", value=value, voted=True, sequence=sequence):
            square.ask("eve", event)
    mixed = mixing(square, "eve", ("bob", 1.0), ("dan", 1.0), *[("ada", value) for value in sent[:1]])
    for name in square.others("ada"):
        held = {each for each in square.others(name) if name != "eve" or each != "ada" or sent}
        square.decide(name, *held)
    for _ in range(4):
        square.wait(1.0)
    assert square.answers == {"ada": []} | {name: [Decided(frozenset())] for name in square.others("ada")}
    arrived_late = square.sessions["eve"].ledgers.arrived()
    assert (mixed + (0 if arrived_late is None else arrived_late)).tolist() == [0.75] * LENGTH
    accused = {name for name in square.others("ada") if "ada" in square.sessions[name].membership.excluded}
    assert accused == ({*square.others("ada")} if 2.0 in sent else set())


def test_an_owner_that_sends_each_of_the_others_another_copy_is_excluded_and_its_release_dropped():
    square = Square("ada")
    square.release("bob", "dan", "eve")
    for value, name in enumerate(square.others("ada")):
        for event in arrives("ada", value=float(value), voted=True):
            square.ask(name, event)
    for name in square.others("ada"):
        square.decide(name, *square.others(name))
    for _ in range(8):
        square.wait(1.0)
    assert square.answers == {"ada": []} | {name: [Decided(frozenset({"ada"}))] for name in square.others("ada")}
    assert all("ada" in square.sessions[name].membership.excluded for name in square.others("ada"))


def test_a_holder_that_sends_another_message_than_the_owner_has_signed_is_not_the_last_one_that_is_asked():
    square = Square("ada")
    square.release("bob", "dan", "eve")
    for name in ("bob", "dan"):
        for event in arrives("ada", value=1.0, voted=True):
            square.ask(name, event)
    square.sessions["bob"].verdicts.copies.serve = lambda _, wanted: square.ask(
        "eve", arrived("bob", Copy("ada", 7, 0, wanted.digest, 0, 3, memoryview(b"lie")))
    )
    mixing(square, "eve", ("bob", 1.0), ("dan", 1.0))
    for name in square.others("ada"):
        square.decide(name, *({*square.others(name)} - ({"ada"} if name == "eve" else set())))
    for _ in range(4):
        square.wait(1.0)
    assert square.sessions["eve"].shared.refused["bob: not a message"]
    assert square.answers["eve"] == [Decided(frozenset())]


def test_a_copy_of_many_pieces_arrives_piece_by_piece_although_some_are_lost():
    square = Square("ada", given={"length": 4000, "row_bytes": row_bytes(4000, torch.float32)})
    square.release("bob", "dan", "eve")
    for name in ("bob", "dan"):
        for event in arrives("ada", value=1.0, voted=True, length=4000, size=400):
            square.ask(name, event)
    lost = dict.fromkeys((3584, 7168), True)
    square.drop = lambda message: isinstance(message, Copy) and lost.pop(message.offset, False)
    ledgers = square.sessions["eve"].ledgers
    ledgers.open((0, 0), np.zeros(4000, np.float32), weights=dict.fromkeys(square.others("eve"), 0.25), chain=0)
    for name in ("bob", "dan"):
        ledgers.apply(name, (0, 0), np.zeros(4000, np.float32))
    for name in square.others("ada"):
        square.decide(name, *({*square.others(name)} - ({"ada"} if name == "eve" else set())))
    for _ in range(9):
        square.wait(1.0)
    assert not lost
    assert square.answers["eve"] == [Decided(frozenset())]
    assert ledgers.arrived().tolist() == [0.25] * 4000


@pytest.mark.parametrize("early", [True, False], ids=["before the decision", "during it"])
def test_an_owner_that_states_that_it_mixes_no_model_of_a_peer_does_not_keep_its_own_out_of_that_peers_average(early):
    """Such a statement takes a model back, except one of a round on which all decide."""
    square = Square("ada")
    square.release("bob", "dan", "eve")
    for name in square.others("ada"):
        for event in arrives("ada", value=1.0, voted=True):
            square.ask(name, event)
    mixed = mixing(square, "eve", ("bob", 1.0), ("dan", 1.0), ("ada", 1.0))
    statement = Moved((0, 0), (1, 0), (), (), (0, 0))
    never = arrived("ada", Account(7, 1, [(statement, [])], incarnations={"eve": 7}))
    for event in [never] if early else []:
        square.ask("eve", event)
    for name in square.others("ada"):
        square.decide(name, *square.others(name), masked=("ada",))
        for event in [never] if name == "eve" and not early else []:
            square.ask(name, event)
    for _ in range(4):
        square.wait(1.0)
    assert square.answers["eve"] == [Decided(frozenset())]
    ledgers = square.sessions["eve"].ledgers
    back = ledgers.close()
    assert (mixed + (0 if back is None else back)).tolist() == [0.75] * LENGTH
    assert "ada" in ledgers.flows.applied((0, 0))
