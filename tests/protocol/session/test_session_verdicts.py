"""Verdicts of sessions: events in, effects out, without a network."""

from collections import deque

import pytest

from honest import IDENTITIES, SWARM, totalling
from p2pfl.errors import DecodeError
from p2pfl.protocol.agreement.translation import read_vote
from p2pfl.protocol.session.effects import Decided, Disclosed, Publish, Sent, Store, Undecided
from p2pfl.protocol.session.events import Decide, Disclose, Offer, Open, Stored, Tick
from p2pfl.protocol.wire.verdicts import Decision, Halves, OfVerdicts, Prepare, Vote, Votes
from sessions import NAMES, arrived, met, model, published

KEY = bytes([7]) * 32


class Triangle:
    """Three sessions that have begun, and the messages about verdicts between them."""

    def __init__(self, *dead, given=None):
        others = {name: [each for each in NAMES if each != name] for name in NAMES}
        self.sessions = {name: met(name, others=others[name], keeps=True, **(given or {})) for name in NAMES}
        self.dead, self.now, self.answers, self.sent = {*dead}, 0.0, {name: [] for name in NAMES}, []
        self.queue = deque()

    def ask(self, name, event):
        """Pass an event to a session; store what it stores, and keep its answers."""
        if name in self.dead:
            return
        for effect in self.sessions[name].handle(event, now=self.now):
            match effect:
                case Store():
                    self.queue.append((name, Stored()))
                case Publish(place, message) if isinstance(message, OfVerdicts):
                    self.sent.append((name, message))
                    to = [place[3:]] if place.startswith("in/") else [each for each in NAMES if each != name]
                    self.queue.extend((each, arrived(name, message)) for each in to)
                case Decided() | Disclosed() | Undecided():
                    self.answers[name].append(effect)

    def flush(self):
        while self.queue:
            self.ask(*self.queue.popleft())

    def release(self, *names, round=0):
        for name in names:
            senders = tuple(each for each in NAMES if each != name)
            self.ask(name, Open((round, 0), senders, since=round))
            self.ask(name, Offer(model(round), phase=0, decided=True))
        self.flush()

    def decide(self, name, *held, round=0, masked=NAMES):
        masked = {each: 7 for each in masked if each != name}
        self.ask(name, Decide(round, frozenset(held), masked))
        self.flush()

    def wait(self, seconds):
        self.now += seconds
        for name in NAMES:
            self.ask(name, Tick())
        self.flush()


def kinds(sent):
    return {type(message) for _, message in sent}


def test_a_vote_leaves_once_it_is_durable_and_before_the_model_is_sent():
    ada = met("ada", keeps=True)
    ada.handle(Open((0, 0), ("bob", "eve"), since=0), now=0.0)
    effects = ada.handle(Offer(model(), phase=0, decided=True), now=0.0)
    assert not published(effects)
    assert effects[:2] == [Store(), Store()]
    first = ada.handle(Stored(), now=0.0)
    assert [(place, type(said)) for place, said in published(first)] == [("account", Votes)]
    second = ada.handle(Stored(), now=0.0)
    assert [place for place, _ in published(second)] == ["pub/0"]


def test_where_all_models_arrive_votes_are_all_that_is_sent():
    three = Triangle()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    assert three.answers == {name: [Decided(frozenset())] for name in NAMES}
    assert kinds(three.sent) == {Votes}
    assert len(three.sent) == 2 * len(NAMES)  # for their own models, and for those that they hold


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
    effects = eve.handle(Offer(model(), phase=0, decided=True), now=three.now)
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
    three.ask("bob", arrived("ada", Halves(0, {"eve": KEY}, ("eve",))))
    assert three.sent[-1] == ("bob", Halves(0, {"eve": b""}))


def test_no_peer_is_asked_for_the_key_of_a_model_that_counts():
    three = Triangle()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    before = len(three.sent)
    three.ask("bob", arrived("ada", Halves(0, {}, ("eve",))))
    three.flush()
    assert three.sent[before:] == []  # an insider asks in vain


def signed(vote, by):
    statement = SWARM.encode() + b"/" + read_vote(vote).statement
    return Vote(*(getattr(vote, each) for each in vote.__struct_fields__[:-1]), by.sign(statement, domain="vote"))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Votes((Vote("ada", 1, 0, "cleo", 0, "ada", True, bytes(64)),)), 'expected votes of "ada"'),
        (Votes((Vote("ada", 1, 0, "ada", 0, "ada", True, bytes(64)),)), 'a vote that "ada" has signed'),
        (Votes((signed(Vote("ada", 1, 0, "ada", 0, "ada", True, b""), IDENTITIES["eve"]),)), "has signed"),
        (Votes((Vote("eve", 1, 0, "ada", 0, "eve", True, bytes(64)),)), "is not on the committee"),
        (Decision(()), "expected votes for one value"),
        (Halves(0, {"eve": KEY}), 'keys of masks of "ada"'),
        (Halves(0, {"bob": KEY[:5]}), 'keys of masks of "ada"'),
    ],
)
def test_what_an_insider_may_not_say_is_refused(message, why):
    bob = totalling("bob", "bob")
    with pytest.raises(DecodeError, match=why):
        bob.verdicts.receive("ada", message)
    assert bob.verdicts.records() == ()


def test_an_insider_cannot_fill_the_memory_with_releases_that_cannot_be():
    bob = totalling("bob", "bob")
    for incarnation in (0, 1, 2, 50):
        for round in (0, 1, 2, 3, 1000):
            bob.verdicts.receive("ada", Prepare("cleo", incarnation, round, 1))
    kept = {(each.incarnation, each.round) for each in bob.verdicts.records()}
    assert kept <= {(life, round) for life in (0, 1) for round in (0, 1, 2)}
