"""Commit of rounds: all members of an attempt at a round keep its parameters, or none of them does."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, AttemptOutcome, complete
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.interface.effects import Concluded, Undecided
from p2pfl.network.protocol.interface.requests import ReportAttempt, Try
from p2pfl.network.protocol.session.decisions.admissions import RESTARTED, Admissions
from p2pfl.network.protocol.session.decisions.ballots import Ballots
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import (
    REPORTS,
    Admission,
    Agreed,
    Contradiction,
    JoinRequest,
    OfVerdicts,
    Place,
    Prepare,
    Reports,
    check_author,
)

EARLY = 8
"""Messages of a member that this peer keeps for the attempt that it begins next, besides those with all reports."""

NEARBY = 7
"""Neighbours that a peer asks at once for a decision that it lacks."""

NO_PLACE = Place(-1, -1)
"""Place before the first attempt."""


@dataclass
class Commits:
    """Settlement of the attempts at a round.

    Parameters
    ----------
    shared, neighbours
        State that the parts of the session share, and what follows from an exclusion.
    """

    shared: Shared
    neighbours: Neighbours
    ballots: Ballots = field(init=False)
    admissions: Admissions = field(init=False)
    _place: Place = NO_PLACE  # attempt that this peer has begun last
    _before: Place = NO_PLACE  # the one before it
    _members: tuple[str, ...] = ()
    _asked: ReportAttempt | None = None
    _since: float = 0.0
    _again: float = math.inf  # time to ask for a decision that may be lost
    _requests: int = 0  # for the decision on the attempt
    _ballots: dict[str, float] = field(default_factory=dict)  # by member, when it first asked for promises
    _early: deque[tuple[str, Agreed]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.ballots = Ballots(self.shared, self.neighbours)
        self.admissions = Admissions(self.shared)

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> None:
        """Continue with the records of an earlier incarnation of this peer."""
        self.ballots.restore(kept)

    def records(self) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        return self.ballots.records(oldest=self._place.round - 1)

    # ------------------------------------------------------------------ requests of the peer

    def begin(self, asked: Try) -> None:
        """Begin an attempt, and handle the messages about it that came early."""
        self._before, self._place = self._place, Place(asked.round, asked.attempt)
        self._members = asked.members
        self.shared.abandoned, self._ballots = False, {}
        self.ballots.keep([self._before], oldest=asked.round - 1)
        self.ballots.begin(self._place, self._members)
        self.admissions.begin(*self._place, self._members)
        taking_part = {peer: each for peer, each in self.admissions.incarnations.items() if each != RESTARTED}
        self.ballots.statements.meet(taking_part)
        early, self._early = self._early, deque()
        for sender, message in early:
            try:
                self._handle(sender, message)
            except DecodeError:
                self.shared.refuse(sender, "not a message")

    def ask(self, asked: ReportAttempt) -> None:
        """Report whether this peer is complete, and begin to wait for the outcome."""
        now = self.shared.now
        self._asked, self._since, self._again = asked, now, now + 2 * PULSE
        self.shared.active.add("commits")
        self._doubt()
        self._requests = int(self._is_gone(self._settlement.committee.owner))  # or else its owner alone is told
        joins = self._candidate()
        value = complete(asked.incarnations, joins=joins) if asked.complete else FAILED
        self.ballots.do(self._place, self._settlement.report(value, now=now))
        self.ballots.write()

    # ------------------------------------------------------------------ incoming messages

    def receive(self, sender: str, message: OfVerdicts) -> None:
        """Handle a message of another member.

        Raises
        ------
        DecodeError
            The message contains a statement that its member has not signed, or is of another incarnation.
        """
        if isinstance(message, Contradiction):
            self.ballots.accuse(message.one, message.other)
            return
        if isinstance(message, Admission):
            self.admissions.receive(sender, message)
            return
        if isinstance(message, JoinRequest):
            present = Admission(max(self._place.round, 0), max(self._place.attempt, 0), self._members)
            self.shared.abandoned |= self.admissions.receive_request(sender, message, present)
            return
        check_author(message, sender=sender)
        self._handle(sender, message)

    def _handle(self, sender: str, message: Agreed) -> None:
        place = message.subject
        if place > self._place:
            self._hold(sender, message, place)
        settlement = self.ballots.open.get(place)
        if settlement is None:
            self.ballots.answer(sender, message)
            return
        if isinstance(message, Reports):
            if message.proposal is not None and not settlement.seated:
                return  # it concerns the committee alone
            message = self._checked(sender, message, settlement)
            if place == self._place:
                self._doubt()  # or else this peer leaves it to members that are gone to announce a failure
        elif settlement.agreement.record.decided is None:
            self.ballots.statements.check(message, committee=settlement.committee)
        self.ballots.do(place, settlement.receive(sender, message, now=self.shared.now))
        if isinstance(message, Prepare) and place == self._place:
            self._ballots.setdefault(sender, self.shared.now)
        self.ballots.write()

    def _checked(self, sender: str, message: Reports, settlement: Settlement) -> Reports:
        """Return what members have stated in truth, and stop waiting for models if one of them has failed.

        That a member is complete needs no signature here where its tag is enough: it concerns this peer alone then. A
        failure is announced to all, and who is neither the member nor the owner could have changed the signature.

        Raises
        ------
        DecodeError
            There is neither a report of a member on the attempt nor a proposal, or the proposal is not the sender's.
        """
        statements, subject, tagged = self.ballots.statements, settlement.subject, settlement.takes_tags
        owner = settlement.committee.owner
        if message.proposal is not None and settlement.agreement.record.decided is None:
            statements.check(message.proposal, committee=settlement.committee)
        credible = tuple(
            each
            for each in message.reports
            if each.subject == subject
            and each.member in settlement.members
            and statements.believes(
                each, sender=sender, tagged=sender in {each.member, owner} and tagged and each.value != FAILED
            )
        )
        if not credible and message.proposal is None:
            raise DecodeError("expected reports that members have signed, got others")
        if subject == self._place:
            self.shared.abandoned |= any(each.value == FAILED for each in credible)
        return Reports(subject, credible, message.proposal)

    def _hold(self, sender: str, message: Agreed, place: Place) -> None:
        """Keep a message about an attempt that this peer has not begun, because it lacks the last decision."""
        round, attempt = self._place
        soon = place in {(round, attempt + 1), (round + 1, attempt)} or not self._members
        most = EARLY + len(self.shared.edges.topology.peers) // REPORTS
        if soon and sum(each == sender for each, _ in self._early) < most:
            self._early.append((sender, message))

    # ------------------------------------------------------------------ decisions

    @property
    def waits(self) -> frozenset[str]:
        """Members whose reports, or whose decision, this peer waits for; or which have to admit it."""
        if self.admissions.active:
            return self.shared.membership.present
        if self._asked is None:
            return frozenset()
        settlement = self._settlement
        others = frozenset(settlement.committee.members) - {self.shared.me.peer}
        return (settlement.silent or others) if settlement.seated else others

    @property
    def active(self) -> bool:
        """True if the peer waits for an outcome, or to be a member."""
        return self._asked is not None or self.admissions.active

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        if self.admissions.active:
            return self.admissions.wake
        late = min((each for each in self._deadlines() if each > self.shared.now), default=math.inf)
        return min(self.ballots.wake, late, self._again)

    def decide(self) -> None:
        """Answer if the outcome is there, or the timeout has passed."""
        if self.admissions.active:
            self.admissions.decide()
            return
        now, ballots = self.shared.now, self.ballots
        self._doubt()
        if now >= ballots.wake:
            ballots.wake = math.inf
            ballots.do(self._place, self._settlement.tick(now=now))
        orphaned = not self._requests and self._is_gone(self._settlement.committee.owner)
        if now >= self._again or orphaned:
            ballots.do(self._place, self._settlement.request(self._nearby))
            self._again, self._requests = now + max(PULSE, now - self._since), self._requests + 1
        ballots.write()
        self._judge()

    def _doubt(self) -> None:
        """Let the settlement know which members are gone or silent for too long."""
        settlement, now, here = self._settlement, self.shared.now, self.shared.membership
        watched = self._members if settlement.seated else settlement.committee.members
        left, up, present = {*watched} - {here.me.peer}, here.up, here.present
        began = self.admissions.incarnations
        gone = left - present
        gone |= {each for each in left & present if began.get(each, up[each].incarnation) != up[each].incarnation}
        waits = settlement.seated and self._asked is not None
        may_be_slow = waits and now >= self._since + self.shared.patience
        slow = [peer for peer in settlement.silent if now >= self._slow(peer)] if may_be_slow else []
        self.ballots.do(self._place, settlement.doubt(gone=gone, slow=slow, now=now))

    @property
    def _nearby(self) -> list[str]:
        """A few neighbours in the graph that are members, others with each request: the committee may be gone.

        The committee is asked alone first, because on a dense graph requests to all neighbours are a storm.
        """
        nearby = sorted(self.shared.edges.neighbours & {*self._members} - {*self._settlement.committee.members})
        if not self._requests or not nearby:
            return []
        start = (self._requests - 1) * NEARBY % len(nearby)
        return [*nearby[start:], *nearby[:start]][:NEARBY]

    def _is_gone(self, peer: str) -> bool:
        gone = self._has_restarted(peer) or peer not in self.shared.membership.present
        return peer != self.shared.me.peer and gone

    def _has_restarted(self, peer: str) -> bool:
        """Return whether another incarnation of a member is there than the one that takes part in the attempt."""
        up, incarnations = self.shared.membership.up, self.admissions.incarnations
        return peer in up and incarnations.get(peer, up[peer].incarnation) != up[peer].incarnation

    def _slow(self, peer: str) -> float:
        """Return the time from which a member is too slow; one that has not reported may wait for another one."""
        shared = self.shared
        return shared.timeouts.slow(peer, since=self._since, peers=shared.edges.peers)

    def _deadlines(self) -> list[float]:
        """Return the times from which members are too slow, and last that at which this peer waits no longer.

        Members that lack a model doubt its owner only after they have waited for the model and for its report. Whenever
        a member begins a ballot, there is time for another one.
        """
        slow = [self._slow(peer) for peer in self._settlement.silent]
        last = max([self._since, *slow]) + self.shared.patience
        return [*(slow if self._settlement.seated else ()), max([last, *self._ballots.values()]) + self.shared.patience]

    def _judge(self) -> None:
        settlement = self._settlement
        outcome = settlement.outcome
        if outcome is not None:
            self._asked, self.shared.abandoned = None, False
            if self._before in self.ballots.open:
                present = frozenset(peer for peer in self._members if not self._is_gone(peer))
                self.ballots.withholders.note(self.ballots.open[self._before], present=present)
            for peer in sorted({*self._members} - {*outcome.members, self.shared.me.peer}):
                self._leave_out(peer)
            self.shared.do(Concluded(outcome.committed, self._next_members(outcome), settlement.failed))
        elif self.shared.now >= self._since + self.shared.patience and self.shared.now >= self._deadlines()[-1]:
            waits, self._asked = self.waits, None
            self.shared.do(Undecided(waits))

    def _leave_out(self, peer: str) -> None:
        """Treat a dropped member as gone, unless another incarnation of it is there already."""
        if not self._has_restarted(peer):
            self.neighbours.leave_out(peer)

    def _next_members(self, outcome: AttemptOutcome) -> tuple[str, ...]:
        """Return the members of the next attempt, and notify one that joins."""
        peers = self.shared.edges.topology.peers
        if outcome.joins is None or outcome.joins >= len(peers) or peers[outcome.joins] in self._members:
            return outcome.members
        joins, (round, attempt) = peers[outcome.joins], self._place
        members = tuple(sorted({*outcome.members, joins}))
        self.admissions.admit(joins, round + 1, attempt, members)
        return members

    def _candidate(self) -> int | None:
        """Return the place of a peer that may be a member of the next round; ``None`` in the last round."""
        round = self._place.round
        return self.admissions.candidate(self._members, round=round) if round + 1 < self.shared.rounds else None

    @property
    def _settlement(self) -> Settlement:
        return self.ballots.open[self._place]
