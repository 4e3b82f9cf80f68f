"""Committees of up to seven of which some are malicious: messages in any order, some lost, and crashes, by seed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import (
    Believe,
    Certify,
    Doubt,
    Event,
    MessageReceived,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TimePassed,
)
from p2pfl.network.protocol.agreement.proofs import choose_proposal, reports
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Committee,
    Decision,
    Message,
    Place,
    Prepare,
    Promise,
    Proposal,
    Reports,
    Value,
    Vote,
)

SUBJECT = Place(0, 0)
COUNTS, AGAIN = VALUES = (b"\1\xff\xff", b"\0\xff\xff")
"""Outcomes of an attempt."""

SIZES = ((2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 2))
"""Members of a committee, and how many of them are malicious."""


@dataclass
class Chaos:
    """Honest members that believe everything, and malicious ones that sign everything and read all messages."""

    seats: int
    faulty: int
    seed: int
    make: type[Agreement] = Agreement
    decided: dict[str, bytes] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    post: list[tuple[str, str, Message]] = field(default_factory=list)  # receivers, senders and messages
    ballots: set[Ballot] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.source = random.Random(f"{self.seats} {self.faulty} {self.seed}")
        names = tuple(f"peer{number}" for number in range(self.seats))
        self.committee = Committee(names)
        self.malicious = sorted(self.source.sample(names, self.faulty))  # sets of names differ in order by process
        honest = [name for name in names if name not in self.malicious]
        self.honest = {name: self.make(name, SUBJECT, self.committee) for name in honest}
        self.lossy = self.source.choice((0.0, 0.1, 0.3))
        self.hidden = self.source.choice((0.1, 1.0))  # decisions that are lost
        self.quiet = self.source.choice((0, 30, 60))  # steps before anything but the first ballot happens
        self.wanted = self.source.choice(((AGAIN,), (AGAIN,), VALUES))

    def run(self, steps: int = 150) -> set[Value]:
        """Return what was decided, after steps in which anything happens, and a few ballots without faults."""
        owner, first = self.committee.owner, self.committee.first
        if owner in self.honest:
            self.submit(owner, Propose(COUNTS))
        for name in self.malicious:
            if self.source.random() < 0.7:
                self.send(name, self.committee.members, Vote(SUBJECT, name, first, COUNTS, final=False))
        for step in range(steps):
            if self.post and self.source.random() < 0.8:
                self.deliver(lossy=self.lossy)
            elif step >= self.quiet and self.malicious and self.source.random() < 0.5:
                self.attack()
            elif step >= self.quiet:
                self.disturb(self.source.choice(sorted(self.honest)))
        for name in self.source.sample(sorted(self.honest), len(self.honest)):
            self.begin(name)
            while self.post:
                self.deliver(lossy=0.0)
        return {*self.decided.values()}

    def deliver(self, *, lossy: float) -> None:
        """Deliver a message, unless it is lost."""
        to, sender, message = self.post.pop(self.source.randrange(len(self.post)))
        lost = self.source.random() < (self.hidden if isinstance(message, Decision) else lossy)
        if to in self.honest and not lost:
            self.submit(to, MessageReceived(sender, message))
        elif to in self.malicious and isinstance(message, Prepare):
            self.send(to, (sender,), self.promise(to, message.ballot))
        elif to in self.malicious and isinstance(message, Proposal):
            for final in (False, True):
                vote = Vote(SUBJECT, to, message.vote.ballot, message.value, final=final)
                self.send(to, self.committee.members, vote)

    def disturb(self, name: str) -> None:
        """Let a member begin a ballot, or crash and come back with its record."""
        if name == self.committee.owner and self.source.random() < 0.5:
            self.submit(name, Certify())
            return
        if self.source.random() < 0.2:
            self.honest[name] = self.make(name, SUBJECT, self.committee, self.honest[name]._durable)
            return
        self.begin(name)

    def begin(self, name: str) -> None:
        """Let a member begin a ballot."""
        made = self.honest[name]
        made.wanted = made.wanted or self.source.choice(self.wanted)
        self.submit(name, Doubt())
        self.submit(name, TimePassed(), now=made.due)

    def submit(self, name: str, event: Event, *, now: float = 0.0) -> None:
        made, todo = self.honest[name], [event]
        while todo:
            for effect in made.handle(todo.pop(), now=now):
                match effect:
                    case StoreRecord():
                        todo.append(RecordStored())
                    case Send(to, message) if not isinstance(message, Reports):
                        self.send(name, to, message)
            if made.questioned is not None:
                todo.append(Believe(made.questioned))
        decision = made.decision
        if decision is not None:
            if name not in self.decided and decision.votes[0].ballot.proposer == name:
                self.send(name, self.committee.members, decision)
            self.decided[name] = decision.value

    def send(self, name: str, to: Iterable[str], message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, Prepare):
            self.ballots.add(message.ballot)
        self.post += [(each, name, message) for each in to]

    # ------------------------------------------------------------------ malicious members

    def attack(self) -> None:
        """Sign something at random, and send it to some."""
        name = self.source.choice(self.malicious)
        to = self.source.sample(self.committee.members, self.source.randint(1, self.seats))
        first, last = self.committee.first, max(self.ballots, default=Ballot(1, name))
        own = Ballot(last.number + self.source.choice((0, 1)), name)
        value = self.source.choice(VALUES)
        kind = self.source.choice(("accepts", "votes", "promises", "prepares", "proposes", "decides"))
        if kind == "accepts":
            ballot = self.source.choice((first, last))
            self.send(name, to, Vote(SUBJECT, name, ballot, value, final=False))
        elif kind == "votes":
            self.send(name, to, Vote(SUBJECT, name, self.source.choice((first, last)), value))
        elif kind == "promises":
            self.send(name, (last.proposer,), self.promise(name, last))
        elif kind == "prepares":
            self.send(name, to, Prepare(SUBJECT, own))
        elif kind == "proposes":
            self.propose(name, to)
        else:
            self.decide(name, to)

    def promise(self, name: str, ballot: Ballot) -> Promise:
        """Return a promise with a false last acceptance, and perhaps a vote that can be proved."""
        value = self.source.choice((*VALUES, None))
        accepted = None if value is None else self.committee.first
        return Promise(SUBJECT, name, ballot, accepted=accepted, accepted_value=value)

    def propose(self, name: str, to: Iterable[str]) -> None:
        """Propose what some of the promises for a ballot of its own allow, with those of all malicious members."""
        if name == self.committee.owner:
            self.certify(name, to)
        own = [each for each in self.ballots if each.proposer == name]
        if not own:
            return
        ballot = self.source.choice(sorted(own))
        promises = {each.member: each for each in self.sent if isinstance(each, Promise) and each.ballot == ballot}
        promises = {member: each for member, each in promises.items() if reports(each, committee=self.committee)}
        promises |= {each: self.promise(each, ballot) for each in self.malicious}
        few = sorted(promises.values(), key=lambda each: (self.source.random(), each.member))
        few = few[: max(self.committee.majority, self.source.randint(1, self.seats))]
        value = choose_proposal(few, wanted=self.source.choice(VALUES), committee=self.committee)
        if value is not None:
            proof = next((each.proof for each in few if each.value == value), ())
            self.send(name, to, Proposal(Vote(SUBJECT, name, ballot, value, final=False), tuple(few), proof))

    def certify(self, name: str, to: Iterable[str]) -> None:
        """Show acceptances that were sent in the first ballot, and false ones, if they are a majority."""
        value, first = self.source.choice(VALUES), self.committee.first
        shown = self.votes(first, value, final=False)
        if len(shown) >= self.committee.majority:
            self.send(name, to, Proposal(shown[name], (), tuple(shown.values())))

    def votes(self, ballot: Ballot, value: Value, *, final: bool) -> dict[str, Vote]:
        """Return the votes or acceptances of a value in a ballot, by member: those that were sent, and false ones."""
        votes = {each: Vote(SUBJECT, each, ballot, value, final=final) for each in self.malicious}
        for each in self.sent:
            if isinstance(each, Vote) and (each.ballot, each.value, each.final) == (ballot, value, final):
                votes[each.member] = each
        return votes

    def decide(self, name: str, to: Iterable[str]) -> None:
        """Send a decision if the votes or acceptances that were sent, and false ones, prove it."""
        value, final = self.source.choice(VALUES), self.source.choice((True, False))
        for ballot in (self.committee.first, *sorted(self.ballots)):
            decision = Decision(SUBJECT, value, tuple(self.votes(ballot, value, final=final).values()))
            if decision.holds(self.committee):
                self.send(name, to, decision)
