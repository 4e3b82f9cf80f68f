"""What members of a committee send to each other, and what it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from p2pfl.errors import InputError

COUNTED = "counted"
"""The verdict that a release enters its round with full weight."""

DROPPED = "dropped"
"""The verdict that a release does not enter its round, and that its masks are removed."""

Value = str | tuple[str, ...]
"""What is agreed on: a verdict, or the sorted names of a participant set."""


class Ballot(NamedTuple):
    """One attempt to reach a majority; ordered, and of one proposer.

    Attributes
    ----------
    number
        0 is the first ballot, which needs no preparation.
    proposer
        Who chooses its value.
    """

    number: int
    proposer: str


class Release(NamedTuple):
    """A release whose verdict is agreed on.

    Attributes
    ----------
    peer, incarnation
        Whose it is.
    round, attempt
        Which of its releases it is.
    """

    peer: str
    incarnation: int
    round: int
    attempt: int


class Participants(NamedTuple):
    """A round of exact sums whose participant set is agreed on."""

    round: int
    attempt: int


Subject = Release | Participants
"""What one agreement is about. Each subject gets at most one value, ever."""


@dataclass(frozen=True)
class Committee:
    """Who votes on a subject.

    Parameters
    ----------
    members
        Their names, each once.
    owner
        Who proposes in the first ballot: the peer whose release it is, or the root of the tree of a sum.

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
        """The least number of members of which any two sets share one."""
        return len(self.members) // 2 + 1

    @property
    def first(self) -> Ballot:
        """The ballot of the owner, before all others."""
        return Ballot(0, self.owner)

    def owns(self, ballot: Ballot) -> bool:
        """Return whether a ballot is one of this committee: the first is the owner's, the others are any member's."""
        return ballot == self.first if ballot.number <= 0 else ballot.proposer in self.members


class Vote(msgspec.Struct, frozen=True):
    """A signed statement that its sender votes for a value in a ballot; that of the proposer is the proposal.

    Attributes
    ----------
    subject, member, ballot, value
        Who votes for what. A member signs at most one value in a ballot.
    signature
        Of everything else, so that others can show the vote.
    """

    subject: Subject
    member: str
    ballot: Ballot
    value: Value
    signature: bytes = b""

    @property
    def statement(self) -> bytes:
        """What is signed."""
        kind = type(self.subject).__name__
        return msgspec.msgpack.encode((kind, self.subject, self.member, self.ballot, self.value))


class Prepare(msgspec.Struct, frozen=True):
    """A request of the proposer of a ballot to promise that its receiver votes in no lower ballot any more."""

    subject: Subject
    ballot: Ballot


class Promise(msgspec.Struct, frozen=True):
    """A promise to vote in no ballot below this one.

    Attributes
    ----------
    subject, ballot
        What is promised.
    voted
        The sender's vote in the highest ballot in which it has voted; ``None`` if it has not voted.
    """

    subject: Subject
    ballot: Ballot
    voted: Vote | None = None


class Decision(msgspec.Struct, frozen=True):
    """A value that a majority has voted for in one ballot, with these votes.

    Attributes
    ----------
    subject, value
        What is decided.
    votes
        In one ballot, of different members.
    """

    subject: Subject
    value: Value
    votes: tuple[Vote, ...]

    def holds(self, committee: Committee) -> bool:
        """Return whether the votes are what decides; the caller has verified their signatures.

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
