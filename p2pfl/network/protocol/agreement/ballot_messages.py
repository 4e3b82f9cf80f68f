"""Messages between the members of a committee, and the subjects and values of the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from p2pfl.core.errors import DecodeError, InputError

COUNTED = "counted"
"""Verdict that a release enters its round with full weight; it names the digest of the copy that counts."""

DROPPED = "dropped"
"""Verdict that a release does not enter its round, and that its masks are removed."""

Value = str | tuple[str, ...]
"""Agreed value: a verdict, or the sorted names of a participant set."""


def counted(digest: bytes) -> str:
    """Return the verdict that the copy of a release with this digest counts.

    Examples
    --------
    >>> counted(bytes.fromhex("c0ffee"))
    'counted c0ffee'
    """
    return f"{COUNTED} {digest.hex()}" if digest else COUNTED


def counts(value: Value) -> bool:
    """Return whether a verdict is that a release counts, whichever copy of it."""
    return isinstance(value, str) and value.split(" ")[0] == COUNTED


def digest_in(value: Value) -> bytes:
    """Return the digest of the copy that counts; empty if the verdict names none."""
    return bytes.fromhex(value.removeprefix(COUNTED)) if isinstance(value, str) and counts(value) else b""


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

    number: int
    proposer: str


class Release(NamedTuple):
    """Release that needs an agreed verdict.

    Attributes
    ----------
    peer, incarnation
        Peer and incarnation that released it.
    round, attempt
        Round and attempt of the release.
    """

    peer: str
    incarnation: int
    round: int
    attempt: int


class Participants(NamedTuple):
    """Round of exact sums that needs an agreed participant set."""

    round: int
    attempt: int


Subject = Release | Participants
"""Subject of one agreement; a subject never gets more than one value."""


@dataclass(frozen=True)
class Committee:
    """Members that vote on a subject.

    Parameters
    ----------
    members
        Names of the members, each once.
    owner
        Member that proposes in the first ballot: the peer that made the release, or the root of the tree of a sum.

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


class Vote(msgspec.Struct, frozen=True):
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

    subject: Subject
    member: str
    ballot: Ballot
    value: Value
    signature: bytes = b""
    incarnation: int = 0
    final: bool = True

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        kind = type(self.subject).__name__
        said = "vote" if self.final else "acceptance"
        return msgspec.msgpack.encode(
            (said, kind, self.subject, self.member, self.incarnation, self.ballot, self.value)
        )


class Prepare(msgspec.Struct, frozen=True):
    """Request of a ballot's proposer that the receiver promises to vote in no lower ballot from now on."""

    subject: Subject
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True):
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
        Statements that allowed the member to vote there, see :func:`p2pfl.network.protocol.agreement.proofs.certified`;
        not signed again.
    """

    subject: Subject
    member: str
    ballot: Ballot
    voted: Ballot | None = None
    value: Value | None = None
    signature: bytes = b""
    incarnation: int = 0
    proof: tuple[Vote, ...] = ()

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        kind = type(self.subject).__name__
        return msgspec.msgpack.encode(
            ("promise", kind, self.subject, self.member, self.incarnation, self.ballot, self.voted, self.value)
        )


class Proposal(msgspec.Struct, frozen=True):
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
    promises: tuple[Promise, ...]
    proof: tuple[Vote, ...] = ()

    @property
    def subject(self) -> Subject:
        """Subject of the proposal."""
        return self.vote.subject

    @property
    def value(self) -> Value:
        """Proposed value."""
        return self.vote.value


class Decision(msgspec.Struct, frozen=True):
    """Value that a majority has voted for in one ballot, with these votes.

    Attributes
    ----------
    subject, value
        Subject of the decision, and its value.
    votes
        Votes of different members in one ballot.
    """

    subject: Subject
    value: Value
    votes: tuple[Vote, ...]

    def holds(self, committee: Committee) -> bool:
        """Return whether the votes prove the decision; the caller has verified their signatures.

        Examples
        --------
        >>> committee, subject = Committee(("ada", "bob", "eve"), owner="ada"), Release("ada", 7, 0, 0)
        >>> votes = [Vote(subject, name, committee.first, COUNTED) for name in ("ada", "bob")]
        >>> Decision(subject, COUNTED, tuple(votes)).holds(committee)
        True
        >>> Decision(subject, COUNTED, tuple(votes[:1]) * 2).holds(committee)
        False
        """
        members = {vote.member for vote in self.votes}
        ballots = {vote.ballot for vote in self.votes}
        same = all((vote.subject, vote.value, vote.final) == (self.subject, self.value, True) for vote in self.votes)
        many = members <= {*committee.members} and len(members) >= committee.majority
        return same and many and len(ballots) == 1 and all(map(committee.owns, ballots))


def stated(statement: bytes) -> Vote | Promise:
    """Return the vote or promise on a release that a statement contains, without its signature.

    Raises
    ------
    DecodeError
        The statement is of another kind.

    Examples
    --------
    >>> vote = Vote(Release("ada", 7, 0, 0), "bob", Ballot(1, "eve"), DROPPED, final=False)
    >>> stated(vote.statement) == vote
    True
    """
    try:
        kind, _, *given = msgspec.msgpack.decode(statement)
        subject, member, incarnation, ballot, *last = given
        release = msgspec.convert(subject, Release)
        place = msgspec.convert(ballot, Ballot)
        if kind == "promise":
            voted, value = msgspec.convert(last, tuple[Ballot | None, str | None])
            read: Vote | Promise = Promise(release, member, place, voted, value, incarnation=incarnation)
        else:
            (value,) = msgspec.convert(last, tuple[str])
            read = Vote(release, member, place, value, incarnation=incarnation, final=kind == "vote")
    except (msgspec.MsgspecError, TypeError, ValueError):
        raise DecodeError("expected a vote or a promise on a release, got another statement") from None
    if read.statement != statement:
        raise DecodeError("expected a vote or a promise on a release, got another statement")
    return read


Message = Vote | Prepare | Promise | Proposal | Decision


def majority(votes: Mapping[str, Vote], committee: Committee) -> tuple[Vote, ...]:
    """Return those of the members' votes that a majority has given for one value in one ballot; empty without one."""
    counts = Counter((vote.ballot, vote.value) for vote in votes.values())
    decided = max((each for each, count in counts.items() if count >= committee.majority), default=None)
    return tuple(vote for _, vote in sorted(votes.items()) if (vote.ballot, vote.value) == decided)
