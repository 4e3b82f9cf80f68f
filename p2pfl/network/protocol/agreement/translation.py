"""Conversion of the agreement's messages and records on releases to the wire format and to the journal, and back."""

from __future__ import annotations

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.agreement.agreement_effects import NEVER, MemberRecord
from p2pfl.network.protocol.agreement.ballot_messages import (
    DROPPED,
    Ballot,
    Decision,
    Message,
    Prepare,
    Promise,
    Proposal,
    Release,
    Value,
    Vote,
    counted,
    counts,
    digest_in,
)
from p2pfl.network.protocol.wire import verdict_messages as wire


class VerdictRecord(msgspec.Struct, frozen=True):
    """Record of one release as the journal contains it.

    Attributes
    ----------
    peer, incarnation, round
        Release of the record.
    promised
        Number and proposer of the promised ballot.
    voted
        Last vote of the member.
    decided
        Votes that prove the decision; empty before it.
    accepted, proof
        Last acceptance of the member, and the proof of its last vote.
    attempt
        Attempt at the round.
    """

    peer: str
    incarnation: int
    round: int
    promised: tuple[int, str] = (NEVER.number, NEVER.proposer)
    voted: wire.WireVote | None = None
    decided: tuple[wire.WireVote, ...] = ()
    accepted: wire.WireVote | None = None
    proof: tuple[wire.WireVote, ...] = ()
    attempt: int = 0

    @classmethod
    def of(cls, release: Release, record: MemberRecord) -> VerdictRecord:
        """Return a record as the journal contains it."""
        voted, accepted = (None if each is None else sent_vote(each) for each in (record.voted, record.accepted))
        decided = () if record.decided is None else tuple(map(sent_vote, record.decided.votes))
        promised, proof = (record.promised.number, record.promised.proposer), tuple(map(sent_vote, record.proof))
        return cls(*release[:3], promised, voted, decided, accepted, proof, release.attempt)

    @property
    def counted(self) -> bool:
        """True if the release is known to count."""
        return any(vote.counted for vote in self.decided)

    @property
    def release(self) -> Release:
        """Release of the record."""
        return Release(self.peer, self.incarnation, self.round, self.attempt)

    def read(self) -> MemberRecord:
        """Return the record."""
        voted, accepted = (None if each is None else read_vote(each) for each in (self.voted, self.accepted))
        votes = tuple(map(read_vote, self.decided))
        decided = Decision(self.release, votes[0].value, votes) if votes else None
        return MemberRecord(Ballot(*self.promised), voted, decided, accepted, tuple(map(read_vote, self.proof)))


def sent_vote(vote: Vote) -> wire.WireVote:
    """Return a vote on a release in the wire format."""
    release = release_of(vote)
    place = release.peer, release.incarnation, release.round
    value, signature = vote.value, vote.signature or bytes(64)
    cast = wire.WireVote(*place, vote.member, *vote.ballot, counts(value), signature, vote.incarnation, vote.final)
    return msgspec.structs.replace(cast, digest=digest_in(value), attempt=release.attempt)


def read_vote(vote: wire.WireVote) -> Vote:
    """Return a vote that was received."""
    release = Release(vote.peer, vote.incarnation, vote.round, vote.attempt)
    ballot, value = Ballot(vote.number, vote.proposer), _value(vote)
    return Vote(release, vote.member, ballot, value, vote.signature, vote.voter, vote.final)


def _sent_promise(promise: Promise) -> wire.Promised:
    release = release_of(promise)
    value = DROPPED if promise.value is None else promise.value
    last = None if promise.voted is None else wire.LastVote(*promise.voted, counts(value), digest_in(value))
    place = release.peer, release.incarnation, release.round, promise.member, *promise.ballot
    return wire.Promised(*place, promise.signature or bytes(64), promise.incarnation, last, release.attempt)


def read_promise(promise: wire.Promised, proof: tuple[wire.WireVote, ...] = ()) -> Promise:
    """Return a promise that was received."""
    release, last = Release(promise.peer, promise.incarnation, promise.round, promise.attempt), promise.last
    voted = None if last is None else Ballot(last.number, last.proposer)
    value = None if last is None else _value(last)
    ballot, votes = Ballot(promise.number, promise.proposer), tuple(map(read_vote, proof))
    return Promise(release, promise.member, ballot, voted, value, promise.signature, promise.voter, votes)


def _value(cast: wire.WireVote | wire.LastVote) -> Value:
    return counted(cast.digest) if cast.counted else DROPPED


Wired = wire.Votes | wire.PrepareMessage | wire.PromiseMessage | wire.ProposalMessage | wire.DecisionMessage
"""Messages of an agreement on a release, in the wire format."""


def sent(message: Message) -> Wired:
    """Return a message of an agreement on a release in the wire format."""
    release = release_of(message)
    place = release.peer, release.incarnation, release.round
    match message:
        case Vote():
            return wire.Votes((sent_vote(message),))
        case Prepare():
            return wire.PrepareMessage(*place, message.ballot.number, release.attempt)
        case Promise():
            return wire.PromiseMessage(_sent_promise(message), tuple(map(sent_vote, message.proof)))
        case Proposal():
            promises = tuple(map(_sent_promise, message.promises))
            return wire.ProposalMessage(sent_vote(message.vote), promises, tuple(map(sent_vote, message.proof)))
        case Decision():
            return wire.DecisionMessage(tuple(map(sent_vote, message.votes)))


def read(message: Wired, *, sender: str) -> tuple[Message, ...]:
    """Return the messages of agreements that a message contains.

    Raises
    ------
    DecodeError
        The message states something in another peer's name, or the votes of a decision are on different releases.

    Examples
    --------
    >>> read(wire.PrepareMessage("ada", 7, 3, 1), sender="bob")[0].ballot
    Ballot(number=1, proposer='bob')
    """
    match message:
        case wire.Votes(votes):
            many = tuple(map(read_vote, votes))
            if any(vote.member != sender for vote in many):
                raise DecodeError(f'expected votes of "{sender}", got those of another peer')
            return many
        case wire.PrepareMessage(peer, incarnation, round, number, attempt):
            return (Prepare(Release(peer, incarnation, round, attempt), Ballot(number, sender)),)
        case wire.PromiseMessage(promised, proof):
            promise = read_promise(promised, proof)
            if promise.member != sender:
                raise DecodeError(f'expected a promise of "{sender}", got that of another peer')
            return (promise,)
        case wire.ProposalMessage(vote, promises, proof):
            own = read_vote(vote)
            if own.member != sender:
                raise DecodeError(f'expected a proposal of "{sender}", got that of another peer')
            return (Proposal(own, tuple(map(read_promise, promises)), tuple(map(read_vote, proof))),)
        case wire.DecisionMessage(votes):
            many = tuple(map(read_vote, votes))
            if len({(vote.subject, vote.value) for vote in many}) != 1:
                raise DecodeError(f'expected votes for one value as a decision of "{sender}", got others or none')
            return (Decision(many[0].subject, many[0].value, many),)


def release_of(message: Message) -> Release:
    """Return the release that a message is about."""
    if not isinstance(message.subject, Release):
        raise DecodeError("expected a message about a release, got one about a participant set")
    return message.subject
