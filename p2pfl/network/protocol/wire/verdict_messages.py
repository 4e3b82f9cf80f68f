"""Messages about whether an attempt at a round counts: votes, ballots, decisions, and admissions of members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

from p2pfl.core.errors import DecodeError, InputError
from p2pfl.network.protocol.wire import bounds
from p2pfl.network.protocol.wire.bounds import Name

BATCH = 200
"""Votes in one message; as many fit into its head."""

PROVEN = 140
"""Promises and votes in one proposal, each; as many fit into its head."""

Value = bounds.Key
"""Verdict on a report: the report itself, or :data:`DROPPED`."""

DROPPED = b""
"""Verdict that a member has not reported, so that it has no part in the next attempt."""

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


class Release(NamedTuple):
    """Subject of an agreement: the report of a member of an attempt.

    Attributes
    ----------
    peer, incarnation
        Member that reports, and 0: the subject is the same for all its incarnations.
    round, attempt
        Round and attempt of the report.
    """

    peer: Name
    incarnation: bounds.Incarnation
    round: bounds.Round
    attempt: bounds.Attempt


@dataclass(frozen=True)
class Committee:
    """Members that vote on a subject.

    Parameters
    ----------
    members
        Names of the members, each once.
    owner
        Member that proposes in the first ballot: the one that reports.

    Examples
    --------
    >>> Committee(("ada", "bob", "eve"), owner="ada").majority
    2
    >>> [Committee(tuple("abcdefgh"[:size]), owner="a").majority for size in (4, 5, 6, 7, 8)]
    [3, 4, 4, 5, 5]
    """

    members: tuple[str, ...]
    owner: str

    def __post_init__(self) -> None:
        if self.owner not in self.members or len({*self.members}) < len(self.members):
            raise InputError(
                f'"{self.owner}" and {self.members} form no committee; name each member once and the owner among them'
            )

    @property
    def majority(self) -> int:
        """Smallest number of members such that any two sets of that size share one, and from four members on two.

        Two sets that share two members share an honest one, if at most one is Byzantine.
        """
        count = len(self.members)
        return count // 2 + 1 + (count % 2 if count > 3 else 0)

    @property
    def first(self) -> Ballot:
        """First ballot, which belongs to the owner and precedes all others."""
        return Ballot(0, self.owner)

    def owns(self, ballot: Ballot) -> bool:
        """Return whether a ballot belongs to this committee: the first is the owner's, the others are any member's."""
        if ballot.number <= 0:
            return ballot == self.first
        return ballot.number < HIGHEST and ballot.proposer in self.members


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
        False for an acceptance: the member has checked the proposal of the ballot, and accepts no other one in it.
        True for a vote that decides: a majority has accepted the value. A member signs at most one value of each in a
        ballot.
    """

    subject: Release
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


class Votes(msgspec.Struct, frozen=True, array_like=True, tag="votes"):
    """Votes of the sender, on reports of members of an attempt."""

    votes: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=BATCH)]


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Request of a ballot's proposer that the receiver promises to vote in no lower ballot from now on."""

    subject: Release
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True, array_like=True, tag="promise"):
    """Signed promise to accept and to vote in no ballot below this one.

    Attributes
    ----------
    subject, member, ballot
        Subject of the promise, its sender, and the promised ballot.
    voted, value
        Highest ballot in which the member has voted, and the value; ``None`` if it has not voted.
    signature, incarnation
        As of :class:`Vote`.
    proof
        Statements that allowed the member to vote there, see
        :func:`p2pfl.network.protocol.agreement.proofs.is_certified`; not signed again.
    """

    subject: Release
    member: Name
    ballot: Ballot
    voted: Ballot | None = None
    value: Value | None = None
    signature: bounds.Signature = b""
    incarnation: bounds.Incarnation = 0
    proof: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=PROVEN)] = ()

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, signature=b"", proof=()))


class Proposal(msgspec.Struct, frozen=True, array_like=True, tag="proposal"):
    """Value that the proposer of a ballot above the first was free to choose, with the proof that it was.

    Attributes
    ----------
    vote
        Acceptance of the proposer.
    promises
        Promises of a majority for the ballot, without their own proofs.
    proof
        Proof of the highest vote that the promises report; empty if they report none.
    """

    vote: Vote
    promises: Annotated[tuple[Promise, ...], msgspec.Meta(max_length=PROVEN)]
    proof: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=PROVEN)] = ()

    @property
    def subject(self) -> Release:
        """Subject of the proposal."""
        return self.vote.subject

    @property
    def value(self) -> Value:
        """Proposed value."""
        return self.vote.value


class Decision(msgspec.Struct, frozen=True, array_like=True, tag="decision"):
    """Value that a majority has voted for in one ballot, with these votes.

    Attributes
    ----------
    subject, value
        Subject of the decision, and its value.
    votes
        Votes of different members in one ballot.
    """

    subject: Release
    value: Value
    votes: Annotated[tuple[Vote, ...], msgspec.Meta(max_length=BATCH)]

    def holds(self, committee: Committee) -> bool:
        """Return whether the votes prove the decision; the caller has verified their signatures.

        Examples
        --------
        >>> committee, subject = Committee(("ada", "bob", "eve"), owner="ada"), Release("ada", 7, 0, 0)
        >>> votes = [Vote(subject, name, committee.first, b"digest") for name in ("ada", "bob")]
        >>> Decision(subject, b"digest", tuple(votes)).holds(committee)
        True
        >>> Decision(subject, b"digest", tuple(votes[:1]) * 2).holds(committee)
        False
        """
        members = {vote.member for vote in self.votes}
        ballots = {vote.ballot for vote in self.votes}
        same = all((vote.subject, vote.value, vote.final) == (self.subject, self.value, True) for vote in self.votes)
        many = members <= {*committee.members} and len(members) >= committee.majority
        return same and many and len(ballots) == 1 and all(map(committee.owns, ballots))


def parse_statement(statement: bytes) -> Vote | Promise:
    """Return the vote or promise on a report that a statement contains, without its signature.

    Raises
    ------
    DecodeError
        The statement is of another kind.

    Examples
    --------
    >>> vote = Vote(Release("ada", 7, 0, 0), "bob", Ballot(1, "eve"), DROPPED, final=False)
    >>> parse_statement(vote.statement) == vote
    True
    """
    try:
        read: Vote | Promise = _statements.decode(statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise DecodeError("the bytes are no statement on a report") from None
    if read.statement != statement:
        raise DecodeError("the bytes are no statement on a report")
    return read


_statements = msgspec.msgpack.Decoder(Vote | Promise)

Message = Vote | Prepare | Promise | Proposal | Decision
"""Message of an agreement on a report; a vote travels within :class:`Votes`."""


Agreed = Votes | Prepare | Promise | Proposal | Decision
"""Messages of an agreement on a report as they travel."""


def messages_of(message: Agreed, *, sender: str) -> tuple[Message, ...]:
    """Return the messages of agreements that a message contains.

    Raises
    ------
    DecodeError
        The message states something in another peer's name.

    Examples
    --------
    >>> messages_of(Prepare(Release("ada", 7, 3, 0), Ballot(1, "bob")), sender="bob")[0].ballot
    Ballot(number=1, proposer='bob')
    """
    messages: tuple[Message, ...] = message.votes if isinstance(message, Votes) else (message,)
    if any(_author(each) not in (sender, None) for each in messages):
        raise DecodeError(f'expected statements of "{sender}", got those of another peer')
    return messages


def _author(message: Message) -> str | None:
    """Return the member in whose name a message states something; ``None`` for a decision, which proves itself."""
    match message:
        case Vote() | Promise():
            return message.member
        case Prepare():
            return message.ballot.proposer
        case Proposal():
            return message.vote.member
        case Decision():
            return None


def majority(votes: Mapping[str, Vote], committee: Committee) -> tuple[Vote, ...]:
    """Return those of the members' votes that a majority has given for one value in one ballot; empty without one."""
    counts = Counter((vote.ballot, vote.value) for vote in votes.values())
    decided = max((each for each, count in counts.items() if count >= committee.majority), default=None)
    return tuple(vote for _, vote in sorted(votes.items()) if (vote.ballot, vote.value) == decided)


class Contradiction(msgspec.Struct, frozen=True, array_like=True, tag="contradiction"):
    """Two votes of one member that contradict each other, so that all exclude it; each peer checks both signatures."""

    one: Vote
    other: Vote


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


OfVerdicts = Votes | Prepare | Promise | Proposal | Decision | Contradiction | JoinRequest | Admission
"""Messages about whether a round counts, and who takes part in it."""
