"""State machines that are broken on purpose; the exploration finds each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from exploring.masked import Masked
from exploring.members import Member, Sent
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.agreement_effects import BLANK, MemberRecord, Send
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Committee,
    Decision,
    Message,
    Prepare,
    Promise,
    Proposal,
    Value,
    Vote,
    majority,
)


@dataclass(frozen=True)
class Half(Committee):
    """A bare half of an even committee is taken for a majority."""

    @property
    def majority(self) -> int:
        return (len(self.members) + 1) // 2


class Hasty(Agreement):
    """Sends what it says before it is durable."""

    def _send(self, to: tuple[str, ...], message: Message) -> None:
        if to == (self.me,):
            super()._send(to, message)
        else:
            self._effects.append(Send(to, message))


class Deaf(Agreement):
    """Proposes what it wants, whatever votes were reported, and others accept it."""

    def _receive_promise(self, sender: str, promise: Promise) -> None:
        super()._receive_promise(sender, msgspec.structs.replace(promise, voted=None, value=None))

    def _honest(self, promise: Promise) -> bool:
        return promise.member in self.committee.members


class Faithless(Agreement):
    """Accepts in a ballot below one that it has promised."""

    def _accepts(self, ballot: Ballot) -> bool:
        own = self.record.accepted
        return own is None or own.ballot < ballot

    def _receive_acceptance(self, vote: Vote) -> None:
        self.record = msgspec.structs.replace(self.record, promised=BLANK.promised)
        super()._receive_acceptance(vote)

    def _honest(self, promise: Promise) -> bool:
        return promise.member in self.committee.members


class Wavering(Agreement):
    """Accepts two values in one ballot."""

    def _accepts(self, ballot: Ballot) -> bool:
        return ballot >= self.record.promised


class Silent(Agreement):
    """Promises without its last acceptance."""

    def _promise(self) -> Promise:
        return msgspec.structs.replace(super()._promise(), accepted=None, accepted_value=None)

    def _honest(self, promise: Promise) -> bool:
        return promise.member in self.committee.members


class Loose(Agreement):
    """Takes acceptances of a majority in the first ballot for a decision."""

    def _count_acceptances(self, last: Vote) -> None:
        few = majority(self._acceptances, self.committee)
        if few:
            self._decide(Decision(self.subject, last.value, few))


class Lone(Agreement):
    """Votes for what it has accepted itself, whether or not a majority has."""

    def _accept(self, ballot: Ballot, value: Value, *given: tuple[Any, ...]) -> None:
        super()._accept(ballot, value, *given)
        self._vote(ballot, value, ())


class Once(Agreement):
    """Votes once and never again, so that ballots after the first vote are in vain."""

    def _vote(self, ballot: Ballot, value: Value, proof: tuple[Vote, ...]) -> None:
        if self.record.voted is None:
            super()._vote(ballot, value, proof)


class Partial(Agreement):
    """Votes in the owner's ballot for what it shows, whether or not a majority has accepted it."""

    def _receive_proposal(self, proposal: Proposal) -> None:
        vote = proposal.vote
        if vote.ballot != self.committee.first:
            super()._receive_proposal(proposal)
        elif self._may_vote(vote.ballot):
            self._vote(vote.ballot, vote.value, proposal.proof)


class Belated(Agreement):
    """Votes in the owner's ballot for what a majority has accepted, although it has promised a later one."""

    def _may_vote(self, ballot: Ballot) -> bool:
        own = self.record.voted
        return self.record.decided is None and (own is None or own.ballot < ballot)

    def _honest(self, promise: Promise) -> bool:
        return promise.member in self.committee.members


class Unproven(Agreement):
    """Votes in the owner's ballot without the proof that others need who ask for its promise."""

    def _vote(self, ballot: Ballot, value: Value, proof: tuple[Vote, ...]) -> None:
        super()._vote(ballot, value, proof if ballot.number else ())


class Reopening(Agreement):
    """Answers a request after the decision as one that has not voted."""

    def _answer(self, sender: str, message: Message, decision: Decision) -> None:
        if isinstance(message, Prepare):
            promise = Promise(self.subject, self.me, message.ballot, incarnation=self.incarnation)
            self._send((sender,), promise)
            self._store()
        else:
            super()._answer(sender, message, decision)

    def _honest(self, promise: Promise) -> bool:
        return promise.member in self.committee.members


class Secretive(Agreement):
    """Answers no request after the decision."""

    def _answer(self, sender: str, message: Message, decision: Decision) -> None:
        if not isinstance(message, Prepare):
            super()._answer(sender, message, decision)


@dataclass(frozen=True)
class Reconsidering(Member):
    """Comes back from a crash without its decision, as one that has not voted."""

    @property
    def recovered(self) -> MemberRecord:
        return BLANK if self.disk.decided is not None else self.disk


@dataclass(frozen=True)
class Forgetful(Member):
    """Comes back from a crash without its record."""

    @property
    def recovered(self) -> MemberRecord:
        return BLANK


@dataclass(frozen=True)
class Unbound(Member):
    """Comes back from a crash without its promises."""

    @property
    def recovered(self) -> MemberRecord:
        return msgspec.structs.replace(self.disk, promised=BLANK.promised)


@dataclass(frozen=True)
class Reusing(Masked):
    """Sends a release before the journal of its masks is durable."""

    def after(self, move: object) -> list[tuple[Masked, Sent]]:
        if move != "masks":
            return super().after(move)
        after = self.masked()
        _, released = after.leaving
        return [(after, self.sent(released))]
