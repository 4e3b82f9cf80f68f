"""Peers that die in a total: survivors all obtain it, or all take it again without the dead, at whatever event."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs import connected
from p2pfl.network.protocol.interface.effects import Convened, Fail, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.totals.convergecast import digest_of
from p2pfl.network.protocol.wire.total_messages import Abort, Total
from p2pfl.privacy.total_masks import TotalSlot
from p2pfl.topology import complete, spanning
from sessions import arrived
from totalling import Swarm, contributions, total_of

ROUNDS, TOTALS = 3, 2


class Life:
    """Course of a peer: two totals in each round, which it begins again without the peers that are lost."""

    def __init__(self, swarm, peer):
        self.swarm, self.peer = swarm, peer
        self.values = contributions(swarm.graph)[peer]
        self.round, self.answered, self.totals, self.among, self.over = 1, 0, {}, {}, ""
        self.parts = []
        swarm.tell(peer, Convene(1))

    def go_on(self):
        answers = self.swarm.answers[self.peer]
        while len(answers) > self.answered and not self.over and self.peer not in self.swarm.dead:
            answer, self.answered = answers[self.answered], self.answered + 1
            if isinstance(answer, Convened):
                if 2 * len(answer.peers) <= len(self.swarm.graph.peers):
                    self.over = "fewer than a majority"
                    break
                self.among[self.round], self.parts = answer.peers, []
                self.swarm.tell(self.peer, Contribute(self.values))
            elif isinstance(answer, Unfinished):
                self.swarm.tell(self.peer, Convene(self.round))
            elif isinstance(answer, Totalled):
                self.parts.append(tuple(answer.values.tolist()))
                if len(self.parts) < TOTALS:
                    self.swarm.tell(self.peer, Contribute(self.values))
                    continue
                self.totals[self.round] = self.parts
                self.round += 1
                if self.round <= ROUNDS:
                    self.swarm.tell(self.peer, Convene(self.round))
            else:
                assert isinstance(answer, Fail)
                assert "cannot reach the other participants" in str(answer.error)
                self.over = str(answer.error)


def lived(graph, dies, event, *, noticed):
    """Let all peers take totals while one dies at an event; return the totals, and whether the event happened."""
    swarm = Swarm(graph)
    left = [event]

    def lose():
        left[0] -= 1
        if left[0] == 0:
            swarm.kill(dies, noticed=noticed)
        return False

    lives = {peer: Life(swarm, peer) for peer in graph.peers}
    for _ in range(200):
        swarm.carry(lose=lose)
        for life in lives.values():
            life.go_on()
        if not swarm.queue:
            if all(life.over or life.round > ROUNDS for peer, life in lives.items() if peer not in swarm.dead):
                break
            swarm.later(1.0)
    return swarm, lives, left[0] <= 0


def check(graph, dies, event, *, noticed, ends=True):
    """Check that no two peers hold different totals, and that who lacks one has ended with a sentence."""
    swarm, lives, happened = lived(graph, dies, event, noticed=noticed)
    values, living = contributions(graph), [peer for peer in graph.peers if peer not in swarm.dead]
    without = sum(values[peer] for peer in graph.peers if peer != dies).tolist()
    for round in range(1, ROUNDS + 1):
        totals = {tuple(life.totals[round]) for life in lives.values() if round in life.totals}
        assert len(totals) <= 1, (round, {peer: lives[peer].totals for peer in living})
        assert totals <= {TOTALS * (tuple(total_of(graph)),), TOTALS * (tuple(without),)}  # all over one set
        assert all(ends and lives[peer].over for peer in living if round not in lives[peer].totals)
    return happened


@pytest.mark.sampled(fast=0, all=2)
@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("graph", [complete(4), complete(5)], ids=["4", "5"])
def test_survivors_of_a_death_at_any_event_go_on_with_the_same_totals(graph, noticed):
    tree = spanning(graph, among=graph.peers)
    for dies in (tree.root, tree.children(tree.root)[0]):
        event = 1
        while check(graph, dies, event, noticed=noticed, ends=False):
            event += 1
        assert event > 2 * ROUNDS * len(graph.peers)


@given(connected(least=3, most=8), st.booleans(), st.integers(1, 150), st.data())
def test_on_any_graph_survivors_go_on_alike_or_end_with_a_sentence(graph, noticed, event, data):
    check(graph, data.draw(st.sampled_from(graph.peers)), event, noticed=noticed)


def test_a_peer_that_lacks_a_total_obtains_it_from_a_neighbour_that_has_completed_it(monkeypatch):
    """The root dies after one of its children has the total: the other asks that child, which has gone on."""
    monkeypatch.setitem(globals(), "TOTALS", 1)
    graph = complete(4)
    root, first, *_ = graph.peers
    swarm = Swarm(graph)
    lives = {peer: Life(swarm, peer) for peer in graph.peers}
    swarm.carry()
    for life in lives.values():
        life.go_on()
    while swarm.queue:
        sender, to, message = swarm.queue.popleft()
        if sender != root or to == first:  # everything else of the root is lost with it
            swarm.tell(to, arrived(sender, message))
    lives[first].go_on()
    assert lives[first].round == 2
    swarm.kill(root, noticed=True)
    for _ in range(20):
        swarm.carry()
        for life in lives.values():
            life.go_on()
        swarm.later(1.0)
    living = [life for peer, life in lives.items() if peer != root]
    assert all(life.totals[1] == [tuple(total_of(graph))] for life in living)
    assert all(life.among == {1: graph.peers, 2: graph.peers[1:], 3: graph.peers[1:]} for life in living)


def test_a_total_that_a_lost_peer_offers_is_not_taken():
    """The others may have agreed to go on without it, and hold another total."""
    graph = complete(4)
    root, first, second, *_ = graph.peers
    swarm = Swarm(graph)
    lives = {peer: Life(swarm, peer) for peer in graph.peers}
    swarm.carry()
    for life in lives.values():
        life.go_on()
    swarm.queue.clear()
    swarm.tell(first, arrived(second, Abort(1, 0, [root])))
    lives[first].go_on()
    values = memoryview(np.full(4, 7, np.uint64).tobytes())
    slot = TotalSlot(1, 0, 0)
    offered = Total(*slot, 0, 32, digest_of(slot, values), values)
    swarm.tell(first, arrived(root, offered))
    assert swarm.sessions[first].totals.waits == "participants"
    swarm.tell(first, arrived(second, offered))
    assert swarm.last()[first].values.tolist() == [7, 7, 7, 7]
