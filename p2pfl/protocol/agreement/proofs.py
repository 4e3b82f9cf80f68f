r"""Checks of what members state: which ballots and values exist, and what proves that a value may be proposed.

Each ballot above the first takes three steps: promises, acceptances, votes. A member accepts a proposal only with the
signed promises of a majority, and votes only for a value that a majority has accepted in the ballot. In the first
ballot there is one value, so the owner's vote takes the place of the acceptances.

*One lie is not enough.* Let any two majorities of a committee share at least two members, and let one member lie. Two
majorities then share an honest one, which accepts one value in a ballot, so at most one value is *certified* in it:
accepted by a majority, or voted for by the owner in the first ballot. Let v be decided in ballot b, and let b' > b be
the least ballot in which another value is certified. An honest member accepted it, so it has seen promises of a
majority for b'. One of them is of an honest member that voted for v in b. It voted before it promised, so it reported
its vote in b or in a ballot between b and b'. The highest vote that the promises report is certified, and all values
certified from b up to b' are v. The honest member accepted no value but v. This is a contradiction. ∎

References
----------
M. Castro, B. Liskov, "Practical Byzantine fault tolerance", OSDI 1999.
"""

from __future__ import annotations

from collections.abc import Collection

from p2pfl.protocol.agreement.messages import (
    COUNTED,
    DROPPED,
    Ballot,
    Committee,
    Promise,
    Proposal,
    Release,
    Subject,
    Value,
    Vote,
)


def exists(subject: Subject, ballot: Ballot, value: Value, *, committee: Committee) -> bool:
    """Return whether a value can be voted for in a ballot: in the first one, a release can only be counted.

    Examples
    --------
    >>> committee, subject = Committee(("ada", "bob", "eve"), owner="ada"), Release("ada", 7, 0, 0)
    >>> exists(subject, committee.first, COUNTED, committee=committee)
    True
    >>> exists(subject, committee.first, DROPPED, committee=committee)
    False
    """
    if not committee.owns(ballot):
        return False
    if not isinstance(subject, Release):
        return True
    return value == COUNTED or (value == DROPPED and ballot != committee.first)


def certified(subject: Subject, ballot: Ballot, value: Value, proof: Collection[Vote], *, committee: Committee) -> bool:
    """Return whether statements prove that members may vote for a value in a ballot; their signatures are verified.

    Parameters
    ----------
    subject, ballot, value
        What is to be proved.
    proof
        Acceptances of a majority; for the first ballot, the vote of the owner.
    committee
        Committee of the subject.
    """
    if not exists(subject, ballot, value, committee=committee):
        return False
    first = ballot == committee.first
    found = {
        vote.member
        for vote in proof
        if (vote.subject, vote.ballot, vote.value, vote.final) == (subject, ballot, value, first)
    }
    return committee.owner in found if first else len(found & {*committee.members}) >= committee.majority


def reports(promise: Promise, *, committee: Committee) -> bool:
    """Return whether a promise is for a ballot of the committee, and proves the vote that it reports."""
    if promise.member not in committee.members or not committee.owns(promise.ballot):
        return False
    if promise.voted is None or promise.value is None:
        return promise.voted is None and promise.value is None
    below = promise.voted < promise.ballot
    return below and certified(promise.subject, promise.voted, promise.value, promise.proof, committee=committee)


def follows(proposal: Proposal, *, committee: Committee) -> bool:
    """Return whether the proposer was free to choose its value: as the highest reported vote says, if there is one."""
    vote, promises = proposal.vote, proposal.promises
    if vote.final or vote.ballot.number < 1 or vote.member != vote.ballot.proposer:
        return False
    if not exists(vote.subject, vote.ballot, vote.value, committee=committee):
        return False
    members = {promise.member for promise in promises}
    if len(members) < len(promises) or not members <= {*committee.members} or len(members) < committee.majority:
        return False
    if any((each.subject, each.ballot) != (vote.subject, vote.ballot) for each in promises):
        return False
    voted = {(each.voted, each.value) for each in promises if each.voted is not None}
    if not voted:
        return all(each.value is None for each in promises)
    highest = max(ballot for ballot, _ in voted)
    return (
        highest < vote.ballot
        and (highest, vote.value) in voted
        and certified(vote.subject, highest, vote.value, proposal.proof, committee=committee)
    )


def contradict(one: Vote, other: Vote | Promise) -> bool:
    """Return whether a member cannot have stated both: two values in one ballot, or a promise that hides a vote."""
    if (one.subject, one.member) != (other.subject, other.member):
        return False
    if isinstance(other, Vote):
        same = (one.ballot, one.final) == (other.ballot, other.final)
        return same and one.value != other.value
    hidden = other.voted is None or other.voted < one.ballot
    return one.final and one.ballot < other.ballot and hidden
