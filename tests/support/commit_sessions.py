"""Sessions of the members of an attempt, and the messages about it between them."""

from collections import deque

from p2pfl.network.protocol.interface.effects import Concluded, Missing, Publish, Store, Undecided
from p2pfl.network.protocol.interface.events import Stored, Tick
from p2pfl.network.protocol.interface.requests import Begin, ReportAttempt, Try
from p2pfl.network.protocol.wire.verdict_messages import OfVerdicts, Reports, Vote
from sessions import LIFE, announced, arrived, heartbeat, session

NAMES = ("ada", "bob", "dan", "eve")


def own_report(name, message):
    """Return whether a message contains the sender's report alone."""
    return isinstance(message, Reports) and [each.member for each in message.reports] == [name]


class Swarm:
    """Sessions that have begun an attempt together, and the messages between them."""

    def __init__(self, *dead, names=NAMES, attempt=0, life=LIFE, **given):
        self.names, self.dead, self.now, self.given = names, {*dead}, 0.0, given
        self.sessions = {name: self.begun(name, life) for name in names}
        self.answers, self.sent, self.queue = {name: [] for name in names}, [], deque()
        self.places = []  # to which something was sent
        self.mute = ""  # whose messages are lost
        self.lost = set()  # peers to which all messages are lost
        self.withholders = set()  # which send no acceptance
        self.idle = set()  # which send nothing but their report while they own the committee
        self.evasive = ""  # whose reports all but the owner receive
        for name in names:
            self.ask(name, Try(0, attempt, names))

    def begun(self, name, life):
        """Return a session that has met the others, all of one incarnation."""
        made = session(name, life=life, keeps=True, names=self.names, commits=True, **self.given)
        for other in self.others(name):
            made.handle(announced(other, life=life), now=0.0)
            made.handle(heartbeat(other, life=life), now=0.0)
        made.handle(Begin(0), now=0.0)
        return made

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
                case Publish(_, Vote(final=False) | Reports(proposal=Vote())) if name in self.withholders:
                    continue
                case Publish(_, message) if name in self.idle and name == self.owner and not own_report(name, message):
                    continue
                case Publish(place, message) if isinstance(message, OfVerdicts):
                    self.sent.append((name, message))
                    self.places.append(place)
                    to = [place[3:]] if place.startswith("in/") else self.others(name)
                    if name == self.evasive and isinstance(message, Reports):
                        to = [each for each in self.others(name) if each != self.owner]
                    if name != self.mute:
                        self.queue.extend((each, arrived(name, message)) for each in to if each not in self.lost)
                case Concluded() | Undecided() | Missing():
                    self.answers[name].append(effect)

    def flush(self):
        while self.queue:
            self.ask(*self.queue.popleft())

    def settlement(self, name):
        """Return the settlement of the present attempt at a peer."""
        return self.sessions[name].commits._settlement

    @property
    def owner(self):
        """Return the member that owns the committee of the present attempt."""
        return self.settlement(self.names[0]).committee.owner

    def report(self, *names, complete=True):
        for name in names:
            self.ask(name, ReportAttempt(complete))
        self.flush()

    def wait(self, seconds):
        self.now += seconds
        for name in self.names:
            self.ask(name, Tick())
        self.flush()

    def leaves(self, name):
        """Let the broker report that a peer is dead."""
        self.dead.add(name)
        for each in self.others(name):
            self.ask(each, announced(name, "dead"))
        self.flush()

    def settle(self, *, step=0.05, within=20.0):
        """Return the seconds after which all living peers know the outcome of the attempt that they have reported."""
        begun, known = self.now, {name: len(self.answers[name]) for name in self.outcomes}
        self.report(*known)
        while any(len(self.answers[name]) == known[name] for name in known):
            assert self.now < begun + within, self.outcomes
            self.wait(step)
        return self.now - begun

    @property
    def outcomes(self):
        """Return the outcome at each living peer, by name."""
        return {name: answers for name, answers in self.answers.items() if name not in self.dead}
