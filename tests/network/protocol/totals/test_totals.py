"""Totals through sessions: what is lost is asked for again, and who is lost ends the attempt for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.network.protocol.interface.effects import Convened, Fail, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.totals.early import PIECES
from p2pfl.network.protocol.totals.waits import AGAIN
from p2pfl.network.protocol.wire.messages import Announcement, Digest, Pulse
from p2pfl.network.protocol.wire.total_messages import Abort, Again, Subtotal, Total
from p2pfl.topology import complete, path, ring, spanning
from sessions import arrived
from totalling import PATIENCE, Swarm, contributions, convened, total_of


@given(connected())
def test_two_messages_a_peer_for_a_total_and_two_for_a_participant_set(graph):
    swarm = convened(graph)
    assert {*swarm.last().values()} == {Convened(graph.peers, 0)}
    before = swarm.sent.copy()
    for _ in range(2):
        for peer, values in contributions(graph).items():
            swarm.tell(peer, Contribute(values))
        swarm.carry()
        for answer in swarm.last().values():
            assert answer.values.tolist() == total_of(graph)
    tree = spanning(graph, among=graph.peers)
    for peer in graph.peers:
        messages = (peer in tree.parents) + bool(tree.children(peer))
        assert sum(count for (who, _), count in before.items() if who == peer) == messages
        assert sum(count for (who, _), count in (swarm.sent - before).items() if who == peer) == 2 * messages


@given(connected(most=8), st.integers(0, 60), st.data())
def test_whatever_is_lost_is_asked_for_again(graph, losses, data):
    swarm, left = Swarm(graph, patience=1000.0), [losses]

    def lose():
        lost = left[0] > 0 and data.draw(st.booleans())
        left[0] -= lost
        return lost

    for peer in data.draw(st.permutations(graph.peers)):
        swarm.tell(peer, Convene(1))
        swarm.carry(lose=lose)
    contributed, rounds = set(), 0
    while not all(isinstance(answer, Totalled) for answer in swarm.last().values()):
        for peer, values in contributions(graph).items():
            if peer not in contributed and isinstance(swarm.last()[peer], Convened):
                contributed.add(peer)
                swarm.tell(peer, Contribute(values))
        swarm.carry(lose=lose)
        swarm.later(AGAIN)
        swarm.carry(lose=lose)
        rounds += 1
        assert rounds < 200
    assert all(answer.values.tolist() == total_of(graph) for answer in swarm.last().values())


def test_a_session_names_the_neighbours_that_a_total_waits_for():
    graph = path(3)
    swarm = convened(graph)
    root = swarm.sessions["peer1"]
    assert root.missing == []
    swarm.tell("peer1", Contribute(contributions(graph)["peer1"]))
    assert root.missing == ["peer0", "peer2"]
    swarm.tell("peer0", Contribute(contributions(graph)["peer0"]))
    swarm.carry()
    assert root.missing == ["peer2"]


def test_who_contributes_long_before_the_others_is_waited_for_while_they_compute():
    swarm = convened(ring(5), outage=5 * PATIENCE)
    first, *others = ring(5).peers
    values = contributions(ring(5))
    swarm.tell(first, Contribute(values[first]))
    for _ in range(4):
        swarm.later(PATIENCE * 0.9)
        swarm.carry()
    for peer in others:
        swarm.tell(peer, Contribute(values[peer]))
    swarm.carry()
    assert all(answer.values.tolist() == total_of(ring(5)) for answer in swarm.last().values())


def test_a_peer_that_computes_is_waited_for_while_its_heartbeats_arrive_and_not_for_ever():
    graph = complete(3)
    slow, *others = graph.peers

    def waited(seconds):
        swarm = Swarm(graph, outage=20 * PATIENCE)
        for peer in graph.peers:
            swarm.tell(peer, Convene(1))
        swarm.carry()
        for peer in others:
            swarm.tell(peer, Contribute(contributions(graph)[peer]))
        for _ in range(round(seconds / 5)):
            swarm.later(5.0)
            swarm.carry()
        return swarm

    swarm = waited(19 * PATIENCE)
    assert all(isinstance(answer, Convened) for answer in swarm.last().values())
    swarm.tell(slow, Contribute(contributions(graph)[slow]))
    swarm.carry()
    assert all(answer.values.tolist() == total_of(graph) for answer in swarm.last().values())
    assert all(waited(20 * PATIENCE).last()[peer].lost == {slow} for peer in others)


def test_a_peer_without_heartbeats_is_lost_however_long_others_wait_for_one_that_computes():
    graph = complete(3)
    dead, *others = graph.peers
    swarm = Swarm(graph, outage=20 * PATIENCE)
    for peer in graph.peers:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    swarm.kill(dead)
    for peer in others:
        swarm.tell(peer, Contribute(contributions(graph)[peer]))
    swarm.later(PATIENCE)
    swarm.carry()
    assert all(swarm.last()[peer].lost == {dead} for peer in others)


@given(connected(least=2, most=9), st.booleans(), st.data())
def test_a_peer_that_dies_at_any_message_ends_the_totals_for_all_or_all_have_it(graph, noticed, data):
    dies, swarm = data.draw(st.sampled_from(graph.peers)), Swarm(graph)
    left = [data.draw(st.integers(0, 6 * len(graph.peers)))]

    def lose():
        left[0] -= 1
        if left[0] == 0:
            swarm.kill(dies, noticed=noticed)
        return False

    for peer in graph.peers:
        swarm.tell(peer, Convene(1))
        swarm.carry(lose=lose)
    for peer, values in contributions(graph).items():
        if isinstance(swarm.last().get(peer), Convened):
            swarm.tell(peer, Contribute(values))
            swarm.carry(lose=lose)
    swarm.kill(dies, noticed=noticed)
    for _ in range(40):
        swarm.later(1.0)
        swarm.carry()
        swarm.give_up()
    for peer, answers in swarm.answers.items():
        if peer in swarm.gone:
            assert dies in answers[-1].lost
        elif peer != dies:
            assert answers[-1].values.tolist() == total_of(graph)


def test_after_a_failed_attempt_the_others_begin_the_next_one_without_the_lost_peer():
    graph = ring(5)
    swarm = convened(graph)
    swarm.kill("peer2", noticed=True)
    here = [peer for peer in graph.peers if peer != "peer2"]
    values = contributions(graph)
    for peer in here:
        swarm.tell(peer, Contribute(values[peer]))
    swarm.carry()
    assert all(isinstance(answer, Unfinished) for answer in swarm.last().values())
    assert {answer.lost for answer in swarm.last().values()} == {frozenset({"peer2"})}
    for peer in here:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    assert {*swarm.last().values()} == {Convened(tuple(here), 1)}
    for peer in here:
        swarm.tell(peer, Contribute(values[peer]))
    swarm.carry()
    expected = sum(values[peer] for peer in here).tolist()
    assert all(answer.values.tolist() == expected for answer in swarm.last().values())


def test_a_neighbour_in_a_new_incarnation_ends_the_attempt_at_once():
    swarm = convened(ring(4))
    swarm.tell("peer0", Contribute(contributions(ring(4))["peer0"]))
    swarm.tell("peer0", arrived("peer1", Announcement("peer1", 2, "up"), state=True))
    assert swarm.last()["peer0"] == Unfinished(frozenset({"peer1"}))
    swarm.carry()
    swarm.tell("peer3", Contribute(contributions(ring(4))["peer3"]))
    assert swarm.last()["peer3"] == Unfinished(frozenset({"peer1"}), reporter="peer0")


def test_a_participant_that_is_restarted_between_two_pieces_ends_the_attempt_and_nothing_of_it_counts():
    graph = complete(4)
    root, child = "peer0", "peer1"
    swarm, values = convened(graph), contributions(graph)
    for session in swarm.sessions.values():
        session.totals.piece = 8  # each number is a piece
    for peer in graph.peers:
        swarm.tell(peer, Contribute(values[peer]))
    pieces = [each for each in swarm.queue if each[:2] == (child, root)]
    assert len(pieces) == 4
    swarm.queue.clear()
    for sender, to, message in pieces[:2]:
        swarm.tell(to, arrived(sender, message))
    swarm.tell(root, arrived(child, Announcement(child, 2, "up"), state=True))
    assert swarm.last()[root] == Unfinished(frozenset({child}))
    for sender, to, message in pieces[2:]:
        swarm.tell(to, arrived(sender, message))
    swarm.kill(child, noticed=True)
    swarm.carry()
    others = [peer for peer in graph.peers if peer != child]
    for peer in others:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    for peer in others:
        assert swarm.last()[peer] == Convened(tuple(others), 1)
        swarm.tell(peer, Contribute(values[peer]))
    swarm.carry()
    expected = sum(values[peer] for peer in others).tolist()
    assert all(answer.values.tolist() == expected for answer in swarm.last().values())


def test_a_round_is_taken_once_and_no_slot_serves_two_totals():
    swarm = convened(path(3))
    for round in (1, 0):
        swarm.tell("peer0", Convene(round))
        assert "take them in one transaction" in str(swarm.answers["peer0"][-1].error)


def test_neighbours_that_were_given_different_totals_end_the_run_and_name_each_other():
    graph = complete(3)
    swarm = convened(graph)
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    swarm.carry()
    same = swarm.sessions["peer1"].shared.total
    swarm.tell("peer0", arrived("peer1", Pulse(1, 0, 0, 0, first=0, total=same)))
    assert not isinstance(swarm.answers["peer0"][-1], Fail)
    other = Digest(same.round, same.attempt, same.number, bytes(32))
    swarm.tell("peer0", arrived("peer1", Pulse(1, 0, 0, 0, first=0, total=other)))
    assert "peer1 and peer0 hold different totals 0 of round 0" in str(swarm.answers["peer0"][-1].error)


@pytest.mark.parametrize(
    "wrong",
    [
        Abort(3, 1, ["peer2"]),
        Abort(1, 1000, []),
        Abort(1, 0, ["eve"]),
        Subtotal(1, 0, 0, 4, 32, memoryview(bytes(32))),
    ],
)
def test_what_cannot_be_is_refused_and_counted(wrong):
    swarm = convened(complete(4))
    values = contributions(complete(4))
    swarm.tell("peer0", Contribute(values["peer0"]))
    session = swarm.sessions["peer0"]
    before = sum(session.shared.refused.values())
    swarm.tell("peer0", arrived("peer1", wrong))
    assert sum(session.shared.refused.values()) == before + 1
    for peer in complete(4).peers[1:]:
        swarm.tell(peer, Contribute(values[peer]))
    swarm.carry()
    assert swarm.last()["peer0"].values.tolist() == total_of(complete(4))


def test_what_comes_early_is_held_of_participants_so_many_pieces_and_refused_if_the_sender_has_no_part():
    swarm = convened(path(3))  # peer1 is the root, with two children
    root, leaf = swarm.sessions["peer1"], swarm.sessions["peer0"]
    for number in range(3 * PIECES):
        swarm.tell("peer1", arrived("peer0", Subtotal(1, 0, 0, 8 * number, 2**30, memoryview(bytes(8)))))
        swarm.tell("peer0", arrived("peer1", Subtotal(1, 0, 0, 8 * number, 2**30, memoryview(bytes(8)))))
    assert len(root.totals._early.held["peer0"]) == PIECES
    assert len(leaf.totals._early.held["peer1"]) == PIECES  # the total may be one to this peer
    swarm.tell("peer0", Contribute(contributions(path(3))["peer0"]))
    assert leaf.totals._early.held == {}
    assert leaf.shared.refused["peer1: not a message"] == PIECES  # the root is no child of a leaf
    swarm.tell("peer1", arrived("peer2", Subtotal(1, 0, 0, 0, 32, memoryview(b""))))
    assert "peer2" not in root.totals._early.held
    assert root.shared.refused["peer2: not a message"] == 1


def test_a_neighbour_that_asks_again_and_again_is_answered_once_a_second():
    graph = path(2)
    swarm = convened(graph)
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    swarm.carry()
    before = swarm.sent["peer0", Total.__name__]
    for _ in range(50):
        swarm.tell("peer0", arrived("peer1", Again(1, 0, 0, 0)))
    assert swarm.sent["peer0", Total.__name__] == before + 1
    swarm.now += AGAIN / 2
    swarm.tell("peer0", arrived("peer1", Again(1, 0, 0, 0)))
    assert swarm.sent["peer0", Total.__name__] == before + 2


def test_too_much_of_a_child_is_not_held_and_asked_for_again(monkeypatch):
    monkeypatch.setattr("p2pfl.network.protocol.totals.early.EARLY", 8)
    swarm = convened(path(2))
    values = contributions(path(2))
    swarm.tell("peer1", Contribute(values["peer1"]))
    swarm.carry()
    swarm.tell("peer0", Contribute(values["peer0"]))
    swarm.carry()
    assert swarm.sessions["peer0"].totals.lacking == {"peer1"}
    swarm.later(AGAIN)
    swarm.carry()
    assert all(answer.values.tolist() == total_of(path(2)) for answer in swarm.last().values())
    assert swarm.sent["peer0", Again.__name__] == 1


def completed_at_the_root():
    """Return a swarm in which the root has the total, the name of the root, and its children."""
    graph = complete(3)
    tree, swarm = spanning(graph, among=graph.peers), convened(graph)
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    swarm.carry()
    return swarm, tree.root, tree.children(tree.root)


def heard(swarm, peer, child, *, attempt):
    found = Digest(1, attempt, 0, swarm.sessions[peer].shared.total.digest if attempt == 0 else bytes(32))
    swarm.tell(peer, arrived(child, Pulse(1, 0, 0, 0, first=0, total=found)))


def test_a_total_is_confirmed_once_the_heartbeats_of_all_children_include_it():
    swarm, root, children = completed_at_the_root()
    totals = swarm.sessions[root].totals
    assert totals.unconfirmed == {*children}
    first, second = children
    heard(swarm, root, first, attempt=0)
    assert totals.unconfirmed == {second}
    heard(swarm, root, second, attempt=0)
    assert not totals.unconfirmed
    assert not totals.apart


def test_nobody_waits_for_the_confirmation_of_a_child_that_has_left_or_of_a_leaf():
    swarm, root, (first, second) = completed_at_the_root()
    assert not swarm.sessions[first].totals.unconfirmed
    swarm.kill(second, noticed=True)
    assert swarm.sessions[root].totals.unconfirmed == {first}


def test_a_heartbeat_with_a_later_attempt_shows_that_the_others_went_on_without_this_peer():
    swarm, root, (first, _) = completed_at_the_root()
    heard(swarm, root, first, attempt=1)
    assert swarm.sessions[root].totals.apart == {first}
    assert not swarm.sessions[root].totals.unconfirmed
