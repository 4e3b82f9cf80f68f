"""Commit of rounds: all members of an attempt at a round keep its parameters, or none of them does."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import VerdictRecord
from p2pfl.network.protocol.agreement.attempt_reports import FAILED, AttemptOutcome, complete, outcome, report
from p2pfl.network.protocol.agreement.settlement import Settlement
from p2pfl.network.protocol.interface.effects import Concluded, Undecided
from p2pfl.network.protocol.interface.requests import ReportAttempt, Try
from p2pfl.network.protocol.session.decisions.admissions import Admissions
from p2pfl.network.protocol.session.decisions.ballots import Ballots, Place
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE
from p2pfl.network.protocol.session.neighbour_changes import Neighbours
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import (
    Admission,
    Ballot,
    Contradiction,
    JoinRequest,
    Message,
    OfVerdicts,
    Prepare,
    Release,
    Value,
    Vote,
    messages_of,
)

EARLY = 8
"""Messages per member that this peer keeps for the attempt that it begins next."""


@dataclass
class Commits:
    """Agreements on the reports of the members of an attempt.

    Parameters
    ----------
    shared, neighbours
        State that the parts of the session share, and what follows from an exclusion.
    """

    shared: Shared
    neighbours: Neighbours
    ballots: Ballots = field(init=False)
    admissions: Admissions = field(init=False)
    _place: Place = (-1, -1)  # attempt that this peer has begun last
    _members: tuple[str, ...] = ()
    _asked: ReportAttempt | None = None
    _since: float = 0.0
    _again: float = math.inf  # time to request votes that may be lost
    _flushed: float = 0.0
    _doubts: dict[tuple[str, Release], float] = field(default_factory=dict)  # when a member first doubted a report
    _early: deque[tuple[str, Message]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.ballots = Ballots(self.shared, self.neighbours)
        self.admissions = Admissions(self.shared)

    # ------------------------------------------------------------------ records

    def restore(self, kept: Iterable[VerdictRecord]) -> None:
        """Continue with the records of an earlier incarnation of this peer."""
        self.ballots.restore(kept)

    def records(self) -> tuple[VerdictRecord, ...]:
        """Return the records to make durable, in order."""
        return self.ballots.records(oldest=self._place[0] - 1)

    # ------------------------------------------------------------------ requests of the peer

    def begin(self, asked: Try) -> None:
        """Begin an attempt, and handle the messages about it that came early."""
        self._place, self._members, before = (asked.round, asked.attempt), asked.members, self._place
        self.shared.abandoned, self.ballots.batched, self._doubts = False, True, {}
        self.ballots.flush()
        self.ballots.open = {
            attempt: settlement for attempt, settlement in self.ballots.open.items() if attempt == before
        }
        self.ballots.forget(asked.round - 1)
        for member in self._members:
            self.ballots.admit(report(member, *self._place), self._members)
        self.admissions.begin(*self._place, self._members)
        early, self._early = self._early, deque()
        for sender, message in early:
            try:
                self._handle(sender, message)
            except DecodeError:
                self.shared.refuse(sender, "not a message")

    def ask(self, asked: ReportAttempt) -> None:
        """Report whether this peer is complete, and begin to wait for the verdicts on all reports."""
        now = self.shared.now
        self._asked, self._since, self._again, self._flushed = asked, now, now + 2 * PULSE, now
        self.shared.active.add("commits")
        own = report(self.shared.me.peer, *self._place)
        joins = self._candidate()
        value = complete(asked.incarnations, joins=joins) if asked.complete else FAILED
        self.ballots.do(self._settlement.releases(own, value=value, now=now))
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
            present = Admission(max(self._place[0], 0), max(self._place[1], 0), self._members)
            self.shared.abandoned |= self.admissions.receive_request(sender, message, present)
            return
        for each in messages_of(message, sender=sender):
            self._handle(sender, each)

    def _handle(self, sender: str, message: Message) -> None:
        release = message.subject
        attempt = release[2:]
        if attempt > self._place:
            self._hold(sender, message, attempt)
        settlement = self.ballots.open.get(attempt)
        if settlement is None or release not in settlement.admitted:
            return
        if settlement.latest[release].decided is None:
            self.ballots.statements.check(message, committee=settlement.committee(release))
            if attempt == self._place and isinstance(message, Vote) and message.member == release.peer:
                self.shared.abandoned |= message.value == FAILED
        self.ballots.do(settlement.receives(sender, message, now=self.shared.now))
        if isinstance(message, Prepare) and message.ballot.number and attempt == self._place:
            self._doubts.setdefault((sender, release), self.shared.now)
        if attempt != self._place:
            self.ballots.flush()
        self.ballots.write()

    def _hold(self, sender: str, message: Message, attempt_key: Place) -> None:
        """Keep a message about an attempt that this peer has not begun, because it lacks verdicts that others have."""
        round, attempt = self._place
        soon = attempt_key in {(round, attempt + 1), (round + 1, attempt)} or not self._members
        most = EARLY * (1 + len(self.shared.membership.neighbours))
        if soon and sum(each == sender for each, _ in self._early) < most:
            self._early.append((sender, message))

    # ------------------------------------------------------------------ decisions

    @property
    def waits(self) -> frozenset[str]:
        """Members on whose reports there is no verdict at this peer, or which have to admit it."""
        if self.admissions.active:
            return self.shared.membership.present
        return frozenset(release.peer for release in self._undecided_releases())

    @property
    def active(self) -> bool:
        """True if the peer waits for verdicts, or to be a member."""
        return self._asked is not None or self.admissions.active

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        if self.admissions.active:
            return self.admissions.wake
        late = min((each for each in self._deadlines() if each > self.shared.now), default=math.inf)
        flush = self._flushed + PULSE if self.ballots.unsent else math.inf
        return min(self.ballots.wake, late, self._again, flush)

    def decide(self) -> None:
        """Answer if all verdicts are there, or the timeout has passed."""
        if self.admissions.active:
            self.admissions.decide()
            return
        now, ballots = self.shared.now, self.ballots
        if now >= ballots.wake:
            ballots.wake = math.inf
            ballots.do(self._settlement.tick(now=now))
        undecided = self._undecided_releases()
        if now >= self._again:
            self._request(undecided)
        for release in undecided:
            if self._doubtful(release.peer):
                self._doubts.setdefault((self.shared.me.peer, release), now)
                ballots.do(self._settlement.doubts(release.peer, now=now))
        ballots.write()
        self._judge(undecided)
        ballots.batched = self._asked is not None
        if ballots.unsent and (not ballots.batched or now >= self._flushed + PULSE or self._owes_vote()):
            self._flushed = now
            ballots.flush()

    def _doubtful(self, peer: str) -> bool:
        """Return whether a member probably does not report: it is gone, or all others have waited for long."""
        return self._is_gone(peer) or self.shared.now >= self._slow(peer)

    def _is_gone(self, peer: str) -> bool:
        gone = self._has_restarted(peer) or peer not in self.shared.membership.present
        return peer != self.shared.me.peer and gone

    def _has_restarted(self, peer: str) -> bool:
        """Return whether another incarnation of a member is there than the one that takes part in the attempt."""
        up, incarnations = self.shared.membership.up, self.admissions.incarnations
        return peer in up and incarnations.get(peer, up[peer].incarnation) != up[peer].incarnation

    def _slow(self, peer: str) -> float:
        """Return the time from which a member is too slow; one that has not reported may wait for another one."""
        shared, since = self.shared, self._since
        if peer in self._reported:
            return since + shared.patience
        return shared.timeouts.slow(peer, since=since, peers=shared.edges.peers)

    def _deadlines(self) -> list[float]:
        """Return the times from which members are too slow, and last that at which this peer waits no longer.

        Members that lack a model doubt its owner only after they have waited for the model and for its report. Whenever
        a member begins to doubt a report, there is time for another ballot.
        """
        silent = {release.peer for release in self._undecided_releases()} - self._reported
        slow = [self._slow(release.peer) for release in self._undecided_releases()]
        last = max(map(self._slow, silent), default=self._since)
        doubted = max(self._doubts.values(), default=self._since)
        return [*slow, max(last + self.shared.patience, doubted) + self.shared.patience]

    @property
    def _reported(self) -> set[str]:
        """Members on whose reports this peer has voted, or knows the verdict."""
        latest = self._settlement.latest
        return {release.peer for release, record in latest.items() if record.voted or record.decided}

    def _owes_vote(self) -> bool:
        """Return whether this peer has a vote to send that others wait for: its own, or the last ones."""
        if self.ballots.holds(report(self.shared.me.peer, *self._place)):
            return True
        return len(self._reported) == len(self._members) and not self.ballots.writing

    def _request(self, undecided: list[Release]) -> None:
        """Request the votes on reports that are not decided, after pauses that double.

        A member that has not reported may still be training, and has sent no votes. So only the member itself is asked
        for its report, and all others once a majority has reported.
        """
        now, reported = self.shared.now, self._reported
        self._again = now + max(PULSE, now - self._since)
        many = 2 * len(reported) > len(self._members)
        for release in undecided:
            asked = Prepare(release, Ballot(0, self.shared.me.peer))
            if release.peer not in reported:
                self.shared.publish(f"in/{release.peer}", asked)
            elif many:
                self.shared.publish(PLACE, asked)

    def _judge(self, undecided: list[Release]) -> None:
        if not undecided:
            self._asked, self.shared.abandoned = None, False
            result = outcome(self._verdicts)
            for peer in sorted({*self._members} - {*result.members, self.shared.me.peer}):
                self._leave_out(peer)
            self.shared.do(Concluded(result.committed, self._next_members(result)))
        elif self.shared.now >= self._deadlines()[-1]:
            self._asked = None
            self.shared.do(Undecided(frozenset(release.peer for release in undecided)))

    def _leave_out(self, peer: str) -> None:
        """Treat a dropped member as gone, unless another incarnation of it is there already."""
        if not self._has_restarted(peer):
            self.neighbours.leave_out(peer)

    def _next_members(self, result: AttemptOutcome) -> tuple[str, ...]:
        """Return the members of the next attempt, and notify one that joins."""
        peers = self.shared.edges.topology.peers
        if result.joins is None or result.joins >= len(peers) or peers[result.joins] in self._members:
            return result.members
        joins, (round, attempt) = peers[result.joins], self._place
        members = tuple(sorted({*result.members, joins}))
        self.admissions.admit(joins, round + 1, attempt, members)
        return members

    def _candidate(self) -> int | None:
        """Return the place of a peer that may be a member of the next round; ``None`` in the last round."""
        round = self._place[0]
        return self.admissions.candidate(self._members, round=round) if round + 1 < self.shared.rounds else None

    @property
    def _settlement(self) -> Settlement:
        return self.ballots.settlement(self._place)

    @property
    def _verdicts(self) -> dict[str, Value]:
        settlement, reports = self._settlement, [report(member, *self._place) for member in self._members]
        verdicts = ((each.peer, settlement.verdict(each)) for each in reports)
        return {peer: value for peer, value in verdicts if value is not None}

    def _undecided_releases(self) -> list[Release]:
        if self._asked is None:
            return []
        verdicts = self._verdicts
        return [report(member, *self._place) for member in self._members if member not in verdicts]
