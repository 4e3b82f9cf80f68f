"""The ledger of flows, by cases; and masked rows, conserved under any schedule of delay, loss, crash and restart."""

import zlib
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import MANY
from p2pfl.errors import PeerError
from p2pfl.protocol.ledgers.flows import END, Checkpoint, FlowLedger, flow
from p2pfl.protocol.ledgers.masks import MaskLedger

ROWS = {"ada": np.array([8, -4]), "bob": np.array([0, 0])}
FIRST, SECOND, THIRD = (0, 0, 0), (0, 1, 0), (0, 2, 0)


def pair(*, window=1, room=4):
    return FlowLedger(["bob"], window=window, room=room), FlowLedger(["ada"], window=window, room=room)


def begin(ada, bob, exchange):
    ada.open(exchange, ROWS["ada"], weights={"bob": 0.25})
    bob.open(exchange, ROWS["bob"], weights={"ada": 0.25})


def saved(ledger):
    checkpoint = ledger.checkpoint()
    ledger.saved(checkpoint)
    return checkpoint


def restarted(ledger, partner, *, checkpoint):
    return FlowLedger([partner], window=1, room=4, journal=ledger.journal(), checkpoint=checkpoint)


def taken(back):
    """The sum of what was taken back."""
    return sum(back.values()).tolist()


@given(st.lists(st.integers(-(2**51), 2**51), min_size=2, max_size=2), st.floats(0, 1))
def test_what_one_end_gets_the_other_gives_to_the_last_bit(values, weight):
    a, b = np.array(values[:1]), np.array(values[1:])
    assert (flow(a, b, weight=weight) == -flow(b, a, weight=weight)).all()
    assert flow(a, b, weight=weight).dtype == np.int64
    assert (flow(a / 3, b / 3, weight=weight) == -flow(b / 3, a / 3, weight=weight)).all()


def test_a_row_that_comes_late_is_applied_with_the_rows_of_its_own_exchange():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.open(SECOND, np.array([100, 100]), weights={"ada": 0.5})
    assert bob.deliver("ada", FIRST, ROWS["ada"]).tolist() == [2, -1]


def test_a_row_is_applied_once():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None


def test_a_row_outside_the_window_or_of_no_edge_moves_nothing():
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    begin(ada, bob, SECOND)
    bob.open(THIRD, ROWS["bob"], weights={})
    for exchange in (FIRST, SECOND, THIRD, (0, 3, 0)):
        assert bob.deliver("ada", exchange, ROWS["ada"]) is None


def test_what_the_partner_will_never_apply_is_taken_back_once():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.hear("ada", ada.statement("bob"))  # in the window: it may still come
    ada.open(THIRD, ROWS["ada"], weights={"bob": 0.25})
    never = ada.statement("bob")
    assert taken(bob.hear("ada", never)) == [-2, 1]
    assert not bob.hear("ada", never)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None
    assert bob.unsettled() == []


def test_what_was_confirmed_before_it_was_applied_is_taken_back_as_well():
    """Bob plays again a round in which ada had applied his row, and says so until she hears that he lives again."""
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    ada.deliver("bob", FIRST, ROWS["bob"])
    saved(ada)
    ada.finish()
    again = FlowLedger(["ada"], window=0, room=4)
    again.hear("ada", ada.statement("bob"))
    again.open(FIRST, ROWS["bob"], weights={"ada": 0.25})
    assert again.deliver("ada", FIRST, ROWS["ada"]).tolist() == [2, -1]
    assert taken(ada.revive("bob", FIRST)) == [2, -1]
    saved(ada)
    assert taken(again.hear("ada", ada.statement("bob"))) == [-2, 1]


def test_a_partner_that_is_met_later_is_told_that_nothing_of_it_was_applied():
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    eve = FlowLedger(["ada"], window=0, room=4)
    eve.open(FIRST, ROWS["bob"], weights={"ada": 0.25})
    assert eve.deliver("ada", FIRST, ROWS["ada"]).tolist() == [2, -1]  # eve believes in an edge, ada does not yet
    ada.meet("eve")
    assert ada.deliver("eve", FIRST, ROWS["bob"]) is None
    assert not eve.hear("ada", ada.statement("eve"))
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25, "eve": 0.25})
    assert taken(eve.hear("ada", ada.statement("eve"))) == [-2, 1]
    eve.open(SECOND, ROWS["bob"], weights={"ada": 0.25})
    assert (ada.deliver("eve", SECOND, ROWS["bob"]) == -eve.deliver("ada", SECOND, ROWS["ada"])).all()


def test_to_meet_a_partner_again_forgets_nothing():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    bob.meet("ada")
    assert bob.unsettled() == [("ada", FIRST)]


def test_all_that_one_statement_excludes_is_taken_back_together():
    ada, bob = pair(window=2)
    for exchange in (FIRST, SECOND):
        begin(ada, bob, exchange)
        bob.deliver("ada", exchange, ROWS["ada"])
    ada.finish()
    assert taken(bob.hear("ada", ada.statement("bob"))) == [-4, 2]


def test_what_the_partner_applied_but_could_lose_is_neither_confirmed_nor_taken_back():
    ada, bob = pair(window=0)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.hear("ada", ada.statement("bob"))
    assert bob.unsettled() == [("ada", FIRST)]


def test_after_the_end_nothing_is_applied_any_more():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.finish()
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is None


def test_a_flow_is_held_until_the_partner_has_it_in_a_checkpoint():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    bob.hear("ada", ada.statement("bob"))
    assert bob.unsettled() == [("ada", FIRST)]
    saved(ada)
    bob.hear("ada", ada.statement("bob"))
    assert bob.unsettled() == []


def test_a_peer_that_restarts_counts_as_one_that_heard_nothing():
    ada, bob = pair()
    checkpoint = saved(ada)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    ada = restarted(ada, "bob", checkpoint=checkpoint)
    assert taken(bob.hear("ada", ada.statement("bob"))) == [-2, 1]
    assert ada.lost == []


def both(*, window=0):
    """Two ends of which each has applied the flow and holds it."""
    ada, bob = pair(window=window)
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    ada.deliver("bob", FIRST, ROWS["bob"])
    return ada, bob


def test_the_partner_repeats_what_a_crash_would_make_unheard():
    ada, bob = both()
    checkpoint = saved(ada)
    saved(bob)
    ada.hear("bob", bob.statement("ada"))
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    bob.hear("ada", ada.statement("bob"))
    ada = restarted(ada, "bob", checkpoint=checkpoint)
    assert ada.unsettled() == [("bob", FIRST)]
    ada.hear("bob", bob.statement("ada"))
    assert ada.unsettled() == []


def test_the_partner_is_asked_about_a_flow_as_long_as_it_is_held():
    ada, bob = both()
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    saved(ada)
    bob.hear("ada", ada.statement("bob"))
    saved(bob)
    ada.hear("bob", bob.statement("ada"))
    assert ada.unsettled() == []


def test_a_flow_is_taken_back_after_a_restart_too():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    bob.deliver("ada", FIRST, ROWS["ada"])
    bob = restarted(bob, "ada", checkpoint=saved(bob))
    ada.finish()
    assert taken(bob.hear("ada", ada.statement("bob"))) == [-2, 1]


def test_a_statement_that_starts_later_says_nothing_of_what_was_before():
    ada, bob = both()
    old = saved(ada)
    saved(bob)
    ada.hear("bob", bob.statement("ada"))
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    saved(ada)
    bob.hear("ada", ada.statement("bob"))
    bob.finish()
    ada = restarted(ada, "bob", checkpoint=old)
    assert not ada.hear("bob", bob.statement("ada"))
    assert ada.unsettled() == [("bob", FIRST)]


def test_a_restart_from_an_older_checkpoint_reports_what_is_lost():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    ada.deliver("bob", FIRST, ROWS["bob"])
    saved(ada)
    assert restarted(ada, "bob", checkpoint=Checkpoint({})).lost == [("bob", FIRST)]


def test_what_was_applied_of_an_earlier_life_is_taken_back_and_the_next_one_applied_instead():
    """Found by the world: the next life had heard other rows, so what it said in the same exchange was another row."""
    ada, bob = both(window=2)
    saved(ada)
    bob.hear("ada", ada.statement("bob"))
    assert bob.unsettled() == []  # confirmed, and kept all the same
    assert taken(bob.revive("ada", FIRST)) == [-2, 1]
    assert bob.deliver("ada", FIRST, np.array([4, 0])).tolist() == [1, 0]


def test_what_cannot_be_taken_back_any_more_is_counted():
    ada, bob = both()
    saved(ada)
    bob.hear("ada", ada.statement("bob"))
    bob.open(SECOND, ROWS["bob"], weights={"ada": 0.25})
    bob.prune()
    assert bob.revive("ada", SECOND) == {}
    assert bob.lost == []
    assert bob.revive("ada", FIRST) == {}
    assert bob.lost == [("ada", FIRST)]


def test_an_exchange_is_not_opened_again_after_a_restart():
    ada, bob = pair()
    begin(ada, bob, FIRST)
    ada = restarted(ada, "bob", checkpoint=Checkpoint({}))
    with pytest.raises(PeerError, match="count the attempt up"):
        ada.open(FIRST, ROWS["ada"], weights={"bob": 0.25})
    ada.open((1, 0, 0), ROWS["ada"], weights={"bob": 0.25})


def test_without_room_a_row_is_not_applied():
    ada, bob = pair(window=3, room=1)
    begin(ada, bob, FIRST)
    begin(ada, bob, SECOND)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is not None
    assert bob.deliver("ada", SECOND, ROWS["ada"]) is None


def test_where_nothing_is_held_nothing_is_conserved_but_counted():
    ada, bob = pair(window=0, room=0)
    begin(ada, bob, FIRST)
    assert bob.deliver("ada", FIRST, ROWS["ada"]) is not None
    ada.open(SECOND, ROWS["ada"], weights={"bob": 0.25})
    assert not bob.hear("ada", ada.statement("bob"))
    assert bob.lost == [("ada", FIRST)]


def test_in_calm_weather_one_flow_is_held_and_statements_are_short():
    ada, bob = pair()
    for round in range(20):
        begin(ada, bob, (0, round, 0))
        for one, name, other, partner in ((ada, "ada", bob, "bob"), (bob, "bob", ada, "ada")):
            other.hear(name, one.statement(partner))
            other.deliver(name, (0, round, 0), ROWS[name])
        saved(ada)
        saved(bob)
        assert len(bob.unsettled()) == 1
        statement = ada.statement("bob")
        assert len(statement.applied | statement.pending) <= 4


def test_a_stranger_is_refused():
    ada, _ = pair()
    with pytest.raises(PeerError, match='got "eve"'):
        ada.deliver("eve", FIRST, ROWS["bob"])


@cache
def noise(mask):
    """A large row that both ends can draw."""
    return np.random.default_rng(zlib.crc32(repr(mask).encode())).integers(-(2**30), 2**30, 2)


@dataclass
class Line:
    """A row and what has been put into it; what a checkpoint holds, next to the two ledgers' parts."""

    row: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    updates: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))
    masks: np.ndarray = field(default_factory=lambda: np.zeros(2, np.int64))

    def copy(self):
        return Line(self.row.copy(), self.updates.copy(), self.masks.copy())


class Peer:
    """The thin shell around both ledgers."""

    def __init__(self, name, partners, *, window, room):
        self.name, self.partners, self.window, self.room = name, partners, window, room
        self.line, self.round, self.up = Line(), 0, True
        self.masks = MaskLedger(name, partners=partners)
        self.flows = FlowLedger(partners, window=window, room=room)
        self.journal()
        self.checkpoint()

    def journal(self):
        self.durable = self.masks.journal(), self.flows.journal()

    def checkpoint(self):
        flows = self.flows.checkpoint()
        self.disk = self.line.copy(), self.masks.carried(), flows, self.round
        self.flows.saved(flows)
        self.journal()

    def crash(self):
        """Lose what is not durable; from now on the peer is what it will be when it comes back."""
        line, carried, flows, self.round = self.disk
        masks_journal, flows_journal = self.durable
        self.line = line.copy()
        self.masks = MaskLedger(self.name, partners=self.partners, journal=masks_journal, carried=carried)
        self.flows = FlowLedger(
            self.partners, window=self.window, room=self.room, journal=flows_journal, checkpoint=flows
        )
        self.up = False

    def pay(self, payment):
        for mask, factor in payment.terms.items():
            self.line.row += factor * noise(mask)
            self.line.masks += factor * noise(mask)

    def release(self, update, *, skip, step):
        """Train, mask, send: the messages, one for each partner."""
        if step and self.exchange is not None:
            exchange = (*self.exchange[:-1], self.exchange[-1] + 1)  # mixing again is free
        else:
            payment = self.masks.release(self.round + skip)
            self.line.row += update
            self.line.updates += update
            self.pay(payment)
            exchange = (*payment.slot, 0)
            self.round = payment.slot.round + 1
        self.exchange = exchange
        row = self.line.row.copy()
        self.flows.open(exchange, row, weights=dict.fromkeys(self.partners, 0.25))
        return self.messages(exchange, row)

    exchange = None

    def messages(self, exchange=None, row=None):
        self.journal()
        masks = self.durable[0]
        return [
            (self.name, other, masks.statement(other), self.flows.statement(other), exchange, row)
            for other in self.partners
        ]

    def receive(self, message):
        sender, _, masks, flows, exchange, row = message
        self.masks.hear(sender, masks)
        back = self.flows.hear(sender, flows)
        moved = None if exchange is None else self.flows.deliver(sender, exchange, row)
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
    def exchange(self, seed, loss, delay):
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
        peer.exchange = None

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
        """What an edge moved to one end and not from the other."""
        ends = self.peers[name].flows._ends[other]
        there = self.peers[other].flows._ends[name].applied
        for exchange in ends.applied - there:
            assert exchange in ends.held
            yield ends.held[exchange]

    @invariant()
    def rows_differ_from_what_was_put_in_by_held_flows_only(self):
        if self.dead:  # rows that are gone cannot be added up; the edges are looked at one by one
            for a, b in self.edges:
                if not {a, b} & self.dead:
                    list(self.one_sided(a, b)), list(self.one_sided(b, a))
            return
        moved = sum((peer.line.row - peer.line.updates - peer.line.masks for peer in self.peers.values()), np.zeros(2))
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
            assert all(other in self.dead for other, _ in peer.flows.unsettled())
            for other in set(peer.partners) - self.dead:
                assert peer.flows._ends[other].applied == self.peers[other].flows._ends[peer.name].applied
        if alive and not self.dead:
            assert sum(peer.line.row - peer.line.updates for peer in alive).tolist() == [0, 0]

    def settle(self, alive):
        for peer in alive:
            peer.up = True
            peer.masks.finish()
            peer.flows.finish()
        for _ in range(3):  # what is never, what is in a checkpoint, and that all know
            for message in [message for peer in alive for message in peer.messages()]:
                if message[1] not in self.dead:
                    self.peers[message[1]].receive(message)
            for peer in alive:
                peer.pay(peer.masks.settle())
                peer.checkpoint()


TestWeather = Weather.TestCase
TestWeather.settings = settings(MANY, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def test_after_the_end_nothing_is_opened():
    ada, _ = pair()
    ada.finish()
    assert ada.statement("bob").closed == END
    with pytest.raises(PeerError, match="count the attempt up"):
        ada.open(FIRST, ROWS["ada"], weights={})
