"""Messages about whether an attempt at a round counts: reports, votes, decisions, and admissions of members."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import TAG_BYTES, Name

REPORTS = 100
"""Maximum number of reports in one message; as many fit into its head."""

SEATS = 7
"""Maximum number of members of a committee: with seven, two of them can be Byzantine."""

Value = Annotated[bytes, msgspec.Meta(max_length=19 + bounds.MAX_ENTRIES // 8)]
"""Report of a member, or outcome of an attempt, see :mod:`p2pfl.network.protocol.agreement.attempt_reports`."""

COMMITS = b"\1"
"""First byte of the outcome of an attempt that counts."""

HIGHEST = 1 << 32
"""Upper bound on ballot numbers; there is no ballot from this number on."""


class Ballot(NamedTuple):
    """Attempt of one proposer to reach a majority; ballots are ordered.

    Attributes
    ----------
    number
        Number of the ballot; 0 is the first ballot, which needs no preparation.
    proposer
        Member that chooses the value of the ballot.
    """

    number: bounds.Ballot
    proposer: Name


class Place(NamedTuple):
    """Subject of an agreement: an attempt at a round."""

    round: bounds.Round
    attempt: bounds.Attempt


@dataclass(frozen=True)
class Committee:
    """Members of an attempt that decide its outcome.

    Parameters
    ----------
    members
        Names of the members, each once. The first one owns the first ballot.

    Examples
    --------
    >>> Committee(("ada", "bob", "eve")).majority
    2
    >>> [Committee(tuple("abcdefg"[:size])).majority for size in (4, 5, 6, 7)]
    [3, 4, 4, 5]
    """

    members: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.members or len({*self.members}) < len(self.members):
            raise InputError(f"{self.members} form no committee; name at least one member, and each once")

    @property
    def owner(self) -> str:
        """Member that proposes in the first ballot."""
        return self.members[0]

    @property
    def faulty(self) -> int:
        """Number of members that may be Byzantine; up to three members tolerate none."""
        return (len(self.members) - 1) // 3

    @property
    def majority(self) -> int:
        """Smallest number of members such that any two sets of that size share an honest one.

        Two sets of this size share one more than :attr:`faulty`.
        """
        return (len(self.members) + self.faulty) // 2 + 1

    @property
    def first(self) -> Ballot:
        """First ballot, which belongs to the owner and precedes all others."""
        return Ballot(0, self.owner)

    def owns(self, ballot: Ballot) -> bool:
        """Return whether a ballot belongs to this committee: the first is the owner's, the others are any member's."""
        if ballot.number <= 0:
            return ballot == self.first
        return ballot.number < HIGHEST and ballot.proposer in self.members

    def decides_at_once(self, ballot: Ballot, value: Value) -> bool:
        """Return whether acceptances of all members decide a value in a ballot: that the attempt counts, in the first.

        Examples
        --------
        >>> committee = Committee(("ada", "bob"))
        >>> committee.decides_at_once(committee.first, COMMITS), committee.decides_at_once(Ballot(1, "bob"), COMMITS)
        (True, False)
        """
        return ballot == self.first and value.startswith(COMMITS)


def draw_committee(members: Iterable[str], place: Place, *, swarm: str) -> Committee:
    """Return the committee of an attempt: the same at all peers, and another one in each attempt.

    Parameters
    ----------
    members
        Members of the attempt.
    place
        Round and attempt.
    swarm
        Name of the run.

    Examples
    --------
    >>> peers = [f"peer{number}" for number in range(20)]
    >>> draw_committee(peers, Place(3, 0), swarm="run").members[:3]
    ('peer6', 'peer1', 'peer4')
    >>> len(draw_committee(peers, Place(3, 1), swarm="run").members)
    7
    >>> len(draw_committee(peers[:3], Place(3, 1), swarm="run").members)
    3
    """

    def rank(member: str) -> bytes:
        return hashlib.blake2b(msgspec.msgpack.encode((swarm, *place, member)), digest_size=16).digest()

    return Committee(tuple(sorted({*members}, key=rank)[:SEATS]))


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report"):
    """Signed statement of a member at the end of an attempt: whether it is complete.

    Attributes
    ----------
    subject, member, value
        Attempt, member, and what it reports.
    signature
        Signature of all other fields but the tags, so that others can pass it on.
    incarnation
        Incarnation of the member.
    tags
        Tags of what is signed, one for each other member of the committee, in order, so that these need not verify the
        signature. In a large swarm, a report that is passed on has the one for its receiver alone.
    """

    subject: Place
    member: Name
    value: bounds.Key
    signature: bounds.Signature = b""
    incarnation: bounds.Incarnation = 0
    tags: Annotated[bytes, msgspec.Meta(max_length=SEATS * TAG_BYTES)] = b""

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b"", tags=b""))


class Vote(msgspec.Struct, frozen=True, array_like=True, tag="vote"):
    """Signed statement of a member for a value in a ballot.

    Attributes
    ----------
    subject, member, ballot, value
        Subject, voter, ballot and value of the vote.
    signature
        Signature of all other fields, so that others can prove the vote.
    incarnation
        Incarnation of the voter: two that contradict each other show that a record was lost.
    final
        False for an acceptance: the member has checked the proposal of the ballot, and accepts no other one in it. The
        owner's acceptance in the first ballot is the proposal.
        True for a vote that decides: a majority has accepted the value. A member signs at most one value of each in a
        ballot.
    """

    subject: Place
    member: Name
    ballot: Ballot
    value: Value
    signature: bounds.Signature = b""
    incarnation: bounds.Incarnation = 0
    final: bool = True

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b""))


class Reports(msgspec.Struct, frozen=True, array_like=True, tag="reports"):
    """Reports on one attempt: the sender's own, or those of others that it passes on.

    A member that sends its own one to the committee again asks for the decision.

    Attributes
    ----------
    subject, reports
        Attempt, and what its members report.
    proposal
        Acceptance of the owner, which proposes the outcome that follows, with the last of the reports.
    """

    subject: Place
    reports: Annotated[tuple[Report, ...], msgspec.Meta(max_length=REPORTS)]
    proposal: Vote | None = None


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Request of a ballot's proposer that the receiver promises to vote in no lower ballot from now on."""

    subject: Place
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True, array_like=True, tag="promise"):
    """Signed promise to accept and to vote in no ballot below this one.

    Attributes
    ----------
    subject, member, ballot
        Subject of the promise, its sender, and the promised ballot.
    voted, value
        Highest ballot in which the member has voted, and the value; ``None`` if it has not voted.
    accepted, accepted_value
        Highest ballot in which the member has accepted a value, and the value; ``None`` if it has accepted none.
    signature, incarnation
        As of :class:`Vote`.
    proof
        Statements that allowed the member to vote there, see
        :func:`p2pfl.network.protocol.agreement.proofs.is_certified`; not signed again.
    """

    subject: Place
    member: Name
    ballot: Ballot
    voted: Ballot | None = None
    value: Value | None = None
    signature: bounds.Signature = b""
    incarnation: bounds.Incarnation = 0
    accepted: Ballot | None = None
    accepted_value: Value | None = None
    proof: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=SEATS)] = ()

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b"", proof=()))


class Proposal(msgspec.Struct, frozen=True, array_like=True, tag="proposal"):
    """Value that the proposer of a ballot was free to choose, with the proof that it was.

    Attributes
    ----------
    vote
        Acceptance of the proposer.
    promises
        Promises of a majority for the ballot, without their own proofs; empty in the first ballot.
    proof
        Acceptances that prove the highest vote that the promises report; empty if they report none. In the first
        ballot those of a majority, which let all members vote.
    """

    vote: Vote
    promises: Annotated[tuple[Promise, ...], msgspec.Meta(max_length=SEATS)]
    proof: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=SEATS)] = ()

    @property
    def subject(self) -> Place:
        """Subject of the proposal."""
        return self.vote.subject

    @property
    def value(self) -> Value:
        """Proposed value."""
        return self.vote.value


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    """Value that a majority has voted for in one ballot, or that all have accepted in the first, with these votes.

    Attributes
    ----------
    subject, value
        Subject of the decision, and its value.
    votes
        Votes of different members in one ballot, or acceptances of all.
    """

    subject: Place
    value: Value
    votes: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=SEATS)]

    def holds(self, committee: Committee) -> bool:
        """Return whether the votes prove the decision; the caller has verified their signatures.

        Examples
        --------
        >>> committee, subject = Committee(("ada", "bob", "eve")), Place(0, 0)
        >>> votes = [Vote(subject, name, committee.first, b"counts") for name in ("ada", "bob")]
        >>> Decision(subject, b"counts", tuple(votes)).holds(committee)
        True
        >>> Decision(subject, b"counts", tuple(votes[:1]) * 2).holds(committee)
        False
        >>> accepted = [Vote(subject, name, committee.first, COMMITS, final=False) for name in committee.members]
        >>> [Decision(subject, COMMITS, tuple(accepted[:count])).holds(committee) for count in (2, 3)]
        [False, True]
        """
        members = {vote.member for vote in self.votes}
        ballots = [*{vote.ballot for vote in self.votes}]
        stated = {(vote.subject, vote.value, vote.final) for vote in self.votes}
        if len(ballots) != 1 or not all(map(committee.owns, ballots)) or not members <= {*committee.members}:
            return False
        if stated == {(self.subject, self.value, False)}:
            return len(members) == len(committee.members) and committee.decides_at_once(ballots[0], self.value)
        return stated == {(self.subject, self.value, True)} and len(members) >= committee.majority


Statement = Vote | Promise | Report
"""Statements that a member signs."""


def parse_statement(statement: bytes) -> Statement:
    """Return what a member states about an attempt, without its signature.

    Raises
    ------
    DecodeError
        The statement is of another kind.

    Examples
    --------
    >>> vote = Vote(Place(3, 0), "bob", Ballot(1, "eve"), b"counts", final=False)
    >>> parse_statement(vote.statement) == vote
    True
    """
    try:
        read: Statement = _statements.decode(statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise DecodeError("the bytes are no statement on an attempt") from None
    if read.statement != statement:
        raise DecodeError("the bytes are no statement on an attempt")
    return read


_statements = msgspec.msgpack.Decoder(Statement)

Message = Vote | Prepare | Promise | Proposal | Decision
"""Message of an agreement on the outcome of an attempt."""

Agreed = Message | Reports
"""Message about the outcome of an attempt."""


def check_author(message: Agreed, *, sender: str) -> None:
    """Check that a message states nothing in another peer's name, but for what others have signed.

    Raises
    ------
    DecodeError
        It does.

    Examples
    --------
    >>> check_author(Prepare(Place(3, 0), Ballot(1, "bob")), sender="bob")
    """
    if _author(message) not in {sender, None}:
        raise DecodeError(f'expected statements of "{sender}", got those of another peer')


def _author(message: Agreed) -> str | None:
    """Return the member in whose name a message states something; ``None`` for one that proves itself."""
    match message:
        case Vote() | Promise():
            return message.member
        case Prepare():
            return message.ballot.proposer
        case Proposal():
            return message.vote.member
        case Reports(proposal=Vote(member=member)):
            return member
        case Decision() | Reports():
            return None


def majority(votes: Mapping[str, Vote], committee: Committee) -> tuple[Vote, ...]:
    """Return those of the members' votes that a majority has given for one value in one ballot; empty without one."""
    counts = Counter((vote.ballot, vote.value) for vote in votes.values())
    decided = max((each for each, count in counts.items() if count >= committee.majority), default=None)
    return tuple(vote for _, vote in sorted(votes.items()) if (vote.ballot, vote.value) == decided)


class Contradiction(msgspec.Struct, frozen=True, array_like=True, tag="contradiction"):
    """Two votes or reports of one member that contradict each other, so that all exclude it once they have checked."""

    one: Vote | Report
    other: Vote | Report


class JoinRequest(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """Request of a peer that has come back to be a member of the next round.

    Attributes
    ----------
    incarnation
        Incarnation of the sender.
    """

    incarnation: bounds.Incarnation


class Admission(msgspec.Struct, frozen=True, array_like=True, tag="admission"):
    """Answer of a member to a :class:`JoinRequest`: the attempt with which the receiver begins, or the present one.

    Attributes
    ----------
    round, attempt
        Round, and number of the attempt.
    members
        Members of the attempt, sorted; the receiver is not among them as long as it has to wait.
    """

    round: bounds.Round
    attempt: bounds.Attempt
    members: Annotated[tuple[Name, ...], msgspec.Meta(max_length=bounds.MAX_ENTRIES)]


OfVerdicts = Agreed | Contradiction | JoinRequest | Admission
"""Messages about whether a round counts, and who takes part in it."""
