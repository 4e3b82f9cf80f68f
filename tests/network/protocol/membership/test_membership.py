from typing import get_args

import msgspec
import pytest

from p2pfl.core.errors import PeerError
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.refusals import NotSigned, NotTrusted, OtherExperiment
from p2pfl.network.protocol.wire.messages import Announcement, Status
from p2pfl.privacy.keys import FirstUse, Identity, Roster, SeededSource

FACTS = {"seed": "1", "learning.rate": "0.1"}


def announcement(peer="bob", incarnation=5, status="up", facts=FACTS):
    return Announcement(peer, incarnation, status, facts)


@pytest.fixture
def membership():
    return Membership(announcement("ada", 10), frozenset({"bob", "eve"}))


def test_a_neighbour_that_says_hello_is_present(membership):
    assert membership.receive(announcement())
    assert membership.present == {"bob"}
    assert membership.absent == ["eve"]


def test_the_same_hello_again_changes_nothing(membership):
    membership.receive(announcement())
    assert not membership.receive(announcement())


def test_a_neighbour_whose_experiment_differs_is_refused_with_the_difference(membership):
    with pytest.raises(PeerError, match=r'"bob".*learning.rate = 0.2 there and 0.1 here'):
        membership.receive(announcement(facts=FACTS | {"learning.rate": "0.2"}))


def test_one_that_bears_our_name_and_came_first_is_an_error(membership):
    with pytest.raises(PeerError, match="choose another --name"):
        membership.receive(announcement("ada", 9))


def test_one_that_bears_our_name_and_came_later_will_find_out_itself(membership):
    assert not membership.receive(announcement("ada", 11))


def test_the_will_of_an_earlier_life_is_ignored(membership):
    membership.receive(announcement(incarnation=5))
    assert not membership.receive(announcement(incarnation=4, status="dead"))
    assert membership.present == {"bob"}


def test_the_will_of_this_life_ends_it(membership):
    membership.receive(announcement(incarnation=5))
    assert membership.receive(announcement(incarnation=5, status="dead"))
    assert membership.present == frozenset()


def test_a_goodbye_of_someone_never_met_is_ignored(membership):
    assert not membership.receive(announcement(status="left"))


def test_a_stranger_is_ignored(membership):
    assert not membership.receive(announcement("mallory"))


def test_a_neighbour_that_restarts_before_it_was_missed_is_awaited_until_it_says_where_it_goes_on(membership):
    membership.receive(announcement(incarnation=5))
    assert membership.receive(announcement(incarnation=6))
    assert membership.present == membership.returning == {"bob"}
    assert membership.receive(announcement(incarnation=6, status="dead"))
    assert not membership.returning


def test_a_neighbour_that_restarts_after_it_was_missed_is_not_awaited(membership):
    membership.receive(announcement(incarnation=5))
    membership.receive(announcement(incarnation=5, status="dead"))
    assert membership.receive(announcement(incarnation=6))
    assert membership.present == {"bob"}
    assert not membership.returning


def test_one_that_was_excluded_may_not_come_again(membership):
    membership.receive(announcement(incarnation=5))
    membership.gone.add("bob")
    membership.excluded.add("bob")
    assert not membership.receive(announcement(incarnation=6))
    assert membership.present == frozenset()


def test_a_quorum_counts_those_that_came(membership):
    membership.receive(announcement())
    assert membership.complete(quorum=0.5)
    assert not membership.complete(quorum=1.0)


def identity(name):
    return Identity.generate(SeededSource(7), peer=name)


KEYS = {name: identity(name) for name in ("ada", "bob", "eve")}
ROSTER = Roster({name: key.public for name, key in KEYS.items()})


def signed(peer="bob", incarnation=5, status="up", *, by=None, swarm="swarm", **fields):
    said = Announcement(peer, incarnation, status, fields.pop("facts", FACTS), key=b"k" * 32, **fields)
    return said.sign(KEYS[by or peer], swarm=swarm)


def trusting(trust):
    return Membership(Announcement("ada", 10, "up", FACTS, key=b"a" * 32), frozenset({"bob", "eve"}), "swarm", trust)


@pytest.fixture(params=["roster", "first use"])
def trusted(request):
    return trusting(ROSTER if request.param == "roster" else FirstUse({"bob": KEYS["bob"].public}))


def test_a_signed_hello_counts_once_its_peer_has_shown_that_it_lives(trusted):
    assert trusted.receive(signed())
    assert trusted.greeted == {"bob"}
    assert trusted.present == frozenset()
    trusted.prove("bob")
    assert trusted.present == {"bob"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (announcement(), NotSigned),
        (signed(swarm="another"), NotSigned),
        (signed(by="eve"), NotTrusted),
        (msgspec.structs.replace(signed(), key=b"m" * 32), NotSigned),
        (msgspec.structs.replace(signed(), incarnation=6), NotSigned),
        (msgspec.structs.replace(signed(), facts={}), NotSigned),
        (msgspec.structs.replace(signed(), identity=KEYS["eve"].public), NotSigned),
        (msgspec.structs.replace(signed(status="dead"), status="up"), NotSigned),
    ],
    ids=["unsigned", "another swarm", "another key", "key", "incarnation", "facts", "identity", "status"],
)
def test_a_hello_that_the_peer_did_not_sign_is_refused_with_the_reason(trusted, said, why):
    assert not trusted.receive(said)
    assert trusted.greeted == frozenset()
    assert isinstance(trusted.refused["bob"], why)


def forged(status):
    """Return announcements of bob's present incarnation that bob did not make, by what is wrong with them."""
    own = signed(status=status)
    return {
        "unsigned": announcement(status=status),
        "unsigned, with the identity": msgspec.structs.replace(own, signature=b""),
        "signed by a neighbour": signed(status=status, by="eve"),
        "signed by a neighbour, with the identity": msgspec.structs.replace(
            signed(status=status, by="eve"), identity=KEYS["bob"].public
        ),
        "of another swarm": signed(status=status, swarm="another"),
        "signed as up": msgspec.structs.replace(signed(), status=status),
        "said to be done": msgspec.structs.replace(own, done=True),
    }


@pytest.mark.parametrize("met", [True, False], ids=["met", "not met"])
@pytest.mark.parametrize("status", [each for each in get_args(Status) if each != "up"])
@pytest.mark.parametrize("forgery", forged("dead"))
def test_nobody_but_a_peer_itself_can_end_it(trusted, status, forgery, met):
    assert trusted.receive(signed())
    if met:
        trusted.prove("bob")
    assert not trusted.receive(forged(status)[forgery])
    assert trusted.greeted == {"bob"}
    assert not trusted.gone | trusted.lost | trusted.done
    assert isinstance(trusted.refused["bob"], NotSigned | NotTrusted)
    assert trusted.receive(signed(status=status))  # its own counts
    assert trusted.gone == {"bob"}


def test_what_was_refused_is_forgotten_once_the_right_one_comes(trusted):
    trusted.receive(announcement())
    trusted.receive(signed())
    assert trusted.refused == {}


def test_a_revoked_key_is_refused_with_the_reason():
    membership = trusting(ROSTER.revoke(KEYS["bob"].public, reason="lost laptop"))
    assert not membership.receive(signed())
    assert "lost laptop" in membership.refused["bob"].message


@pytest.mark.parametrize("status", [each for each in get_args(Status) if each != "up"])
def test_on_first_use_nobody_with_another_key_ends_a_peer_that_was_not_met_yet(status):
    membership = trusting(FirstUse())
    assert membership.receive(signed())
    assert not membership.receive(signed(status=status, by="eve"))
    assert membership.greeted == {"bob"}
    assert not membership.gone | membership.lost | membership.done
    assert membership.receive(signed(status=status))
    assert membership.gone == {"bob"}


def test_on_first_use_the_second_key_of_a_name_that_was_met_is_refused():
    membership = trusting(FirstUse())
    assert membership.receive(signed("eve"))
    membership.prove("eve")
    assert not membership.receive(signed("eve", 6, by="bob"))
    assert isinstance(membership.refused["eve"], NotTrusted)


@pytest.mark.parametrize("status", ["up", "dead", "left"])
def test_on_first_use_the_words_of_a_life_that_nobody_met_give_way_to_a_later_one_with_another_key(status):
    membership = trusting(trust := FirstUse())
    membership.receive(signed("bob", 4, by="eve", status=status))  # the broker keeps it from a run that was killed
    assert trust.seen == {}
    assert membership.receive(signed("bob", 5))
    membership.prove("bob")
    assert membership.present == {"bob"}
    assert trust.seen == {"bob": KEYS["bob"].public}
    assert not membership.receive(signed("bob", 6, by="eve"))


def test_on_first_use_nobody_is_met_under_two_names():
    membership = trusting(FirstUse())
    for name in ("bob", "eve"):
        assert membership.receive(signed(name, by="eve"))
    for name in ("bob", "eve"):
        membership.prove(name)
    assert membership.present == {"bob"}
    assert isinstance(membership.refused["eve"], NotTrusted)


def test_a_repeated_hello_of_an_earlier_life_gives_way_to_the_present_one(trusted):
    trusted.receive(signed(incarnation=4))
    trusted.receive(signed(incarnation=4, status="dead"))
    assert trusted.receive(signed(incarnation=5))
    trusted.prove("bob")
    assert trusted.present == {"bob"}
    for status in ("up", "left", "dead"):
        assert not trusted.receive(signed(incarnation=4, status=status))
    assert trusted.present == {"bob"}


def test_a_repeated_hello_of_another_experiment_ends_nobodys_run(trusted):
    assert trusted.receive(signed(incarnation=4, facts=FACTS | {"seed": "2"}))
    assert trusted.refused["bob"] == OtherExperiment("bob", (("seed", "2", "1"),))
    trusted.receive(signed(incarnation=5))
    trusted.prove("bob")
    assert trusted.refused == {}


def test_a_neighbour_that_lives_and_means_another_experiment_is_an_error(trusted):
    trusted.receive(signed(facts=FACTS | {"seed": "2"}))
    with pytest.raises(PeerError, match="seed = 2 there and 1 here"):
        trusted.prove("bob")


def test_a_namesake_that_answers_us_is_an_error_until_learning_has_begun():
    membership = trusting(ROSTER)
    answer = signed("ada", 9, answers=b"a" * 32)
    with pytest.raises(PeerError, match="choose another --name"):
        membership.receive(answer)
    membership.begun = True
    assert not membership.receive(answer)


def test_a_repeated_hello_of_our_own_earlier_life_is_no_namesake(trusted):
    assert not trusted.receive(signed("ada", 9))
    assert not trusted.receive(signed("ada", 9, answers=b"of another life" + bytes(17)))


def test_a_forged_answer_of_a_namesake_is_refused_under_a_roster():
    membership = trusting(ROSTER)
    assert not membership.receive(signed("ada", 9, by="eve", answers=b"a" * 32))


def test_what_a_stranger_signs_for_itself_is_ignored():
    membership = trusting(trust := FirstUse())
    said = Announcement("mallory", 3, "up", FACTS).sign(KEYS["eve"], swarm="swarm")
    assert not membership.receive(said)
    assert trust.seen == {}
    assert membership.refused == {}


def returned(turn, **fields):
    return Announcement("bob", fields.pop("incarnation", 5), "up", FACTS, turn=turn, **fields)


def test_a_neighbour_that_was_taken_for_dead_comes_back_in_the_same_life(membership):
    membership.receive(announcement())
    membership.receive(announcement(status="dead"))
    assert not membership.receive(announcement())  # retained, or repeated by whoever heard it
    assert membership.receive(returned(1))
    assert membership.present == {"bob"}
    membership.receive(announcement(status="dead"))
    assert not membership.receive(returned(1))
    assert membership.receive(returned(2))


def test_a_return_that_overtakes_the_will_is_followed_by_another(membership):
    membership.receive(announcement())
    assert not membership.receive(returned(1))
    assert membership.receive(announcement(status="dead"))
    assert not membership.receive(returned(1))
    assert membership.receive(returned(2))


@pytest.mark.parametrize("way", ["left", "excluded"])
def test_who_left_or_was_excluded_does_not_come_back(membership, way):
    membership.receive(announcement())
    membership.receive(announcement(status="dead"))
    if way == "left":
        membership.receive(returned(1))
        membership.receive(announcement(status="left"))
    else:
        membership.exclude("bob")
    assert not membership.receive(returned(7))
    assert membership.present == frozenset()


def test_who_was_lost_and_restarted_comes_back_in_the_new_life_alone(membership):
    membership.receive(announcement())
    membership.receive(announcement(status="dead"))
    assert membership.receive(announcement(incarnation=6))
    assert not membership.receive(returned(7))
    assert membership.up["bob"].incarnation == 6
    membership.receive(announcement(incarnation=6, status="dead"))
    assert not membership.receive(returned(7))
    assert membership.receive(returned(1, incarnation=6))


def test_a_return_under_another_key_is_none(membership):
    membership.receive(announcement())
    membership.receive(announcement(status="dead"))
    assert not membership.receive(returned(1, key=b"k" * 32))


def test_a_return_is_signed(trusted):
    trusted.receive(signed())
    trusted.prove("bob")
    trusted.receive(signed(status="dead"))
    forged = msgspec.structs.replace(signed(), turn=1)
    assert not trusted.receive(forged)
    assert trusted.receive(signed(turn=1))
    assert trusted.present == {"bob"}


def test_goodbyes_of_neighbours_that_nobody_met_do_not_end_a_run():
    """A broker can replay the announcements and goodbyes of an earlier run; it cannot answer for those peers."""
    membership = trusting(FirstUse())
    for name in membership.neighbours:
        membership.receive(signed(name))
        membership.receive(signed(name, status="left", done=True))
    assert not membership.over
    assert membership.finished == frozenset()


def test_goodbyes_of_all_neighbours_that_were_met_end_a_run():
    membership = trusting(FirstUse())
    for name in membership.neighbours:
        membership.receive(signed(name))
        membership.prove(name)
        membership.receive(signed(name, status="left", done=True))
    assert membership.over
    assert membership.finished == membership.neighbours
