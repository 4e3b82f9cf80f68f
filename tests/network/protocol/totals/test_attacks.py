"""Totals beside a neighbour with valid keys that lies: it may end an attempt, and nothing else."""

import numpy as np
import pytest

from p2pfl.network.protocol.interface.effects import Convened, Fail, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.total_messages import Abort, Here, Subtotal, Total
from p2pfl.topology import complete, path, ring, spanning
from sessions import arrived
from totalling import PATIENCE, Swarm, contributions, convened, total_of


def root_and_child(graph):
    tree = spanning(graph, among=graph.peers)
    return tree.root, tree.children(tree.root)[0]


def test_a_false_piece_that_came_early_is_refused_when_it_is_used_and_ends_nobody():
    graph = complete(4)
    swarm, (root, child) = convened(graph), root_and_child(graph)
    swarm.tell(root, arrived(child, Subtotal(1, 0, 0, 4, 32, memoryview(b"12345678"))))
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    swarm.carry()
    assert swarm.sessions[root].shared.refused[f"{child}: not a message"] == 1
    assert all(answer.values.tolist() == total_of(graph) for answer in swarm.last().values())


def test_a_false_list_of_participants_that_came_early_is_refused_when_it_is_used_and_ends_nobody():
    graph = complete(4)
    swarm, (root, child) = Swarm(graph), root_and_child(graph)
    swarm.tell(root, arrived(child, Here(1, 0, {})))
    for peer in graph.peers:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    assert swarm.sessions[root].shared.refused[f"{child}: not a message"] == 1
    assert {*swarm.last().values()} == {Convened(graph.peers, 0)}


@pytest.mark.parametrize("peers", [3, 4, 5])
def test_reports_of_failures_in_two_rounds_come_to_rest(peers):
    swarm = convened(complete(peers))
    insider = swarm.graph.peers[-1]
    for peer in swarm.graph.peers[:-1]:
        for abort in (Abort(1, 0, []), Abort(2, 0, []), Abort(1, 0, [])):
            swarm.tell(peer, arrived(insider, abort))
    swarm.kill(insider)
    before = sum(swarm.sent.values())

    def bounded():
        assert sum(swarm.sent.values()) - before <= 2 * peers**2
        return False

    swarm.carry(lose=bounded)


def test_a_report_about_a_later_round_neither_spreads_nor_ends_the_present_one():
    graph = complete(4)
    swarm = convened(graph)
    before = sum(swarm.sent.values())
    swarm.tell("peer1", arrived("peer3", Abort(2, 0, ["peer2"])))
    assert sum(swarm.sent.values()) == before
    assert swarm.sessions["peer1"].totals.lost == set()
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    swarm.carry()
    assert all(isinstance(answer, Totalled) for answer in swarm.last().values())
    swarm.tell("peer1", Convene(2))
    assert swarm.last()["peer1"] == Unfinished(frozenset({"peer2"}), reporter="peer3")  # and says whose word that is


def test_a_report_about_an_attempt_far_ahead_is_refused():
    swarm = convened(ring(5))
    swarm.tell("peer0", arrived("peer4", Abort(1, 10, [])))
    assert swarm.sessions["peer0"].shared.refused["peer4: not a message"] == 1
    swarm.tell("peer0", arrived("peer4", Abort(1, 0, [])))
    swarm.tell("peer0", Convene(1))
    assert swarm.sessions["peer0"].totals._at == (1, 1)


def test_a_report_before_the_first_total_excludes_nobody_elsewhere():
    graph = complete(5)
    swarm = Swarm(graph)
    swarm.tell("peer0", arrived("peer4", Abort(0, 0, ["peer1"])))
    swarm.carry()
    assert all(session.totals.lost == set() for session in swarm.sessions.values())


def test_a_participant_that_names_a_false_incarnation_of_itself_is_refused_by_who_knows_it():
    graph = ring(6)
    tree = spanning(graph, among=graph.peers)
    insider = [peer for peer in graph.peers if not tree.children(peer)][-1]
    swarm = Swarm(graph)
    parent = tree.parent(insider)
    swarm.tell(parent, Convene(1))
    swarm.tell(parent, arrived(insider, Here(1, 0, {insider: bytes(16)})))
    assert swarm.sessions[parent].shared.refused[f"{insider}: not a message"] == 1
    assert insider in swarm.sessions[parent].totals.lacking


def test_a_participant_that_was_restarted_before_the_set_arrives_ends_the_attempt():
    """Masks would name its new incarnation at one peer and its old one at the others, and stay in the total."""
    graph = complete(4)
    tree = spanning(graph, among=graph.peers)
    late, restarted = tree.children(tree.root)[:2]
    swarm = Swarm(graph)
    for peer in graph.peers:
        swarm.tell(peer, Convene(1))
    held = []
    while swarm.queue:
        sender, to, message = swarm.queue.popleft()
        if to == late:
            held.append((sender, message))
        else:
            swarm.tell(to, arrived(sender, message))
    swarm.tell(late, arrived(restarted, Announcement(restarted, 2, "up"), state=True))
    for sender, message in held:
        swarm.tell(late, arrived(sender, message))
    assert swarm.last()[late] == Unfinished(frozenset({restarted}))


def test_a_participant_that_was_restarted_between_two_totals_ends_the_attempt_before_anything_leaves():
    swarm = convened(complete(4))
    swarm.tell("peer0", arrived("peer1", Announcement("peer1", 2, "up"), state=True))
    before = swarm.sent["peer0", "Subtotal"]
    swarm.tell("peer0", Contribute(contributions(complete(4))["peer0"]))
    assert swarm.last()["peer0"] == Unfinished(frozenset({"peer1"}))
    assert swarm.sent["peer0", "Subtotal"] == before


def test_a_total_that_does_not_match_its_digest_is_requested_again_and_never_delivered():
    graph = path(3)
    swarm = convened(graph)
    for peer, values in contributions(graph).items():
        swarm.tell(peer, Contribute(values))
    false = memoryview(np.full(4, 666, np.uint64).tobytes())
    swarm.tell("peer0", arrived("peer1", Total(1, 0, 0, 0, 32, bytes(32), false)))
    assert isinstance(swarm.last()["peer0"], Convened)
    assert swarm.sessions["peer0"].shared.refused["peer1: not a message"] == 1
    swarm.carry()
    swarm.later(PATIENCE / 4)
    swarm.carry()
    assert swarm.last()["peer0"].values.tolist() == total_of(graph)


def test_nothing_that_a_neighbour_sends_fails_a_session():
    swarm = convened(complete(4))
    for message in (Abort(1, 0, []), Abort(2, 0, []), Abort(1, 1, []), Here(2, 0, {}), Here(1, 0, {})):
        swarm.tell("peer0", arrived("peer1", message))
    swarm.tell("peer0", Convene(1))
    assert not any(isinstance(answer, Fail) for answer in swarm.answers["peer0"])
