"""Sessions of all peers of a graph that take totals, without a network; a test decides when messages are carried."""

from collections import Counter, deque

import numpy as np

from p2pfl.network.protocol.incoming.mailbox import Mailbox
from p2pfl.network.protocol.interface.effects import (
    Convened,
    Fail,
    Forget,
    Publish,
    Subscribe,
    Totalled,
    Unfinished,
    WakeAt,
)
from p2pfl.network.protocol.interface.events import Subscribed, Tick
from p2pfl.network.protocol.interface.requests import Begin, Convene
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.session.session_totals import PLACE
from p2pfl.network.protocol.wire.message_codec import MessageCodec
from p2pfl.network.protocol.wire.messages import Announcement, Pulse
from p2pfl.network.protocol.wire.total_messages import OfTotals
from p2pfl.network.protocol.wire.wire_codec import decode, encode
from sessions import arrived

PATIENCE = 10.0
ANSWERS = Convened | Totalled | Unfinished


class Swarm:
    """Sessions of all peers of a graph, and what they send each other."""

    def __init__(self, graph, *, patience=PATIENCE, outage=0.0):
        self.graph, self.now = graph, 0.0
        self.outage = outage
        self.sessions = {peer: self._session(peer, patience) for peer in graph.peers}
        self.queue = deque()
        self.answers = {peer: [] for peer in graph.peers}
        self.sent = Counter()
        self.places = {peer: set() for peer in graph.peers}
        self.dead, self.gone = set(), set()
        self.idle = set()  # peers that send heartbeats and compute nothing
        self.always_waiting = set()  # peers that state in all heartbeats that they wait
        for peer in graph.peers:
            for other in graph.neighbours(peer):
                self.tell(peer, arrived(other, Announcement(other, 1, "up"), state=True))
            self.tell(peer, Begin(0))

    def _session(self, peer, patience):
        me = Announcement(peer, 1, "up")
        return Session(
            MessageCodec("s", me),
            membership=Membership(me, frozenset(self.graph.neighbours(peer))),
            mailbox=Mailbox(),
            edges=Edges(peer, self.graph),
            row_bytes=1000,
            chunk=1024,
            patience=patience,
            outage=self.outage,
        )

    def tell(self, peer, event):
        if peer in self.dead | self.gone:
            return
        for effect in self.sessions[peer].handle(event, now=self.now):
            if isinstance(effect, Publish) and isinstance(effect.message, OfTotals):
                self.sent[peer, type(effect.message).__name__] += 1
                shared = effect.place == PLACE
                others = [other for other in self.graph.peers if f"{peer}/{PLACE}" in self.places[other]]
                for other in others if shared else [effect.place.removeprefix("in/")]:
                    self.queue.append((peer, other, decode(encode(effect.message))))
            elif isinstance(effect, Subscribe) and effect.receipt == "totals":
                self.places[peer].update(effect.places)
                self.tell(peer, Subscribed(effect.receipt))
            elif isinstance(effect, ANSWERS | Fail):
                self.answers[peer].append(effect)
            else:
                assert isinstance(effect, Publish | Subscribe | Forget | WakeAt), effect

    def carry(self, *, lose=lambda: False):
        """Carry all that is sent; what is lost, is."""
        while self.queue:
            sender, to, message = self.queue.popleft()
            if not lose():
                self.tell(to, arrived(sender, message))

    def later(self, seconds):
        """Let time pass, in which the living send heartbeats."""
        self.now += seconds
        for peer in self.graph.peers:
            for other in self.graph.neighbours(peer):
                if other not in self.dead | self.gone:
                    waiting = self.sessions[other].blocked or other in self.always_waiting
                    work = 0 if other in self.idle else int(10 * self.now)
                    self.tell(peer, arrived(other, Pulse(1, 0, 0, 0, waiting=waiting, first=0, work=work)))
            self.tell(peer, Tick())

    def kill(self, peer, *, noticed=False):
        self.dead.add(peer)
        self.queue = deque(each for each in self.queue if each[1] != peer)
        for other in self.graph.neighbours(peer) if noticed else ():
            self.tell(other, arrived(peer, Announcement(peer, 1, "left"), state=True))

    def give_up(self):
        """Let those say goodbye whose attempt has failed: with masks nobody begins another."""
        for peer, answer in self.last().items():
            if isinstance(answer, Unfinished):
                self.gone.add(peer)
                for other in self.graph.neighbours(peer):
                    self.tell(other, arrived(peer, Announcement(peer, 1, "left"), state=True))

    def last(self):
        return {
            peer: answers[-1] if answers else None for peer, answers in self.answers.items() if peer not in self.dead
        }


def contributions(graph):
    return {peer: np.arange(4, dtype=np.uint64) + number for number, peer in enumerate(graph.peers)}


def convened(graph, **given):
    swarm = Swarm(graph, **given)
    for peer in graph.peers:
        swarm.tell(peer, Convene(1))
    swarm.carry()
    return swarm


def total_of(graph):
    return sum(contributions(graph).values()).tolist()
