"""Keys of masks that a session publishes and waits for after a release was dropped."""

import pytest

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.interface.effects import Decided, Disclosed
from p2pfl.network.protocol.interface.requests import Decide, Disclose, Open
from p2pfl.network.protocol.wire.verdict_messages import (
    Halves,
    Release,
)
from sessions import NAMES, announced, arrived, arrives, met
from verdict_sessions import KEY, ThreeSessions


def test_a_peer_waits_for_the_keys_of_those_whose_models_it_mixes_and_asks_again():
    three = ThreeSessions("eve")
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
    three = ThreeSessions("eve")
    three.release("ada", "bob")
    three.decide("ada", "bob", masked=("bob",))
    three.decide("bob", "ada", masked=("ada",))
    assert three.answers["bob"] == [Decided(frozenset())]
    three.ask("bob", arrived("ada", Halves(0, {"eve": KEY}, ("eve",), 7)))
    assert three.sent[-1] == ("bob", Halves(0, {"eve": b""}, (), 7))


def test_keys_of_an_incarnation_that_has_not_released_are_refused():
    three = ThreeSessions("eve")
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
    three = ThreeSessions()
    three.release(*NAMES)
    for name in NAMES:
        three.decide(name, *(each for each in NAMES if each != name))
    before = len(three.sent)
    three.ask("bob", arrived("ada", Halves(0, {}, ("eve",), 7)))
    three.flush()
    assert three.sent[before:] == []  # an insider asks in vain
