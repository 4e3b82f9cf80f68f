"""Conversion of the agreement's messages and records on releases to the wire format and to the journal, and back."""

from __future__ import annotations

import msgspec

from p2pfl.errors import DecodeError
from p2pfl.protocol.agreement.effects import NEVER, Record
from p2pfl.protocol.agreement.messages import (
    COUNTED,
    DROPPED,
    Ballot,
    Decision,
    Message,
    Prepare,
    Promise,
    Release,
    Vote,
)
from p2pfl.protocol.wire import verdicts as wire


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
    """

    peer: str
    incarnation: int
    round: int
    promised: tuple[int, str] = (NEVER.number, NEVER.proposer)
    voted: wire.Vote | None = None
    decided: tuple[wire.Vote, ...] = ()

    @classmethod
    def of(cls, release: Release, record: Record) -> VerdictRecord:
        """Return a record as the journal contains it."""
        voted = None if record.voted is None else sent_vote(record.voted)
        decided = () if record.decided is None else tuple(map(sent_vote, record.decided.votes))
        place = release.peer, release.incarnation, release.round
        return cls(*place, (record.promised.number, record.promised.proposer), voted, decided)

    @property
    def release(self) -> Release:
        """Release of the record."""
        return Release(self.peer, self.incarnation, self.round, 0)

    def read(self) -> Record:
        """Return the record."""
        voted = None if self.voted is None else read_vote(self.voted)
        votes = tuple(map(read_vote, self.decided))
        decided = Decision(self.release, votes[0].value, votes) if votes else None
        return Record(Ballot(*self.promised), voted, decided)


def sent_vote(vote: Vote) -> wire.Vote:
    """Return a vote on a release in the wire format."""
    release = release_of(vote)
    counted = vote.value == COUNTED
    place = release.peer, release.incarnation, release.round
    return wire.Vote(*place, vote.member, *vote.ballot, counted, vote.signature or bytes(64))


def read_vote(vote: wire.Vote) -> Vote:
    """Return a vote that was received."""
    release = Release(vote.peer, vote.incarnation, vote.round, 0)
    value = COUNTED if vote.counted else DROPPED
    return Vote(release, vote.member, Ballot(vote.number, vote.proposer), value, vote.signature)


def sent(message: Message) -> wire.Votes | wire.Prepare | wire.Promise | wire.Decision:
    """Return a message of an agreement on a release in the wire format."""
    release = release_of(message)
    place = release.peer, release.incarnation, release.round
    match message:
        case Vote():
            return wire.Votes((sent_vote(message),))
        case Prepare():
            return wire.Prepare(*place, message.ballot.number)
        case Promise():
            voted = None if message.voted is None else sent_vote(message.voted)
            return wire.Promise(*place, *message.ballot, voted)
        case Decision():
            return wire.Decision(tuple(map(sent_vote, message.votes)))


def read(message: wire.Votes | wire.Prepare | wire.Promise | wire.Decision, *, sender: str) -> tuple[Message, ...]:
    """Return the messages of agreements that a message contains.

    Raises
    ------
    DecodeError
        The message states something in another peer's name, or the votes of a decision are on different releases.

    Examples
    --------
    >>> read(wire.Prepare("ada", 7, 3, 1), sender="bob")[0].ballot
    Ballot(number=1, proposer='bob')
    """
    match message:
        case wire.Votes(votes):
            own = tuple(map(read_vote, votes))
            if any(vote.member != sender for vote in own):
                raise DecodeError(f'expected votes of "{sender}", got those of another peer')
            return own
        case wire.Prepare(peer, incarnation, round, number):
            return (Prepare(Release(peer, incarnation, round, 0), Ballot(number, sender)),)
        case wire.Promise(peer, incarnation, round, number, proposer, voted):
            release = Release(peer, incarnation, round, 0)
            vote = None if voted is None else read_vote(voted)
            if vote is not None and (vote.member, vote.subject) != (sender, release):
                raise DecodeError(f'expected the last vote of "{sender}" on a release, got another vote')
            return (Promise(release, Ballot(number, proposer), vote),)
        case wire.Decision(votes):
            many = tuple(map(read_vote, votes))
            if len({(vote.subject, vote.value) for vote in many}) != 1:
                raise DecodeError(f'expected votes for one value as a decision of "{sender}", got others or none')
            return (Decision(many[0].subject, many[0].value, many),)


def release_of(message: Message) -> Release:
    """Return the release that a message is about."""
    if not isinstance(message.subject, Release):
        raise DecodeError("expected a message about a release, got one about a participant set")
    return message.subject
