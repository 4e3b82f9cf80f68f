"""Ledgers of flows of a few peers that crash, restart and lose messages in any order."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import SEVERAL
from p2pfl.network.protocol.ledgers.flows import FlowLedger
from p2pfl.network.protocol.ledgers.mask_slots import Slot


@dataclass
class Line:
    """A row and what has been put into it; what a checkpoint holds, next to the ledger's part."""

    row: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    updates: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))

    def copy(self):
        return Line(self.row.copy(), self.updates.copy())


class Peer:
    """The thin shell around a ledger."""

    def __init__(self, name, partners, *, window, room):
        self.name, self.partners, self.window, self.room = name, partners, window, room
        self.line, self.round, self.up = Line(), 0, True
        self.slot = Slot(0, 0)  # of the next release
        self.flows = FlowLedger(partners, window=window, room=room)
        self.journal()
        self.checkpoint()

    def journal(self):
        self.durable = self.slot, self.flows._next

    def checkpoint(self):
        flows = self.flows.checkpoint()
        self.disk = self.line.copy(), flows, self.round
        self.flows.note_checkpoint(flows)
        self.journal()

    def crash(self):
        """Lose what is not durable; from now on the peer is what it will be when it comes back."""
        line, flows, self.round = self.disk
        self.slot, closed = self.durable
        self.line = line.copy()
        self.flows = FlowLedger(self.partners, window=self.window, room=self.room, closed=closed, checkpoint=flows)
        self.up = False

    def release(self, update, *, skip, step):
        """Train and send: the messages, one for each partner."""
        if step and self.gossip_step is not None:
            gossip_step = (*self.gossip_step[:-1], self.gossip_step[-1] + 1)  # mixing again is free
        else:
            slot = Slot(self.slot.attempt, self.round + skip)
            slot = slot if slot >= self.slot else Slot(self.slot.attempt + 1, self.round + skip)
            self.slot = slot.after
            self.line.row += update
            self.line.updates += update
            gossip_step = (*slot, 0)
            self.round = slot.round + 1
        self.gossip_step = gossip_step
        row = self.line.row.copy()
        self.flows.open(gossip_step, row, weights=dict.fromkeys(self.partners, 0.25))
        return self.messages(gossip_step, row)

    gossip_step = None

    def messages(self, gossip_step=None, row=None):
        self.journal()
        return [(self.name, other, self.flows.statement(other), gossip_step, row) for other in self.partners]

    def receive(self, message):
        sender, _, flows, gossip_step, row = message
        back = self.flows.receive(sender, flows)
        moved = None if gossip_step is None else self.flows.deliver(sender, gossip_step, row)
        for each in (*back.values(), moved):
            if each is not None:
                self.line.row += each


class Weather(RuleBasedStateMachine):
    """Peers that train, mix, lose messages, crash, restart and die."""

    @initialize(data=st.data(), window=st.integers(0, 2), room=st.integers(1, 4))
    def start(self, data, window, room):
        count = data.draw(st.integers(2, 5), label="peers")
        names = list("abcde"[:count])
        edges = {(names[data.draw(st.integers(0, late - 1))], names[late]) for late in range(1, count)}
        pairs = [(a, b) for a in names for b in names if a < b]
        self.edges = sorted(edges | set(data.draw(st.lists(st.sampled_from(pairs), max_size=4), label="more edges")))
        self.peers = {
            name: Peer(
                name,
                sorted(b if name == a else a for a, b in self.edges if name in (a, b)),
                window=window,
                room=room,
            )
            for name in names
        }
        self.network, self.dead = [], set()

    def pick(self, data, *, up=True):
        names = sorted(name for name, peer in self.peers.items() if peer.up == up and name not in self.dead)
        return self.peers[data.draw(st.sampled_from(names), label="peer")]

    def somebody_is_up(self):
        return any(peer.up for peer in self.peers.values())

    def somebody_is_down(self):
        return any(not peer.up and name not in self.dead for name, peer in self.peers.items())

    @precondition(somebody_is_up)
    @rule(data=st.data(), skip=st.integers(0, 2), step=st.booleans(), crash=st.booleans())
    def release(self, data, skip, step, crash):
        peer = self.pick(data)
        messages = peer.release(np.array([skip + 1, 7]), skip=skip, step=step)
        sent = data.draw(st.integers(0, len(messages)), label="sent before a crash") if crash else len(messages)
        self.network += messages[:sent]
        if crash:
            self.fall(peer)

    @precondition(lambda self: self.network)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "deliver", "deliver", "double", "drop"]))
    def message(self, data, fate):
        number = data.draw(st.integers(0, len(self.network) - 1), label="message")
        message = self.network[number]
        if fate != "double":
            self.network.pop(number)
        if fate != "drop" and self.peers[message[1]].up:
            self.peers[message[1]].receive(message)

    @precondition(somebody_is_up)
    @rule(seed=st.integers(0, 2**32), loss=st.sampled_from([0, 0.2, 0.5]), delay=st.sampled_from([0, 0.2, 0.5]))
    def gossip_step(self, seed, loss, delay):
        """All that are up take a turn; of all that is on its way some is lost, some late, the rest arrives."""
        chance = np.random.default_rng(seed)
        for peer in self.peers.values():
            if peer.up and chance.random() < 0.9:
                self.network += peer.release(np.array([1, 7]), skip=0, step=chance.random() < 0.5)
        messages, self.network = self.network, []
        for number in chance.permutation(len(messages)):
            message = messages[number]
            if chance.random() < delay:
                self.network.append(message)
            elif chance.random() >= loss and self.peers[message[1]].up:
                self.peers[message[1]].receive(message)
            if chance.random() < 0.1 and self.peers[message[1]].up:
                self.peers[message[1]].checkpoint()

    @precondition(somebody_is_up)
    @rule(data=st.data())
    def checkpoint(self, data):
        self.pick(data).checkpoint()

    @precondition(somebody_is_up)
    @rule(data=st.data())
    def crash(self, data):
        self.fall(self.pick(data))

    def fall(self, peer):
        peer.crash()
        peer.gossip_step = None

    @precondition(somebody_is_down)
    @rule(data=st.data())
    def restart(self, data):
        self.pick(data, up=False).up = True

    @precondition(lambda self: self.somebody_is_up() and len(self.dead) < len(self.peers) - 1)
    @rule(data=st.data())
    def die(self, data):
        peer = self.pick(data)
        peer.up = False
        self.dead.add(peer.name)

    def one_sided(self, name, other):
        """Yield the flows that an edge moved to one end and not from the other."""
        ends = self.peers[name].flows._ends[other]
        there = self.peers[other].flows._ends[name].applied
        for gossip_step in ends.applied - there:
            assert gossip_step in ends.held
            yield ends.held[gossip_step]

    @invariant()
    def rows_differ_from_what_was_put_in_by_held_flows_only(self):
        if self.dead:  # rows that are gone cannot be added up; the edges are looked at one by one
            for a, b in self.edges:
                if not {a, b} & self.dead:
                    list(self.one_sided(a, b)), list(self.one_sided(b, a))
            return
        moved = sum((peer.line.row - peer.line.updates for peer in self.peers.values()), np.zeros(2))
        for a, b in self.edges:
            moved -= sum(self.one_sided(a, b), np.zeros(2)) + sum(self.one_sided(b, a), np.zeros(2))
        assert not moved.any()

    @invariant()
    def no_more_is_held_than_there_is_room_for_and_nothing_is_lost(self):
        for peer in self.peers.values():
            assert all(len(ends.held) <= peer.room for ends in peer.flows._ends.values())
            assert len(peer.flows._own) <= peer.window + 1
            assert peer.flows.lost == []

    def teardown(self):
        alive = [peer for name, peer in getattr(self, "peers", {}).items() if name not in self.dead]
        self.settle(alive)
        for peer in alive:
            assert all(other in self.dead for other, _ in peer.flows.list_unsettled())
            for other in set(peer.partners) - self.dead:
                assert peer.flows._ends[other].applied == self.peers[other].flows._ends[peer.name].applied
        if alive and not self.dead:
            assert sum(peer.line.row - peer.line.updates for peer in alive).tolist() == [0, 0]

    def settle(self, alive):
        for peer in alive:
            peer.up = True
            peer.flows.finish()
        for _ in range(3):  # what is never, what is in a checkpoint, and that all know
            for message in [message for peer in alive for message in peer.messages()]:
                if message[1] not in self.dead:
                    self.peers[message[1]].receive(message)
            for peer in alive:
                peer.checkpoint()


TestWeather = Weather.TestCase
TestWeather.settings = settings(SEVERAL, stateful_step_count=40, suppress_health_check=list(HealthCheck))
TestWeather.pytestmark = [pytest.mark.slow]  # the fast tier has test_flows.py
