"""Deadlines of totals: for peers that compute, that wait themselves, and that only say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.network.protocol.interface.effects import Convened, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.totals.waits import Waits
from p2pfl.topology import complete, path, spanning
from totalling import PATIENCE, Swarm, contributions, convened, total_of

OUTAGE = 6 * PATIENCE


def lasts(swarm, seconds, *, until=lambda: False):
    """Let seconds pass, with heartbeats, until something holds; return whether it does."""
    for _ in range(round(seconds)):
        if until():
            break
        swarm.later(1.0)
        swarm.carry()
    return until()


def contribute(swarm, *peers):
    for peer in peers:
        swarm.tell(peer, Contribute(contributions(swarm.graph)[peer]))
    swarm.carry()


def blamed(swarm):
    return {peer: answer.lost for peer, answer in swarm.last().items() if isinstance(answer, Unfinished)}


@given(connected(least=3, most=10), st.data())
def test_a_peer_that_computes_nothing_is_lost_after_patience_and_no_honest_relay_with_it(graph, data):
    stuck = data.draw(st.sampled_from(graph.peers))
    swarm = convened(graph, outage=OUTAGE)
    swarm.idle.add(stuck)
    others = [peer for peer in graph.peers if peer != stuck]
    contribute(swarm, *others)
    assert lasts(swarm, PATIENCE + 3, until=lambda: len(blamed(swarm)) >= len(others))
    assert set().union(*blamed(swarm).values()) == {stuck}


@given(connected(least=3, most=8), st.data())
def test_who_computes_for_ever_is_lost_after_the_outage_and_no_honest_relay_with_it(graph, data):
    slow = data.draw(st.sampled_from(graph.peers))
    swarm = convened(graph, outage=OUTAGE)
    others = [peer for peer in graph.peers if peer != slow]
    late = data.draw(st.lists(st.sampled_from(others), unique=True, max_size=3))
    contribute(swarm, *(peer for peer in others if peer not in late))
    for peer in late:  # relays that begin to wait long after the peers that wait for them
        lasts(swarm, data.draw(st.integers(1, int(OUTAGE // 4))))
        contribute(swarm, peer)
    assert not blamed(swarm)
    assert lasts(swarm, 2 * OUTAGE, until=lambda: len(blamed(swarm)) >= len(others))
    assert set().union(*blamed(swarm).values()) == {slow}


@pytest.mark.parametrize("after", [OUTAGE / 2, OUTAGE - 5])
def test_a_slow_peer_at_the_end_of_a_chain_is_waited_for_while_it_works(after):
    graph = path(7)
    swarm = convened(graph, outage=OUTAGE)
    slow, *others = graph.peers
    contribute(swarm, *others)
    lasts(swarm, after)
    assert not blamed(swarm)
    contribute(swarm, slow)
    assert all(answer.values.tolist() == total_of(graph) for answer in swarm.last().values())


def test_a_relay_that_begins_to_wait_late_has_the_time_to_name_who_stalls():
    """All hops shared one deadline: peers that began to wait earlier lost the honest relay instead."""
    graph = path(5)
    tree = spanning(graph, among=graph.peers)
    slow, relay = "peer0", "peer1"
    assert (tree.root, tree.parent(slow)) == ("peer2", relay)
    swarm = convened(graph, outage=OUTAGE)
    contribute(swarm, "peer2", "peer3", "peer4")
    lasts(swarm, OUTAGE - 5)
    contribute(swarm, relay)
    assert not lasts(swarm, OUTAGE - 2, until=lambda: bool(blamed(swarm)))
    assert lasts(swarm, 5, until=lambda: len(blamed(swarm)) == 4)
    assert {*blamed(swarm).values()} == {frozenset({slow})}


def test_a_relay_that_drops_messages_and_says_it_waits_is_lost_in_bounded_time():
    graph = path(5)
    relay = "peer1"
    swarm = convened(graph, outage=OUTAGE)
    swarm.always_waiting.add(relay)
    swarm.idle.add(relay)
    contribute(swarm, *(peer for peer in graph.peers if peer != relay))
    bound = 2 * OUTAGE + 1 * PATIENCE  # one peer is behind it
    assert not lasts(swarm, OUTAGE, until=lambda: "peer2" in blamed(swarm))
    assert lasts(swarm, bound - OUTAGE + 3, until=lambda: "peer2" in blamed(swarm))
    assert blamed(swarm)["peer2"] == {relay}


def test_work_that_is_stated_again_is_no_work_and_a_new_incarnation_begins_at_zero():
    waits = Waits(patience=10.0, outage=100.0)
    waits.begin(now=0.0, behind={"ada": 0})
    waits.note_heartbeat("ada", waiting=False, work=50, now=1.0)
    waits.note_heartbeat("ada", waiting=False, work=50, now=9.0)
    assert waits.deadline("ada") == 11.0
    waits.note_heartbeat("ada", waiting=False, work=1, now=9.5)
    waits.note_heartbeat("ada", waiting=False, work=2, now=10.5)
    assert waits.deadline("ada") == 20.5


def test_who_takes_turns_in_waiting_and_working_gains_no_time():
    waits = Waits(patience=10.0, outage=100.0)
    waits.begin(now=0.0, behind={"eve": 3})
    now, work = 0.0, 0
    while waits.deadline("eve") > now:
        now, work = now + 1.0, work + 1
        waits.note_heartbeat("eve", waiting=work % 2 == 0, work=work, now=now)
    assert now <= 3 * 100.0 + 3 * 10.0


def test_a_peer_that_trains_long_before_it_takes_part_is_waited_for_as_well():
    graph = complete(3)
    slow, *others = graph.peers
    swarm = Swarm(graph, outage=OUTAGE)
    for peer in others:
        swarm.tell(peer, Convene(1))
    lasts(swarm, OUTAGE - 5)
    swarm.tell(slow, Convene(1))
    swarm.carry()
    assert {*swarm.last().values()} == {Convened(graph.peers, 0)}
    contribute(swarm, *graph.peers)
    assert all(isinstance(answer, Totalled) for answer in swarm.last().values())
