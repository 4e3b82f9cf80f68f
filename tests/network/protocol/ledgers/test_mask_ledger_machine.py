"""Ledgers of masks of a few peers that crash, restart and lose messages in any order."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from effort import SEVERAL
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.payments import Mask
from p2pfl.network.protocol.ledgers.slots import END, START


class Churn(RuleBasedStateMachine):
    """Peers that release, lose messages, crash, restart from any checkpoint and die."""

    @initialize(data=st.data())
    def start(self, data):
        count = data.draw(st.integers(2, 5), label="peers")
        self.peers = list("abcde"[:count])
        late = range(1, count)
        edges = {(self.peers[data.draw(st.integers(0, each - 1))], self.peers[each]) for each in late}
        pairs = [(a, b) for a in self.peers for b in self.peers if a < b]
        self.edges = sorted(edges | set(data.draw(st.lists(st.sampled_from(pairs), max_size=4), label="more edges")))
        self.ledgers = {peer: MaskLedger(peer, partners=self.partners(peer)) for peer in self.peers}
        self.journals = {peer: ledger.journal() for peer, ledger in self.ledgers.items()}
        self.rows = {peer: Counter() for peer in self.peers}  # each mask in a row, and how often
        self.saved = {peer: [(ledger.applied_masks(), Counter())] for peer, ledger in self.ledgers.items()}
        self.rounds = dict.fromkeys(self.peers, 0)
        self.up, self.dead = set(self.peers), set()
        self.network = []
        self.keys = set()
        self.lives = dict.fromkeys(self.peers, 1)
        for peer, other in [(a, b) for edge in self.edges for a, b in (edge, edge[::-1])]:
            self.greet(peer, other)
        # What the docstring's proof speaks of: how far a peer agrees with an edge since its last restart.
        self.agrees = {(peer, other): START for peer in self.peers for other in self.partners(peer)}

    def partners(self, peer):
        return [b if peer == a else a for a, b in self.edges if peer in (a, b)]

    def greet(self, peer, other):
        """Learn a partner's announcement, and with it the epoch of the edge."""
        epoch = "/".join(f"{end}{self.lives[end]}" for end in sorted((peer, other))).encode()
        self.ledgers[peer].meet(other, b"", epoch=epoch)

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def announcement(self, data):
        """A peer hears, however late, that a partner restarted."""
        peer = self.pick(data, self.up)
        self.greet(peer, self.pick(data, self.partners(peer)))

    def pick(self, data, peers):
        return data.draw(st.sampled_from(sorted(peers)), label="peer")

    def send(self, peer):
        self.journals[peer] = self.ledgers[peer].journal()
        for other in self.partners(peer):
            self.network.append((peer, other, self.journals[peer].statement(other)))

    def note(self, peer, slot):
        for other in self.partners(peer):
            ends = self.journals[peer].notes[other]
            limit = END if slot is None else slot.after
            self.agrees[peer, other] = limit if peer < other else min(ends.until, END if slot is None else slot)

    @precondition(lambda self: self.up)
    @rule(data=st.data(), skip=st.integers(0, 2), lost=st.booleans())
    def release(self, data, skip, lost):
        peer = self.pick(data, self.up)
        partners = data.draw(st.sets(st.sampled_from(self.partners(peer))), label="masked with")
        self.turn(peer, partners, skip=skip, lost=lost)

    @precondition(lambda self: self.up)
    @rule(seed=st.integers(0, 2**32), loss=st.sampled_from([0, 0.2, 0.5]), delay=st.sampled_from([0, 0.2, 0.5]))
    def round(self, seed, loss, delay):
        """All that are up release; of all that is on its way some is lost, some late, the rest arrives."""
        chance = np.random.default_rng(seed)
        for peer in sorted(self.up):
            if chance.random() < 0.9:
                self.turn(peer, self.partners(peer), skip=0, lost=False)
        messages, self.network = self.network, []
        for number in chance.permutation(len(messages)):
            if chance.random() < delay:
                self.network.append(messages[number])
            elif chance.random() >= loss:
                self.arrive([messages[number]])

    def turn(self, peer, partners, *, skip, lost):
        payment = self.ledgers[peer].release(self.rounds[peer] + skip, partners=partners)
        self.rounds[peer] += skip + 1
        used = {(peer, other, payment.slot, self.ledgers[peer].epochs[other]) for other in payment.fresh}
        assert not used & self.keys  # a mask is fresh once
        self.keys |= used
        assert all(abs(factor) == 1 for factor in payment.terms.values())
        self.rows[peer].update(payment.terms)
        self.send(peer)
        self.note(peer, payment.slot)
        if lost:  # died after the journal, before anything left
            del self.network[-len(self.partners(peer)) :]

    @precondition(lambda self: self.network)
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "deliver", "deliver", "double", "drop"]))
    def message(self, data, fate):
        number = data.draw(st.integers(0, len(self.network) - 1), label="message")
        sender, receiver, statement = self.network[number]
        if fate != "double":
            self.network.pop(number)
        if fate != "drop":
            self.arrive([(sender, receiver, statement)])

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def checkpoint(self, data):
        peer = self.pick(data, self.up)
        self.saved[peer].append((self.ledgers[peer].applied_masks(), self.rows[peer].copy()))

    @precondition(lambda self: self.up)
    @rule(data=st.data())
    def crash(self, data):
        self.up.discard(self.pick(data, self.up))

    @precondition(lambda self: set(self.peers) - self.up - self.dead)
    @rule(data=st.data(), back=st.integers(0, 3))
    def restart(self, data, back):
        self.revive(self.pick(data, set(self.peers) - self.up - self.dead), back)

    def revive(self, peer, back):
        carried, row = self.saved[peer][max(-1 - back, -len(self.saved[peer]))]
        self.rows[peer] = row.copy()
        self.ledgers[peer] = MaskLedger(
            peer, partners=self.partners(peer), journal=self.journals[peer], carried=carried
        )
        self.rounds[peer] = max(0, self.rounds[peer] - back)
        self.up.add(peer)
        self.lives[peer] += 1
        for other in self.partners(peer):
            self.agrees[peer, other] = START
            self.greet(peer, other)

    @precondition(lambda self: len(self.dead) < len(self.peers) - 1)
    @rule(data=st.data())
    def die(self, data):
        peer = self.pick(data, set(self.peers) - self.dead)
        self.up.discard(peer)
        self.dead.add(peer)

    def carried(self, peer, other):
        """Masks, by slot and epoch, that are in the row once and with the sign of this end."""
        edge, sign = (min(peer, other), max(peer, other)), 1 if peer < other else -1
        held = {mask[1:]: factor for mask, factor in self.rows[peer].items() if mask.edge == edge and factor}
        assert set(held.values()) <= {sign}
        return set(held)

    @invariant()
    def both_ends_carry_what_both_have_agreed_on(self):
        for a, b in self.edges:
            if {a, b} <= self.up:
                bound = min(self.agrees[a, b], self.agrees[b, a])
                assert not {each for each in self.carried(a, b) ^ self.carried(b, a) if each[0] < bound}

    @invariant()
    def whoever_is_up_lists_every_difference_it_can_know(self):
        for a, b in self.edges:
            for peer, other in ((a, b), (b, a)):
                if {peer, other} <= self.up and self.agrees[other, peer] != START:
                    note = self.ledgers[peer].journal().notes[other]
                    apart = self.carried(a, b) ^ self.carried(b, a)
                    differ = {each for each in apart if each[0] < note.until or each in set(note.own)}
                    assert {Mask((a, b), *each) for each in differ} <= set(self.ledgers[peer].list_uncancelled())

    def teardown(self):
        alive = set(getattr(self, "peers", ())) - getattr(self, "dead", set())
        for peer in sorted(alive):
            if peer not in self.up:
                self.revive(peer, 1)
            self.ledgers[peer].finish()
        for _ in range(2):  # tell and pay, then let the others know it is paid
            self.network = []
            for peer in alive:
                self.send(peer)
            self.arrive(self.network)
            for peer in alive:
                self.rows[peer].update(self.ledgers[peer].settle().terms)
        for peer in alive:
            assert all(set(mask.edge) & self.dead for mask in self.ledgers[peer].list_uncancelled())
            for other in set(self.partners(peer)) & alive:
                assert self.carried(peer, other) == self.carried(other, peer)

    def arrive(self, messages):
        for sender, receiver, statement in messages:
            if receiver in self.up:
                self.ledgers[receiver].receive(sender, statement)


TestChurn = pytest.mark.slow(Churn.TestCase)
TestChurn.settings = settings(SEVERAL, stateful_step_count=40, suppress_health_check=list(HealthCheck))
