"""A member that sends whatever it can sign, at any time; it reads all messages, and decides which arrive when."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from ballots import AGAIN, COUNTS
from p2pfl.network.protocol.agreement.agreement import Agreement
from p2pfl.network.protocol.agreement.proofs import follows, highest_report, is_certified, reports
from p2pfl.network.protocol.wire.verdict_messages import (
    Ballot,
    Committee,
    Decision,
    Message,
    Place,
    Prepare,
    Promise,
    Proposal,
    Value,
    Vote,
)

Letter = tuple[str, str, Message]
"""Sender, receiver, message."""

Kind = TypeVar("Kind", Vote, Promise)


@dataclass(frozen=True)
class Malicious:
    """Member that follows no rule.

    All that it can send is there for the honest members to receive, so no message of theirs waits for it.

    Parameters
    ----------
    name, committee, subject
        Its name, and the agreement.
    ballots
        Ballots of its own, and of honest members, in which it lies.
    values
        All outcomes that it can state.
    """

    name: str
    committee: Committee
    subject: Place
    ballots: tuple[Ballot, ...]
    values: tuple[Value, ...] = (COUNTS, AGAIN)

    @property
    def others(self) -> tuple[str, ...]:
        """Honest members."""
        return tuple(each for each in self.committee.members if each != self.name)

    def says(self, letters: Collection[Letter]) -> Iterator[Letter]:
        """Yield what it can send, given all messages that were sent."""
        votes = _ordered([*self._votes(), *(vote for *_, message in letters for vote in _votes_in(message))])
        mine = _ordered(self._promises(votes))
        promises = _ordered([*mine, *(message for *_, message in letters if isinstance(message, Promise))])
        said = [*self._votes(), *self._proposals(promises, votes), *self._decisions(votes)]
        said += [Prepare(self.subject, ballot) for ballot in self.ballots if ballot.proposer == self.name]
        yield from ((self.name, to, message) for message in said for to in self.others)
        yield from ((self.name, each.ballot.proposer, each) for each in mine if each.ballot.proposer != self.name)

    def _votes(self) -> Iterator[Vote]:
        """Yield its own votes and acceptances: all values in all ballots."""
        for ballot in (self.committee.first, *self.ballots):
            for value, final in itertools.product(self.values, (False, True)):
                yield Vote(self.subject, self.name, ballot, value, final=final)

    def _promises(self, votes: Collection[Vote]) -> Iterator[Promise]:
        """Yield its own promises, with every last vote that it can prove or none, and every acceptance or none."""
        for ballot in self.ballots:
            bare = Promise(self.subject, self.name, ballot)
            found = [bare]
            for last, value in itertools.product((self.committee.first, *self.ballots), self.values):
                if last < ballot and is_certified(self.subject, last, value, votes, committee=self.committee):
                    found.append(
                        Promise(self.subject, self.name, ballot, last, value, proof=_proof(votes, last, value))
                    )
            for each in found:
                yield each
                for value in self.values:
                    yield msgspec.structs.replace(each, accepted=self.committee.first, accepted_value=value)

    def _proposals(self, promises: Collection[Promise], votes: Collection[Vote]) -> Iterator[Proposal]:
        """Yield all proposals in its own ballots that follow from promises, and some that do not."""
        if self.name == self.committee.owner:
            first = self.committee.first
            for value in self.values:
                vote = Vote(self.subject, self.name, first, value, final=False)
                yield Proposal(vote, (), (vote,))
                if is_certified(self.subject, first, value, votes, committee=self.committee):
                    yield Proposal(vote, (), _proof(votes, first, value))
        for ballot, value in itertools.product(self.ballots, self.values):
            if ballot.proposer != self.name:
                continue
            vote = Vote(self.subject, self.name, ballot, value, final=False)
            yield Proposal(vote, ())
            found = [each for each in promises if each.ballot == ballot and reports(each, committee=self.committee)]
            found = sorted({msgspec.structs.replace(each, proof=()) for each in found}, key=repr)
            for few in itertools.combinations(found, self.committee.majority):
                highest, values = highest_report(few)
                proof = tuple(vote for each in sorted(values) for vote in _proof(votes, highest, each))
                proposal = Proposal(vote, few, proof)
                if follows(proposal, committee=self.committee):
                    yield proposal

    def _decisions(self, votes: Collection[Vote]) -> Iterator[Decision]:
        """Yield all decisions that votes prove."""
        for ballot, value in itertools.product((self.committee.first, *self.ballots), self.values):
            for final in (True, False):
                few = {
                    vote.member: vote
                    for vote in votes
                    if (vote.ballot, vote.value, vote.final) == (ballot, value, final)
                }
                decision = Decision(self.subject, value, tuple(vote for _, vote in sorted(few.items())))
                if few and decision.holds(self.committee):
                    yield decision


def _ordered(messages: Iterable[Kind]) -> list[Kind]:
    """Return the different messages in an order that no hash decides, so that explorations are the same each time."""
    return sorted({*messages}, key=repr)


def _votes_in(message: Message) -> tuple[Vote, ...]:
    match message:
        case Vote():
            return (message,)
        case Promise(proof=proof):
            return proof
        case Proposal(vote=vote, proof=proof):
            return (vote, *proof)
        case Decision(votes=votes):
            return votes
    return ()


def _proof(votes: Collection[Vote], ballot: Ballot | None, value: object) -> tuple[Vote, ...]:
    """Return what proves a vote, in an order that does not depend on the order of messages."""
    found = [vote for vote in votes if (vote.ballot, vote.value, vote.final) == (ballot, value, False)]
    return tuple(sorted(found, key=repr))


class Credulous(Agreement):
    """Accepts every proposal in the first ballot, whether it believes it or not."""

    def _consider(self, vote: Vote) -> None:
        if self._accepts(vote.ballot):
            self._accept(vote.ballot, vote.value)
