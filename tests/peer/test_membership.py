import pytest

from p2pfl.errors import PeerError
from p2pfl.peer.membership import Membership
from p2pfl.wire.messages import Hello

FACTS = {"seed": "1", "learning.rate": "0.1"}


def hello(peer="bob", incarnation=5, status="up", facts=FACTS):
    return Hello(peer, incarnation, status, facts)


@pytest.fixture
def membership():
    return Membership(hello("ada", 10), frozenset({"bob", "eve"}))


def test_a_neighbour_that_says_hello_is_present(membership):
    assert membership.hear(hello())
    assert membership.present == {"bob"}
    assert membership.absent == ["eve"]


def test_the_same_hello_again_changes_nothing(membership):
    membership.hear(hello())
    assert not membership.hear(hello())


def test_a_neighbour_whose_experiment_differs_is_refused_with_the_difference(membership):
    with pytest.raises(PeerError, match=r'"bob".*learning.rate = 0.2 there and 0.1 here'):
        membership.hear(hello(facts=FACTS | {"learning.rate": "0.2"}))


def test_one_that_bears_our_name_and_came_first_is_an_error(membership):
    with pytest.raises(PeerError, match="choose another --name"):
        membership.hear(hello("ada", 9))


def test_one_that_bears_our_name_and_came_later_will_find_out_itself(membership):
    assert not membership.hear(hello("ada", 11))


def test_the_will_of_an_earlier_life_is_ignored(membership):
    membership.hear(hello(incarnation=5))
    assert not membership.hear(hello(incarnation=4, status="dead"))
    assert membership.present == {"bob"}


def test_the_will_of_this_life_ends_it(membership):
    membership.hear(hello(incarnation=5))
    assert membership.hear(hello(incarnation=5, status="dead"))
    assert membership.present == frozenset()


def test_a_goodbye_of_someone_never_met_is_ignored(membership):
    assert not membership.hear(hello(status="left"))


def test_a_stranger_is_ignored(membership):
    assert not membership.hear(hello("mallory"))


def test_a_neighbour_that_restarts_is_gone_for_this_run(membership):
    membership.hear(hello(incarnation=5))
    assert membership.hear(hello(incarnation=6))
    assert membership.present == frozenset()


def test_a_quorum_counts_those_that_came(membership):
    membership.hear(hello())
    assert membership.complete(quorum=0.5)
    assert not membership.complete(quorum=1.0)
