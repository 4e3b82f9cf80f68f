"""Part of one peer in the settlement of one attempt: its report, those that it collects, and the agreement on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement import Agreement, Sign, empty_signature
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
    TickAt,
    TimePassed,
)
from p2pfl.network.protocol.agreement.attempt_reports import (
    FAILED,
    AttemptOutcome,
    are_complete,
    decode_outcome,
    encode_outcome,
    outcome,
)
from p2pfl.network.protocol.agreement.turns import turn
from p2pfl.network.protocol.wire.bounds import TAG_BYTES
from p2pfl.network.protocol.wire.verdict_messages import (
    REPORTS,
    Agreed,
    Committee,
    Decision,
    Place,
    Prepare,
    Report,
    Reports,
    Value,
    Vote,
)

PAUSES = 2
"""Pauses that the owner has to decide once all reports are there, before the next member begins a ballot."""

GRACE = 0.25
"""Pauses that all members of the committee have at least to accept the proposal, before a majority suffices."""


@dataclass
class Settlement:
    """Part of a peer in the settlement of an attempt.

    A member sends its report to the owner of the committee, and the first failure that it knows of also to the next
    members, which announce it to all, so that nobody waits for a model that does not come. The owner proposes the
    outcome and passes on the reports to the rest of the committee. These compare the proposal with the reports and with
    the members that they miss themselves. The proposer of the ballot that decides sends the decision to all, as does
    whoever had promised a later one. A peer that receives none sends its report to the whole committee again, until it
    is answered.

    Parameters
    ----------
    me, subject, members
        Name of the peer, the attempt, and its members.
    committee
        Members that decide its outcome.
    record
        Record of an earlier incarnation of the peer.
    pause, sign, incarnation
        See :class:`~p2pfl.network.protocol.agreement.agreement.Agreement`.
    tag
        Function that returns tags of a statement for the committee.
    proves
        Function that returns whether a member has signed a report, so that others believe it too.
    withholders
        Members for whose acceptance this peer does not wait, because they have withheld one before.
    passed
        Ballots that the owner has let pass. All members send their reports to the committee at once if there was one,
        and half as long is left to the owner each time.

    Examples
    --------
    Ada owns the committee of three, so Bob sends its report to the owner alone, and waits for the proposal.

    >>> from p2pfl.network.protocol.agreement.attempt_reports import complete
    >>> names = ("ada", "bob", "eve")
    >>> bob = Settlement("bob", Place(0, 0), names, Committee(names))
    >>> bob.report(complete(), now=0.0)[0].to
    ('ada',)
    """

    me: str
    subject: Place
    members: tuple[str, ...]
    committee: Committee
    record: MemberRecord = BLANK
    pause: float = 1.0
    sign: Sign = field(default=empty_signature, repr=False)
    incarnation: int = 0
    tag: Sign = field(default=empty_signature, repr=False)
    proves: Callable[[Report], bool] = field(default=bool, repr=False)
    withholders: frozenset[str] = frozenset()
    passed: int = 0
    agreement: Agreement = field(init=False)
    failed: str | None = None
    """Member that has reported the first failure that this peer knows of."""
    _accepted: dict[str, Value] = field(default_factory=dict)  # by member, the first value in the owner's ballot
    _own: Report | None = None
    _reports: dict[str, Report] = field(default_factory=dict)  # by member, the first one
    _contradictors: set[str] = field(default_factory=set)  # members that have signed two reports
    _gone: frozenset[str] = frozenset()
    _slow: frozenset[str] = frozenset()
    _ready: float = math.inf  # time at which this member first knew which outcome it wants
    _doubted: bool = False
    _start: float = math.inf  # time of the turn of ballot 1 at this member, which doubts the owner from then on
    _early: dict[str, tuple[int, MessageReceived]] = field(default_factory=dict)  # by member, a request before its turn
    _requests: dict[str, float] = field(default_factory=dict)  # by member, the time of its last one
    _repeats: dict[str, float] = field(default_factory=dict)  # by member, when it last got everything again
    _requested: bool = False  # this member has asked the committee before it proposed
    _proposed: float = math.inf  # time at which this member, the owner, has proposed that the attempt counts
    _carried: float = math.inf  # time at which a majority had accepted it

    def __post_init__(self) -> None:
        self.agreement = Agreement(
            self.me,
            self.subject,
            self.committee,
            self.record,
            pause=self.pause,
            sign=self.sign,
            incarnation=self.incarnation,
        )

    # ------------------------------------------------------------------ events

    def report(self, value: bytes, *, now: float) -> list[Effect]:
        """Report the end of the attempt: the first failure to those that announce it, all else to the owner."""
        own = Report(self.subject, self.me, value, incarnation=self.incarnation)
        self._own = replace(own, signature=self.sign(own.statement), tags=self.tag(own.statement))
        first = value == FAILED and self.failed is None
        effects = self._send(self._audience(first=first), Reports(self.subject, (self._own,)))
        self.failed = self.me if first else self.failed
        return [*effects, *self._note(self._own), *self._reconsider(now=now)]

    def receive(self, sender: str, message: Agreed, *, now: float) -> list[Effect]:
        """Handle a message; the shell has authenticated it and the statements in it."""
        if message.subject != self.subject:
            return []
        if isinstance(message, Reports):
            effects = self._receive_reports(sender, message, now=now)
            return effects if message.proposal is None else [*effects, *self.receive(sender, message.proposal, now=now)]
        if isinstance(message, Vote) and message.member == sender:
            self._note_acceptance(message)
        received = MessageReceived(sender, message)
        if not isinstance(message, Prepare):
            return [*self._handle(received, now=now), *self._reconsider(now=now)]
        if not self.agreement.takes_turn(message.ballot) or self._hurries(sender, now=now):
            return []
        if self.agreement.record.decided is not None:
            return self._handle(received, now=now)
        self._early[sender] = message.ballot.number, received
        return [*self._welcome(now=now), *self._reconsider(now=now)]

    def doubt(self, *, gone: Collection[str], slow: Collection[str], now: float) -> list[Effect]:
        """Take it that members are gone, or have not reported for too long; these may be dropped."""
        before, self._gone, self._slow = (self._gone, self._slow), frozenset(gone), frozenset(slow)
        return [] if before == (self._gone, self._slow) else self._reconsider(now=now)

    def finish_write(self, *, now: float) -> list[Effect]:
        """Handle the confirmation that the last record is durable."""
        return [*self._handle(RecordStored(), now=now), *self._reconsider(now=now)]

    def tick(self, *, now: float) -> list[Effect]:
        """Handle the passage of time."""
        return [*self._reconsider(now=now), *self._welcome(now=now), *self._handle(TimePassed(), now=now)]

    def request(self, others: Collection[str] = ()) -> list[Effect]:
        """Ask the committee and other peers for the decision, with this peer's report, which may be lost."""
        if self._own is None or self.decision is not None:
            return []
        self._requested |= self._proposed == math.inf
        return self._send((*self.committee.members, *others), Reports(self.subject, (self._own,)))

    # ------------------------------------------------------------------ results

    @property
    def decision(self) -> Decision | None:
        """Decision; ``None`` before."""
        return self.agreement.decision

    @property
    def outcome(self) -> AttemptOutcome | None:
        """Outcome; ``None`` before, and if too many Byzantine members have decided what is none."""
        try:
            return None if self.decision is None else decode_outcome(self.decision.value, self.members)
        except DecodeError:
            return None

    @property
    def seated(self) -> bool:
        """True if the peer is a member of the committee."""
        return self.me in self.committee.members

    @property
    def takes_tags(self) -> bool:
        """True if this member need not prove reports: it does not doubt the owner."""
        return self.seated and not self._doubted

    @property
    def accepted(self) -> frozenset[str]:
        """Other members of the committee that have sent this peer their acceptance of the owner's own value."""
        own = self._accepted.get(self.committee.owner)
        return frozenset(member for member, value in self._accepted.items() if value == own) - {self.me}

    @property
    def withheld(self) -> frozenset[str]:
        """Members of the committee that have not accepted what this peer has proposed, although they could.

        A member can accept unless it has promised another ballot. It promises none before it has the reports of all, or
        no longer waits for them. It has this peer's report from this peer, with the proposal, unless this peer has
        asked the committee before, and those of others, which it need not believe if they are not signed. This is no
        proof: colluding members, such as two of seven, can make a healthy one promise earlier.
        """
        if self._proposed == math.inf or self._requested:
            return frozenset()
        missing = frozenset(self.committee.members) - self.accepted - self._gone - {self.me}
        proven = missing and not self.silent and all(map(self.proves, self._reports.values()))
        return missing if proven else frozenset()

    @property
    def passed_ballot(self) -> bool | None:
        """True if another ballot than that of the owner has decided that the attempt counts; ``None`` without that."""
        outcome, decision = self.outcome, self.decision
        if outcome is None or decision is None or not outcome.committed:
            return None
        return decision.votes[0].ballot != self.committee.first

    @property
    def proposed(self) -> bool:
        """True if this member has what the owner has proposed in its ballot."""
        return self.committee.owner in self._accepted

    @property
    def silent(self) -> frozenset[str]:
        """Other members whose report this peer does not have."""
        return frozenset(self.members) - self._reports.keys() - {self.me}

    # ------------------------------------------------------------------ reports

    def _audience(self, *, first: bool) -> Collection[str]:
        """Return who receives this member's report; ``first`` if it is the first failure that this one knows of."""
        seats, owner = self.committee.members, self.committee.owner
        to = seats if self.passed or owner in self._gone else (owner,)
        if not first:
            return to
        return self.members if self.me in self._heralds or self._all_seated else {*to, *self._heralds}

    @property
    def _all_seated(self) -> bool:
        """True if all members sit in the committee, so that each announces a failure itself."""
        return len(self.committee.members) == len(self.members)

    @property
    def _heralds(self) -> tuple[str, ...]:
        """Members of the committee that announce a failure to all members; one of them at least is honest."""
        seats = self.committee.members
        return tuple(each for each in seats if each not in self._gone)[: (len(seats) - 1) // 3 + 1]

    def _announce(self, reports: Collection[Report]) -> list[Effect]:
        """Announce the first failure that this member knows of, so that nobody waits for models any more."""
        failed = next((each for each in reports if each.value == FAILED), None)
        if failed is None or self.failed is not None or self.decision is not None:
            return []
        self.failed = failed.member
        if self._all_seated or self.me not in self._heralds:
            return []
        return self._send(self.members, Reports(self.subject, (failed,)))

    def _receive_reports(self, sender: str, message: Reports, *, now: float) -> list[Effect]:
        """Note reports; a member that sends its own one again asks for the decision, or for what may be lost."""
        reports = [each for each in message.reports if each.subject == self.subject and each.member in self.members]
        effects = self._announce(reports)
        asks = False
        for each in reports:
            asks |= each.member == sender and (self.decision is not None or self._has(each))
            effects += self._note(each)
        if asks and now >= self._repeats.get(sender, -math.inf) + self.pause / 2:
            self._repeats[sender] = now
            effects += self._repeat(sender)
        return [*effects, *self._reconsider(now=now)]

    def _has(self, report: Report) -> bool:
        """Return whether this member has a report, whoever sent it and with whichever tags."""
        known = self._reports.get(report.member)
        return known is not None and known.statement == report.statement

    def _note(self, report: Report) -> list[Effect]:
        """Keep the first report of a member; a second one proves that the member is Byzantine."""
        if not self.seated:
            return []
        first = self._reports.setdefault(report.member, report)
        if first.value == report.value:
            return []
        if first.incarnation == report.incarnation:
            self._contradictors.add(report.member)
        return [Contradicted(first, report)]

    def _note_acceptance(self, vote: Vote) -> None:
        """Keep the first value that a member of the committee has accepted in the owner's ballot."""
        if not vote.final and vote.ballot == self.committee.first and vote.member in self.committee.members:
            self._accepted.setdefault(vote.member, vote.value)

    def _repeat(self, to: str) -> list[Effect]:
        """Send what a member may lack: the decision, or this member's votes and the reports behind its proposal."""
        if self.decision is not None:
            return self._send((to,), self.decision)
        if to not in self.committee.members:
            return []
        effects = [*self._pass_on((to,))] if self.agreement.sent else []
        for vote in self.agreement.sent:
            effects += self._send((to,), vote)
        return effects

    def _with_reports(self, effect: Effect) -> Iterable[Effect]:
        """Yield an effect; the owner passes on the reports with its proposal."""
        match effect:
            case Send(to, Vote(member=self.me, final=False) as vote) if vote.ballot == self.committee.first and (
                self.me == self.committee.owner
            ):
                return self._pass_on(to, proposal=vote)
        return (effect,)

    def _pass_on(self, to: Collection[str], *, proposal: Vote | None = None) -> Iterator[Effect]:
        """Send all reports to members of the committee; but for a proposal, forget those that are not signed.

        Only a malicious member tags what it does not sign. If those that its tags convince kept its report, and others
        could not believe it, neither would ever accept what the others propose.

        Reports for the whole committee go to all members, where fewer others receive them than are sent once more else.
        """
        if proposal is None:
            self._reports = {member: each for member, each in self._reports.items() if self.proves(each)}
        reports = [report for _, report in sorted(self._reports.items())]
        together = len(to) > 1 and len(self.members) < 2 * len(self.committee.members) - 2
        for group in [self.members] if together else [(each,) for each in to]:
            passed = reports if together else [self._for(group[0], report) for report in reports]
            for start in range(0, len(reports), REPORTS):
                last = proposal if start + REPORTS >= len(reports) else None
                yield from self._send(group, Reports(self.subject, tuple(passed[start : start + REPORTS]), last))

    def _for(self, member: str, report: Report) -> Report:
        """Return a report with its tag for one member of the committee alone: many reports are passed on together."""
        seats = [each for each in self.committee.members if each != report.member]
        if member not in seats:
            return report
        start = seats.index(member) * TAG_BYTES
        return replace(report, tags=report.tags[start : start + TAG_BYTES])

    # ------------------------------------------------------------------ outcomes

    def _wanted(self) -> Value | None:
        """Return the outcome that follows from what this member knows; ``None`` as long as it waits for a report."""
        if not self.silent <= self._gone | self._slow or self.me not in self._reports:
            return None
        values = {member: self._reports[member].value if member in self._reports else None for member in self.members}
        return encode_outcome(outcome(values), self.members)

    def _believes(self, value: Value) -> bool:
        """Return whether an outcome may be decided: with reports that this member has, and without members it misses.

        A member that has signed two reports may be taken at either word, or be dropped.
        """
        try:
            outcome = decode_outcome(value, self.members)
        except DecodeError:
            return False
        dropped = {*self.members} - {*outcome.members}
        if not dropped <= self._gone | self._contradictors | (self._slow & self.silent):
            return False
        if not {*outcome.members} <= self._reports.keys():
            return False
        honest = {
            member: self._reports[member].value for member in outcome.members if member not in self._contradictors
        }
        if outcome.committed:
            named = {each[1:3] for each in honest.values()}
            joins = outcome.joins is None or named <= {outcome.joins.to_bytes(2)}
            return joins and are_complete([*honest.values()])
        return bool(dropped or self._contradictors) or not are_complete([*honest.values()])

    def _reconsider(self, *, now: float) -> list[Effect]:
        """Propose, accept, or begin to doubt, as far as what this member knows allows it."""
        if not self.seated or self.agreement.record.decided is not None:
            return []
        effects: list[Effect] = []
        wanted = self._wanted()
        if wanted is not None:
            self._ready = min(self._ready, now)
            if wanted != self.agreement.wanted:
                effects += self._handle(Propose(wanted), now=now)
        questioned = self.agreement.questioned
        if questioned is not None and self._believes(questioned):
            effects += self._handle(Believe(questioned), now=now)
        effects += self._insist(now=now)
        if not self._doubted and self._ready < math.inf:
            due = self._ready + (0 if self.committee.owner in self._gone else self._doubt_pauses * self.pause)
            effects += self._begin_doubt(now=now) if now >= due else [TickAt(due)]
        return effects

    def _insist(self, *, now: float) -> list[Effect]:
        """Let a majority suffice in this peer's ballot, once the others had as long again to accept as it took.

        A majority is there without the malicious members, so they cannot prolong this.
        """
        accepted, seats = self.agreement.record.accepted, self.committee
        if self.me != seats.owner or accepted is None or not seats.decides_at_once(accepted.ballot, accepted.value):
            return []
        self._proposed = min(self._proposed, now)
        if len(self.accepted) + 1 < seats.majority:
            return []
        self._carried = min(self._carried, now)
        missing = {*seats.members} - self.accepted - {self.me}
        due = max(2 * self._carried - self._proposed, self._proposed + GRACE * self.pause)
        if missing <= self._gone | self.withholders or now >= due:
            return self._handle(Certify(), now=now)
        return [TickAt(due)]

    @property
    def _doubt_pauses(self) -> float:
        """Pauses that the owner has to decide once all reports are there."""
        return max(GRACE, PAUSES / 2 ** min(self.passed, PAUSES / GRACE))

    def _begin_doubt(self, *, now: float) -> list[Effect]:
        """Begin to decide without the owner, and let the others know the reports that they may lack."""
        self._doubted, self._start = True, now + self.agreement.pause * self.agreement.until(1)
        effects: list[Effect] = [*self._pass_on(self.committee.members)]
        effects += self._handle(Doubt(), now=now)
        return [*effects, *self._welcome(now=now)]

    def _hurries(self, sender: str, *, now: float) -> bool:
        """Return whether a member asks for promises too often."""
        if now < self._requests.get(sender, -math.inf) + self.pause / 2:
            return True
        self._requests[sender] = now
        return False

    def _welcome(self, *, now: float) -> list[Effect]:
        """Answer requests for promises in the turn of their ballots, once this member doubts too."""
        effects: list[Effect] = []
        early, self._early = self._early, {}
        for sender, (number, received) in early.items():
            due = self._start + self.pause * turn(number, len(self.committee.members))
            if now >= due:
                effects += self._handle(received, now=now)
            else:
                self._early[sender] = number, received
                effects += [TickAt(due)] if due < math.inf else []
        return effects

    # ------------------------------------------------------------------ effects

    def _handle(self, event: Event, *, now: float) -> list[Effect]:
        """Let the agreement handle an event; whoever others wait for sends them a decision."""
        before = self.agreement.record
        effects = self.agreement.handle(event, now=now)
        if self.agreement.record.accepted is not None:
            self._note_acceptance(self.agreement.record.accepted)
        effects = [each for effect in effects for each in self._with_reports(effect)]
        decided = self.decision
        if decided is not None and before.decided is None:
            ballot = decided.votes[0].ballot
            if ballot.proposer == self.me or before.promised > ballot:
                effects += self._send(self.members, decided)
        return effects

    def _send(self, to: Collection[str], message: Agreed) -> list[Effect]:
        others = tuple(sorted({*to} - {self.me}))
        return [Send(others, message)] if others else []
