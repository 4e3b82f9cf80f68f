"""Messages between the members of a committee, and the subjects and values of the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from p2pfl.errors import InputError

COUNTED = "counted"
"""Verdict that a release enters its round with full weight."""

DROPPED = "dropped"
"""Verdict that a release does not enter its round, and that its masks are removed."""

Value = str | tuple[str, ...]
"""Agreed value: a verdict, or the sorted names of a participant set."""


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
        """Smallest number of members such that any two sets of that size share a member."""
        return len(self.members) // 2 + 1

    @property
    def first(self) -> Ballot:
        """First ballot, which belongs to the owner and precedes all others."""
        return Ballot(0, self.owner)

    def owns(self, ballot: Ballot) -> bool:
        """Return whether a ballot belongs to this committee: the first is the owner's, the others are any member's."""
        return ballot == self.first if ballot.number <= 0 else ballot.proposer in self.members


class Vote(msgspec.Struct, frozen=True):
    """Signed statement that its sender votes for a value in a ballot; the proposer's vote is the proposal.

    Attributes
    ----------
    subject, member, ballot, value
        Subject, voter, ballot and value of the vote. A member signs at most one value in a ballot.
    signature
        Signature of all other fields, so that others can prove the vote.
    """

    subject: Subject
    member: str
    ballot: Ballot
    value: Value
    signature: bytes = b""

    @property
    def statement(self) -> bytes:
        """Encoded statement that the member signs."""
        kind = type(self.subject).__name__
        return msgspec.msgpack.encode((kind, self.subject, self.member, self.ballot, self.value))


class Prepare(msgspec.Struct, frozen=True):
    """Request of a ballot's proposer that the receiver promises to vote in no lower ballot from now on."""

    subject: Subject
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True):
    """Promise to vote in no ballot below this one.

    Attributes
    ----------
    subject, ballot
        Subject of the promise, and the promised ballot.
    voted
        Vote of the sender in the highest ballot in which it has voted; ``None`` if it has not voted.
    """

    subject: Subject
    ballot: Ballot
    voted: Vote | None = None


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
        same = all((vote.subject, vote.value) == (self.subject, self.value) for vote in self.votes)
        many = members <= {*committee.members} and len(members) >= committee.majority
        return same and many and len(ballots) == 1 and all(map(committee.owns, ballots))


Message = Vote | Prepare | Promise | Decision


def majority(votes: Collection[Vote], committee: Committee) -> Ballot | None:
    """Return the ballot in which these votes, one of each member, decide; ``None`` if there is none."""
    for ballot, count in Counter(vote.ballot for vote in votes).items():
        if count >= committee.majority:
            return ballot
    return None
