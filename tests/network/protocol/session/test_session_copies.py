"""Copies of releases: an owner that sends several, and members that lack the one that counts."""

import numpy as np
import pytest
import torch

from p2pfl.network.protocol.interface.effects import Decided, WakeAt
from p2pfl.network.protocol.interface.events import Tick
from p2pfl.network.protocol.wire.messages import Account, Chunk, FlowStatement
from p2pfl.network.protocol.wire.verdict_messages import (
    Copy,
    Prepare,
    Wanted,
)
from p2pfl.network.protocol.wire.wire_rows import row_bytes
from sessions import LENGTH, arrived, arrives
from verdict_sessions import FourSessions


def mixing(square, name, *applied):
    """Open the gossip step of a session, and mix the models of others, by the value of their numbers."""
    ledgers = square.sessions[name].ledgers
    ledgers.open((0, 0), np.zeros(LENGTH, np.float32), weights=dict.fromkeys(square.others(name), 0.25), chain=0)
    return sum(ledgers.apply(peer, (0, 0), np.full(LENGTH, value, np.float32)) for peer, value in applied)


@pytest.mark.parametrize("sent", [(2.0,), (1.0, 2.0), (2.0, 1.0), ()], ids=["other", "both", "both late", "none"])
def test_an_owner_that_sends_different_copies_ends_nobody_and_all_mix_the_one_that_counts(sent):
    """The owner sends one copy to two of the others, and to the third another one, both, or none."""
    square = FourSessions("ada")
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
    arrived_late = square.sessions["eve"].ledgers.late_flows()
    assert (mixed + (0 if arrived_late is None else arrived_late)).tolist() == [0.75] * LENGTH
    accused = {name for name in square.others("ada") if "ada" in square.sessions[name].membership.excluded}
    assert accused == ({*square.others("ada")} if 2.0 in sent else set())


def test_a_copy_of_a_dropped_release_that_arrives_late_is_refused():
    square = FourSessions("ada")
    square.release("bob", "dan", "eve")
    mixing(square, "eve", ("bob", 1.0), ("dan", 1.0))
    for name in square.others("ada"):
        square.decide(name, *{*square.others(name)} - {"ada"})
    square.wait(1.0)
    assert square.answers["eve"] == [Decided(frozenset({"ada"}))]
    for event in arrives("ada", value=2.0, voted=True):
        square.ask("eve", event)
    assert square.sessions["eve"].ledgers.late_flows() is None
    assert "ada" not in square.sessions["eve"].ledgers.flows.applied_weights((0, 0))


def test_an_owner_that_sends_each_of_the_others_another_copy_is_excluded_and_its_release_dropped():
    square = FourSessions("ada")
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
    square = FourSessions("ada")
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
    square = FourSessions("ada", given={"length": 4000, "row_bytes": row_bytes(4000, torch.float32)})
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
    assert ledgers.late_flows().tolist() == [0.25] * 4000


def of_dan(message):
    return isinstance(message, Prepare) and message.subject.peer == "dan"


def test_a_peer_does_not_wake_at_once_for_a_copy_that_it_has_requested_and_no_longer_lacks():
    """Eve requests Ada's release, which then arrives from Ada; the verdict on Dan's is still open."""
    square = FourSessions("ada")
    square.release("bob", "eve")
    square.drop = lambda message: isinstance(message, Chunk | Copy) or of_dan(message)
    square.release("dan")
    for name in ("bob", "dan"):
        for event in arrives("ada", value=1.0, voted=True):
            square.ask(name, event)
    for name, held in (("bob", {"ada", "eve"}), ("dan", {"ada", "bob", "eve"}), ("eve", {"bob"})):
        square.decide(name, *held)
    for _ in range(4):
        square.wait(1.0)
    assert any(name == "eve" and isinstance(message, Wanted) for name, message in square.sent)
    for event in arrives("ada", value=1.0, voted=True):
        square.ask("eve", event)
    square.wait(1.5)
    eve = square.sessions["eve"]
    assert eve.verdicts.waits == {"dan"}
    effects = eve.handle(Tick(), now=square.now)
    assert all(effect.when > square.now for effect in effects if isinstance(effect, WakeAt))


@pytest.mark.parametrize("early", [True, False], ids=["before the decision", "during it"])
def test_an_owner_that_states_that_it_mixes_no_model_of_a_peer_does_not_keep_its_own_out_of_that_peers_average(early):
    """Such a statement takes a model back, except one of a round on which all decide."""
    square = FourSessions("ada")
    square.release("bob", "dan", "eve")
    for name in square.others("ada"):
        for event in arrives("ada", value=1.0, voted=True):
            square.ask(name, event)
    mixed = mixing(square, "eve", ("bob", 1.0), ("dan", 1.0), ("ada", 1.0))
    statement = FlowStatement((0, 0), (1, 0), (), (), (0, 0))
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
    assert "ada" in ledgers.flows.applied_weights((0, 0))
