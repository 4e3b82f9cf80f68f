"""Sessions that decide which releases count, and the messages about that between them."""

from collections import deque

from p2pfl.network.protocol.interface.effects import Decided, Disclosed, Publish, Store, Undecided
from p2pfl.network.protocol.interface.events import Stored, Tick
from p2pfl.network.protocol.interface.requests import Decide, Offer, Open
from p2pfl.network.protocol.wire.messages import Chunk
from p2pfl.network.protocol.wire.verdict_messages import (
    OfVerdicts,
    Votes,
)
from sessions import NAMES, arrived, met, model

KEY = bytes([7]) * 32


class ThreeSessions:
    """Three sessions that have begun, and the messages about verdicts between them."""

    names = NAMES

    def __init__(self, *dead, given=None):
        given = {"keeps": True, "names": self.names} | (given or {})
        self.sessions = {name: met(name, others=self.others(name), **given) for name in self.names}
        self.dead, self.now, self.answers, self.sent = {*dead}, 0.0, {name: [] for name in self.names}, []
        self.queue, self.lost, self.drop = deque(), None, lambda _: False

    def others(self, name):
        return [each for each in self.names if each != name]

    def ask(self, name, event):
        """Pass an event to a session; store what it stores, and keep its answers."""
        if name in self.dead:
            return
        for effect in self.sessions[name].handle(event, now=self.now):
            match effect:
                case Store():
                    self.queue.append((name, Stored()))
                case Publish(_, message) if self.drop(message):
                    pass
                case Publish(place, message) if isinstance(message, OfVerdicts):
                    self.sent.append((name, message))
                    to = [place[3:]] if place.startswith("in/") else self.others(name)
                    if not isinstance(message, Votes) or self.lost != (
                        message.votes[0].subject.peer,
                        message.votes[0].ballot.number,
                    ):
                        self.queue.extend((each, arrived(name, message)) for each in to)
                case Publish(_, Chunk() as message):
                    self.queue.extend((each, arrived(name, message)) for each in self.others(name))
                case Decided() | Disclosed() | Undecided():
                    self.answers[name].append(effect)

    def flush(self):
        while self.queue:
            self.ask(*self.queue.popleft())

    def release(self, *names, round=0, masked=None):
        for name in names:
            senders = tuple(self.others(name))
            self.ask(name, Open((round, 0), senders, since=round))
            self.ask(name, Offer(model(round, voted=True, masked=masked), phase=0, decided=True))
        self.flush()

    def decide(self, name, *held, round=0, masked=None):
        masked = {each: 7 for each in masked or self.names if each != name}
        self.ask(name, Decide(round, frozenset(held), masked))
        self.flush()

    def wait(self, seconds):
        self.now += seconds
        for name in self.names:
            self.ask(name, Tick())
        self.flush()


class FourSessions(ThreeSessions):
    """Four sessions, of which the first one lies: it sends what a test chooses."""

    names = ("ada", "bob", "dan", "eve")


def kinds(sent):
    return {type(message) for _, message in sent}
