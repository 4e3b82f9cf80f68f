r"""Part of one member in the agreement of a committee on the outcome of an attempt.

The protocol is single-decree Paxos among a committee of n members, of which a majority decides, with the proofs of
PBFT: members check what they accept, so that Byzantine members cannot make others vote for a value that its proposer
was not free to choose. The first ballot belongs to the owner and needs no promises, because no ballot is below it. That
an attempt counts is decided there without votes, once all members have accepted it: they send their acceptances to the
owner alone. If some do not, the owner shows the others the acceptances of a majority, and they send it their votes.

1. A member that proposes in ballot b asks all members to promise to vote in no ballot below b. Each member answers with
   its signed promise, which names its last vote and its last acceptance, and with the proof of that vote.
2. Once a majority has promised, the proposer sends these promises with a value: that of the highest vote that was
   reported; or else that the attempt counts, if all honest members among these may have accepted it; or else the value
   that it wants. The others check this and send their acceptances to all, unless they have promised a higher ballot. A
   value that no promise demands they accept only if they believe it.
3. Once a majority has accepted a value in one ballot, each member votes for it. The acceptances prove its vote.
4. A value is decided once a majority has voted in one ballot. These votes prove it to every peer.

A record is durable before a member sends any vote, acceptance or promise in it. The member counts its own only then.
A decision needs no write of its own, because it follows again from the durable statements that it consists of. A peer
that is no member of the committee takes part with this class as well: it keeps the decision.

*Two decisions agree.* Let v be decided in ballot b, and let b' > b be the least higher ballot in which another value
was proposed. Its proposer received promises of a majority, which shares a member with the majority that voted in b.
That member voted in b before it promised b', so it reported a vote in b or in a ballot between b and b', all of which
are for v. The proposer took the highest of these, which is v. This is a contradiction. ∎ With Byzantine members, and
with acceptances of all, see :mod:`p2pfl.network.protocol.agreement.proofs`.

*Progress.* No protocol decides within a fixed time if messages can be delayed without bound. This one decides once a
majority can communicate and one proposer is not overtaken while its messages travel. Each ballot number belongs to one
member, in turn, and turns become twice as long with each cycle. Nobody promises a ballot before its turn, so no
Byzantine member overtakes others in theirs.

References
----------
L. Lamport, "The part-time parliament", ACM TOCS 16(2), 1998.
M. Fischer, N. Lynch, M. Paterson, "Impossibility of distributed consensus with one faulty process", JACM 32(2), 1985.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from p2pfl.network.protocol.agreement.agreement_effects import (
    BLANK,
    Believe,
    Certify,
    Contradicted,
    Doubt,
    Effect,
    Event,
    MemberRecord,
    MessageReceived,
    Propose,
    RecordStored,
    Send,
    StoreRecord,
    TickAt,
    TimePassed,
)
from p2pfl.network.protocol.agreement.proofs import (
    choose_proposal,
    contradict,
    follows,
    highest_report,
    reports,
)
from p2pfl.network.protocol.agreement.turns import turn
from p2pfl.network.protocol.wire.verdict_messages import (
    HIGHEST,
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
    majority,
)

LEAP = 1 << 16
"""Ballot numbers that one request can use up: a member ignores requests further above all ballots that it knows of."""

Sign = Callable[[bytes], bytes]
"""Function that signs a statement."""


def empty_signature(statement: bytes) -> bytes:
    """Return an empty signature."""
    del statement
    return b""


@dataclass
class Agreement:
    """Member of a committee, as a state machine without a clock, a disk or a network.

    Parameters
    ----------
    me
        Name of the peer.
    subject, committee
        Subject of the decision, and members that decide it.
    record
        Record of an earlier incarnation of the agreement; nothing else survives a crash.
    pause
        Seconds that a ballot may take, about twice the latency of a message.
    sign
        Function that signs statements.
    incarnation
        Incarnation of the member, which its statements name.

    Examples
    --------
    In a committee of three, the owner's proposal and one more acceptance certify a value.

    >>> committee, place = Committee(("ada", "bob", "eve")), Place(0, 0)
    >>> bob = Agreement("bob", place, committee)
    >>> proposal = Vote(place, "ada", committee.first, b"counts", final=False)
    >>> bob.handle(MessageReceived("ada", proposal), now=0.0), bob.questioned
    ([], b'counts')
    >>> [type(effect).__name__ for effect in bob.handle(Believe(b"counts"), now=0.0)]
    ['StoreRecord']
    >>> [type(effect).__name__ for effect in bob.handle(RecordStored(), now=0.0)]
    ['Send', 'StoreRecord']
    >>> vote = Vote(place, "ada", committee.first, b"counts")
    >>> bob.handle(MessageReceived("ada", vote), now=0.0)
    []
    >>> [type(effect).__name__ for effect in bob.handle(RecordStored(), now=0.0)], bob.value
    (['Send'], b'counts')
    """

    me: str
    subject: Place
    committee: Committee
    record: MemberRecord = BLANK
    pause: float = 1.0
    sign: Sign = field(default=empty_signature, repr=False)
    incarnation: int = 0
    wanted: Value | None = None
    """Value to propose if no vote is reported; ``None`` as long as the peer does not know."""
    due: float = math.inf
    """Time at which to begin a ballot."""
    _votes: dict[str, Vote] = field(default_factory=dict)  # by member, its vote in the highest ballot
    _proposed: tuple[Ballot, Value] | None = None  # what this member accepts once it believes it
    _acceptances: dict[str, Vote] = field(default_factory=dict)  # by member, its acceptance in the highest ballot
    _promises: dict[str, Promise] = field(default_factory=dict)  # for the ballot that this member prepares
    _preparing: Ballot | None = None
    _prevented: frozenset[str] = frozenset()  # members that have promised a higher ballot than that
    _cycle: int = 0  # cycle of the next ballot that this incarnation begins
    _postponers: frozenset[str] = frozenset()  # members for which this one has let a turn pass
    _highest: int = 0  # number of the highest known ballot
    _durable: MemberRecord = BLANK
    _written: MemberRecord | None = None  # write in progress
    _held: list[Send] = field(default_factory=list)  # sent once the write in progress is durable
    _next: list[Send] = field(default_factory=list)  # sent once the current record is durable
    _effects: list[Effect] = field(default_factory=list)
    _now: float = 0.0

    def __post_init__(self) -> None:
        self._durable = self.record
        self._highest = max(self.record.promised.number, 0)
        if self.record.voted is not None:
            self._votes[self.me] = self.record.voted
        if self.record.accepted is not None:
            self._acceptances[self.me] = self.record.accepted

    @property
    def value(self) -> Value | None:
        """Decided value; ``None`` before."""
        return None if self.decision is None else self.decision.value

    @property
    def decision(self) -> Decision | None:
        """Decision; ``None`` before."""
        return self.record.decided

    @property
    def questioned(self) -> Value | None:
        """Value that this member accepts once it believes it; ``None`` if there is none."""
        return self._proposed[1] if self._proposed is not None and self._accepts(self._proposed[0]) else None

    @property
    def sent(self) -> tuple[Vote, ...]:
        """Votes that this incarnation has sent, to repeat them while nothing is decided."""
        made = (self._durable.accepted, self._durable.voted)
        return tuple(each for each in made if each is not None and each.incarnation == self.incarnation)

    def handle(self, event: Event, *, now: float) -> list[Effect]:
        """Handle an event; return the effects to carry out, in order.

        Parameters
        ----------
        event
            Arrival, outcome of an effect, or request of the peer.
        now
            Seconds on the clock of this peer.
        """
        self._now = now
        due = self.due
        match event:
            case Propose(value):
                self._propose(value)
            case Believe(value):
                self._believe(value)
            case Certify():
                self._certify()
            case Doubt():
                self._wait()
            case MessageReceived(sender, message):
                self._receive(sender, message)
            case RecordStored():
                self._finish_write()
            case TimePassed():
                self._tick()
        renewed = isinstance(event, TimePassed)  # a caller with one timer for many agreements has stopped it
        if (renewed or self.due != due) and self.due < math.inf:
            self._effects.append(TickAt(self.due))
        effects, self._effects = self._effects, []
        return effects

    # ------------------------------------------------------------------ requests of the peer

    def _propose(self, value: Value) -> None:
        """Propose in the first ballot if this member owns it and has promised no higher one."""
        self.wanted = value
        first, record = self.committee.first, self.record
        if record.decided is not None:
            return
        if self.me == self.committee.owner and record.accepted is None and record.promised < first:
            self._accept(first, value)
        elif self._preparing is not None and len(self._promises) >= self.committee.majority:
            self._propose_from(self._preparing)

    def _believe(self, value: Value) -> None:
        """Accept what another member has proposed, unless this member has promised or accepted otherwise."""
        if self.questioned == value and self._proposed is not None:
            (ballot, _), self._proposed = self._proposed, None
            self._accept(ballot, value)

    def _wait(self) -> None:
        """Schedule a ballot, after a pause in which the members ranked before this one can begin theirs."""
        if self.record.decided is None and self.due == math.inf and self.me in self.committee.members:
            self.due = self._now + self.pause * self.until(self._next_number())

    def _postpone(self, proposer: str) -> None:
        """Let one turn of this member pass, so that another proposer has time to finish its ballot.

        Each proposer delays this member once, or else a Byzantine one could do so for ever. The owner begins a ballot
        if it hears nobody. Its request may arrive late, even after it has left, so it delays no ballot that is due.
        """
        if proposer in self._postponers or (proposer == self.committee.owner and self.due < math.inf):
            return
        self._postponers |= {proposer}
        self.due = (self._now if self.due == math.inf else self.due) + self._gap
        self._cycle += 1

    @property
    def _gap(self) -> float:
        """Seconds from the turn of this member in a cycle to that in the next one."""
        seats, number = len(self.committee.members), self._number(self._cycle)
        return self.pause * (turn(number + seats, seats) - turn(number, seats))

    def until(self, number: int) -> int:
        """Return the number of pauses up to the turn of a ballot, for a member that begins to doubt."""
        seats = len(self.committee.members)
        return turn(number, seats) - turn(max(self.record.promised.number, 0) + 1, seats)

    def takes_turn(self, ballot: Ballot) -> bool:
        """Return whether the proposer of a ballot is the member to which its number belongs."""
        owner, *others = self.committee.members
        return [*others, owner][(ballot.number - 1) % len(self.committee.members)] == ballot.proposer

    def _number(self, cycle: int) -> int:
        """Return the number of this member's ballot in a cycle; the owner is last, because it is in doubt."""
        owner, *others = self.committee.members
        return cycle * len(self.committee.members) + [*others, owner].index(self.me) + 1

    def _next_number(self) -> int:
        """Move on to the first cycle in which this member's ballot is above all known ones; return its number."""
        while self._number(self._cycle) <= self._highest:
            self._cycle += max(1, (self._highest - self._number(self._cycle)) // len(self.committee.members))
        return self._number(self._cycle)

    def _tick(self) -> None:
        if self._now >= self.due:
            self._prepare()

    # ------------------------------------------------------------------ proposing

    def _prepare(self) -> None:
        """Begin a ballot above all known ones."""
        number = self._next_number()
        self.due = self._now + self._gap
        if number >= HIGHEST:
            return
        self._highest = number
        self._cycle += 1
        ballot = Ballot(self._highest, self.me)
        self._preparing, self._promises, self._prevented = ballot, {}, frozenset()
        self.record = msgspec.structs.replace(self.record, promised=ballot)
        self._send_all(Prepare(self.subject, ballot))
        self._send((self.me,), self._promise())
        self._store()

    def _promise(self) -> Promise:
        """Return the promise that the record contains."""
        promise = Promise(
            self.subject,
            self.me,
            self.record.promised,
            None if self.record.voted is None else self.record.voted.ballot,
            None if self.record.voted is None else self.record.voted.value,
            incarnation=self.incarnation,
            accepted=None if self.record.accepted is None else self.record.accepted.ballot,
            accepted_value=None if self.record.accepted is None else self.record.accepted.value,
            proof=self.record.proof,
        )
        return msgspec.structs.replace(promise, signature=self.sign(promise.statement))

    def _receive_promise(self, sender: str, promise: Promise) -> None:
        """Propose once a majority has promised."""
        if self._preparing is None or promise.member != sender:
            return
        if promise.ballot > self._preparing and sender not in self._prevented | {*self._promises}:
            self._prevented |= {sender}
            self._catch_up(promise.ballot)
        if promise.ballot != self._preparing or not self._honest(promise):
            return
        if not reports(promise, committee=self.committee):
            return
        self._promises[sender] = promise
        if len(self._promises) >= self.committee.majority:
            self._propose_from(promise.ballot)

    def _propose_from(self, ballot: Ballot) -> None:
        """Propose the value that the promises for a ballot allow; wait for more as long as they allow none."""
        promises = [promise for _, promise in sorted(self._promises.items())]
        value = choose_proposal(promises, wanted=self.wanted, committee=self.committee)
        if value is None:
            return
        self._preparing, self._promises = None, {}
        if ballot < self.record.promised:
            return  # this member has meanwhile promised a higher ballot
        highest, _ = highest_report(promises)
        proof = next((each.proof for each in promises if highest is not None and each.voted == highest), ())
        few = tuple(msgspec.structs.replace(each, proof=()) for each in promises)
        self._accept(ballot, value, few, proof)

    def _honest(self, promise: Promise) -> bool:
        """Return whether a promise hides no vote and no acceptance that this member knows of."""
        for known in (self._votes, self._acceptances):
            vote = known.get(promise.member)
            if vote is not None and contradict(vote, promise):
                self._effects.append(Contradicted(vote, promise))
                return False
        return True

    # ------------------------------------------------------------------ accepting

    def _accept(
        self, ballot: Ballot, value: Value, promises: tuple[Promise, ...] = (), proof: tuple[Vote, ...] = ()
    ) -> None:
        """Accept a value in a ballot; the proposer shows the others that it may be accepted."""
        vote = self._sign(ballot, value, final=False)
        self.record = msgspec.structs.replace(self.record, promised=ballot, accepted=vote)
        if self.committee.decides_at_once(ballot, value) and self.me != self.committee.owner:
            self._send((self.committee.owner,), vote)
        else:
            self._send_all(Proposal(vote, promises, proof) if promises else vote)
        self._send((self.me,), vote)
        self._store()

    def _accepts(self, ballot: Ballot) -> bool:
        """Return whether this member can accept in a ballot: it has neither promised a higher one nor accepted."""
        own = self.record.accepted
        return ballot >= self.record.promised and (own is None or own.ballot < ballot)

    def _receive_proposal(self, proposal: Proposal) -> None:
        """Accept a proposal that its promises demand; consider one that they only allow."""
        vote = proposal.vote
        if not follows(proposal, committee=self.committee):
            return
        self._highest = max(self._highest, vote.ballot.number)
        if {*map(self._honest, proposal.promises)} - {True}:  # all are looked at, each hidden vote is a proof
            return
        self._receive_acceptance(vote)
        if vote.ballot == self.committee.first:
            if self._may_vote(vote.ballot):
                self._vote(vote.ballot, vote.value, proposal.proof)
            return
        if not self._accepts(vote.ballot):
            return
        if choose_proposal(proposal.promises, wanted=None, committee=self.committee) is not None:
            self._accept(vote.ballot, vote.value)
        else:
            self._consider(vote)

    def _consider(self, vote: Vote) -> None:
        """Keep a proposal until this member believes it."""
        if self._accepts(vote.ballot) and (self._proposed is None or self._proposed[0] < vote.ballot):
            self._proposed = vote.ballot, vote.value

    def _receive_acceptance(self, vote: Vote) -> None:
        """Vote for a value that a majority has accepted in one ballot."""
        if not self._note(vote, self._acceptances):
            return
        if vote.ballot == self.committee.first and vote.member == self.committee.owner != self.me:
            self._consider(vote)
        if self.committee.decides_at_once(vote.ballot, vote.value):
            self._count_acceptances(vote)
            return
        many = majority(self._acceptances, self.committee)
        if many:
            self._highest = max(self._highest, many[0].ballot.number)
        if many and self._may_vote(many[0].ballot):
            self._vote(many[0].ballot, many[0].value, many)

    def _count_acceptances(self, last: Vote) -> None:
        """Decide if all members have accepted the value of the first ballot."""
        decision = Decision(self.subject, last.value, tuple(vote for _, vote in sorted(self._acceptances.items())))
        if decision.holds(self.committee):
            self._decide(decision)

    def _note(self, vote: Vote, votes: dict[str, Vote]) -> bool:
        """Keep a member's statement in the highest ballot; return whether it contradicts none before."""
        before = votes.get(vote.member)
        if before is not None and contradict(before, vote):
            self._effects.append(Contradicted(before, vote))
            return False
        if before is None or before.ballot < vote.ballot:
            votes[vote.member] = vote
        return True

    # ------------------------------------------------------------------ voting

    def _certify(self) -> None:
        """Vote in the owner's ballot, and let the others vote, once a majority has accepted that the attempt counts."""
        own, first = self.record.accepted, self.committee.first
        if self.me != self.committee.owner or own is None or not self._may_vote(first):
            return
        many = majority(self._acceptances, self.committee)
        if many and own.ballot == first and self.committee.decides_at_once(many[0].ballot, many[0].value):
            self._send_all(Proposal(own, (), many))
            self._vote(first, own.value, many)

    def _may_vote(self, ballot: Ballot) -> bool:
        """Return whether this member can vote in a ballot: it has neither promised a higher one nor voted."""
        own = self.record.voted
        return self.record.decided is None and ballot >= self.record.promised and (own is None or own.ballot < ballot)

    def _vote(self, ballot: Ballot, value: Value, proof: tuple[Vote, ...]) -> None:
        """Vote in a ballot that is not below the promised one and is above that of the last vote."""
        vote = self._sign(ballot, value)
        self.record = msgspec.structs.replace(self.record, promised=ballot, voted=vote, proof=proof)
        if not self.committee.decides_at_once(ballot, value):
            self._send_all(vote)
        elif self.me != self.committee.owner:
            self._send((self.committee.owner,), vote)
        self._send((self.me,), vote)
        self._store()

    def _sign(self, ballot: Ballot, value: Value, *, final: bool = True) -> Vote:
        vote = Vote(self.subject, self.me, ballot, value, incarnation=self.incarnation, final=final)
        return msgspec.structs.replace(vote, signature=self.sign(vote.statement))

    def _receive(self, sender: str, message: Message) -> None:
        """Handle a message of a member, or a decision, which proves itself."""
        seats = self.committee.members
        if message.subject != self.subject or not (isinstance(message, Decision) or {sender, self.me} <= {*seats}):
            return
        if self.record.decided is not None:
            self._answer(sender, message, self.record.decided)
            return
        match message:
            case Prepare(ballot=ballot) if ballot.number and ballot.proposer == sender and self._possible(ballot):
                self._receive_prepare(sender, ballot)
            case Promise():
                self._receive_promise(sender, message)
            case Proposal() if message.vote.member == sender:
                self._receive_proposal(message)
            case Vote() if message.member == sender and self.committee.owns(message.ballot):
                (self._receive_vote if message.final else self._receive_acceptance)(message)
            case Decision() if message.holds(self.committee):
                self._decide(message)

    def _answer(self, sender: str, message: Message, decision: Decision) -> None:
        """Handle a message after the decision: answer a request with it, and report contradictory votes."""
        match message:
            case Prepare():
                self._effects.append(Send((sender,), decision))
            case Vote(member=member) | Promise(member=member) if member == sender:
                for vote in decision.votes:
                    if contradict(vote, message):
                        self._effects.append(Contradicted(vote, message))

    def _possible(self, ballot: Ballot) -> bool:
        """Return whether a requested ballot can exist and is not far above all known ones, and record its number.

        Members that are far behind catch up by ``LEAP`` with each request. Numbers in votes need no limit: only what a
        majority states matters.
        """
        if not self.committee.owns(ballot):
            return False
        most = self._highest + LEAP
        self._highest = max(self._highest, min(ballot.number, most))
        return ballot.number <= most

    def _catch_up(self, ballot: Ballot) -> None:
        """Move this member's next ballot above one that prevents its last one, by one more cycle at most.

        Else one Byzantine member could move it to a turn that never comes.
        """
        if self.committee.owns(ballot):
            self._highest = max(self._highest, min(ballot.number, (self._cycle + 1) * len(self.committee.members)))

    def _receive_prepare(self, sender: str, ballot: Ballot) -> None:
        """Promise a ballot, or answer with the higher promise that prevents it."""
        if ballot > self.record.promised:
            self.record = msgspec.structs.replace(self.record, promised=ballot)
            self._postpone(ballot.proposer)
        self._send((sender,), self._promise())
        self._store()

    def _receive_vote(self, vote: Vote) -> None:
        """Keep a vote, and check whether it decides."""
        if self._note(vote, self._votes):
            self._count()

    def _count(self) -> None:
        """Decide if a majority has voted in one ballot."""
        votes = majority(self._votes, self.committee)
        if votes:
            self._decide(Decision(self.subject, votes[0].value, votes))

    def _decide(self, decision: Decision) -> None:
        """Record a decision, with what is next stored, and discard all other state and what was not sent yet."""
        self.record = MemberRecord(decided=decision)
        self._votes, self._acceptances, self._promises, self._preparing, self._proposed = {}, {}, {}, None, None
        self._prevented, self._highest, self._cycle, self.due = frozenset(), 0, 0, math.inf
        self._postponers, self._next = frozenset(), []

    # ------------------------------------------------------------------ records and messages that wait for them

    def _send_all(self, message: Message) -> None:
        others = tuple(member for member in self.committee.members if member != self.me)
        if others:
            self._send(others, message)

    def _send(self, to: tuple[str, ...], message: Message) -> None:
        """Send a message once the record is durable; a message to this member itself is handled then."""
        self._next.append(Send(to, message))

    def _store(self) -> None:
        """Store the record after the write in progress; if it is durable already, send its messages at once."""
        if self._written is not None:
            return
        if self.record != self._durable and self.record.decided is None:
            self._written = self.record
            self._held, self._next = self._next, []
            self._effects.append(StoreRecord(self.record))
        elif self._next:
            waiting, self._next = self._next, []
            self._release(waiting)

    def _finish_write(self) -> None:
        """Send the messages that waited for the record, and store the next record."""
        if self._written is None:
            return
        self._durable, self._written = self._written, None
        effects, self._held = self._held, []
        self._store()
        self._release(effects)

    def _release(self, messages: list[Send]) -> None:
        """Send messages to others, and handle those to this member."""
        self._effects += [each for each in messages if each.to != (self.me,)]
        for each in messages:
            if each.to == (self.me,) and not isinstance(each.message, Reports):
                self._receive(self.me, each.message)
