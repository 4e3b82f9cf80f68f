"""Announcements of strangers where no roster says whose key is whose."""

import pytest

from p2pfl.core.errors import PeerError
from p2pfl.network.peer.joining.resumption import strangers
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.refusals import differences, text
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import FirstUse, Identity, SeededSource
from p2pfl.results.notices.kinds import NameShared

FACTS = {"seed": "1"}
MALLORY = Identity.generate(SeededSource(9), peer="mallory")
BOB = Identity.generate(SeededSource(7), peer="bob")


def announced(incarnation, *, identity=BOB, status="up", **options):
    return Announcement("bob", incarnation, status, FACTS, **options).sign(identity, swarm="swarm")


@pytest.fixture
def trusting():
    return Membership(Announcement("ada", 10, "up", FACTS), frozenset({"bob", "eve"}), "swarm", FirstUse())


def test_a_strangers_number_keeps_nobody_out_once_the_stranger_has_not_shown_that_it_lives(trusting):
    trusting.receive(announced(2**62, identity=MALLORY))
    assert not trusting.receive(announced(5))
    trusting.unanswered.add("bob")
    assert trusting.receive(announced(5))
    assert trusting.up["bob"].identity == BOB.public
    trusting.prove("bob")
    assert not trusting.receive(announced(2**62, identity=MALLORY))
    assert trusting.present == {"bob"}


def test_what_was_repeated_of_an_earlier_start_of_the_same_key_stays_behind(trusting):
    trusting.receive(announced(6))
    trusting.unanswered.add("bob")
    assert not trusting.receive(announced(5))


@pytest.mark.parametrize("status", ["left", "dead"])
def test_nobody_says_goodbye_for_a_peer_under_another_key(trusting, status):
    trusting.receive(announced(5))
    assert not trusting.receive(announced(5, identity=MALLORY, status=status))
    assert "bob" in trusting.greeted


def test_nobody_brings_a_lost_peer_back_under_another_key(trusting):
    trusting.receive(announced(5))
    trusting.receive(announced(5, status="dead"))
    assert not trusting.receive(announced(5, identity=MALLORY, turn=1))


def answering(identity):
    return Announcement("ada", 9, "up", FACTS, b"k" * 32, answers=b"a" * 32).sign(identity, swarm="swarm")


def named(seen):
    me = Announcement("ada", 10, "up", FACTS, b"a" * 32).sign(IDENTITY, swarm="swarm")
    return Membership(me, frozenset({"bob", "eve"}), "swarm", FirstUse(seen))


IDENTITY = Identity.generate(SeededSource(7), peer="ada")


def test_who_answers_to_the_name_of_a_peer_that_neighbours_know_is_reported_once_and_keeps_it_from_nothing():
    mine = named({"bob": BOB.public})
    assert not mine.receive(answering(MALLORY))
    assert strangers(mine) == [NameShared(peer="ada", key=MALLORY.fingerprint, own=IDENTITY.fingerprint)]
    assert strangers(mine) == []


@pytest.mark.parametrize(
    ("seen", "identity"), [({}, MALLORY), ({"bob": BOB.public}, IDENTITY)], ids=["nobody knows us", "the same key"]
)
def test_a_name_that_is_in_use_is_an_error_where_neighbours_could_not_tell_the_two_apart(seen, identity):
    with pytest.raises(PeerError, match='peer name "ada" is already in use on this broker; stop the other peer or'):
        named(seen).receive(answering(identity))


def test_what_a_neighbour_says_of_its_experiment_is_shown_short_and_without_control_characters():
    theirs = {"seed": "\x1b[2J\n" + "9" * 10**6, "\x1b]0;": "1"}
    told = text(differences("bob", theirs=theirs, ours={"seed": "1"}))
    assert told.isprintable()
    assert len(told) < 300
    assert "\\x1b[2J\\n999" in told
