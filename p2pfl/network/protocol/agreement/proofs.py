r"""Checks of what members state: which ballots and values exist, and what proves that a value may be proposed.

Each ballot above the first takes three steps: promises, acceptances, votes. A member accepts a proposal only with the
signed promises of a majority, and votes only for a value that a majority has accepted in the ballot. In the first
ballot the owner's vote takes the place of the acceptances: an honest owner signs one value there.

*One Byzantine member is not enough.* Let any two majorities of a committee share at least two members, and let one
member be Byzantine. Two majorities then share an honest one, which accepts one value in a ballot, so at most one value
is *certified* in it: accepted by a majority, or voted for by the owner in the first ballot. Let v be decided in ballot
b, and let b' > b be the least ballot in which another value is certified. An honest member accepted it, so it has seen
promises of a majority for b'. One of them is of an honest member that voted for v in b. It voted before it promised, so
it reported its vote in b or in a ballot between b and b'. The highest vote that the promises report is certified, and
all values certified from b up to b' are v. The honest member accepted no value but v. This is a contradiction. ∎

*An owner that signs two copies.* Then it is the Byzantine one, and all promises of others are true. If v was decided in
the first ballot by q votes, at least q - 1 of them are of others. If promises report both v and another copy as their
highest votes, those that voted for v and have not promised are among the m others that have not, so at least q - 1 - m
of the promises report v, and the proposer counts v as possible. It may propose no value but the one that is possible,
and none if two are: then it waits for more promises. If none is possible, none was decided, and the release is dropped.

References
----------
M. Castro, B. Liskov, "Practical Byzantine fault tolerance", OSDI 1999.
"""

from __future__ import annotations

from collections.abc import Collection

from p2pfl.network.protocol.wire.verdict_messages import (
    DROPPED,
    Ballot,
    Committee,
    Promise,
    Proposal,
    Release,
    Value,
    Vote,
)


def exists(ballot: Ballot, value: Value, *, committee: Committee) -> bool:
    """Return whether a value can be voted for in a ballot: in the first one, a release can only be counted.

    Examples
    --------
    >>> committee = Committee(("ada", "bob", "eve"), owner="ada")
    >>> exists(committee.first, b"digest", committee=committee)
    True
    >>> exists(committee.first, DROPPED, committee=committee)
    False
    """
    if not committee.owns(ballot):
        return False
    return value != DROPPED or ballot != committee.first


def is_certified(
    subject: Release, ballot: Ballot, value: Value, proof: Collection[Vote], *, committee: Committee
) -> bool:
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
    if not exists(ballot, value, committee=committee):
        return False
    first = ballot == committee.first
    signers = {
        vote.member
        for vote in proof
        if (vote.subject, vote.ballot, vote.value, vote.final) == (subject, ballot, value, first)
    }
    return committee.owner in signers if first else len(signers & {*committee.members}) >= committee.majority


def reports(promise: Promise, *, committee: Committee) -> bool:
    """Return whether a promise is for a ballot of the committee, and proves the vote that it reports."""
    if promise.member not in committee.members or not committee.owns(promise.ballot):
        return False
    if promise.voted is None or promise.value is None:
        return promise.voted is None and promise.value is None
    below = promise.voted < promise.ballot
    return below and is_certified(promise.subject, promise.voted, promise.value, promise.proof, committee=committee)


def follows(proposal: Proposal, *, committee: Committee) -> bool:
    """Return whether the proposer was free to choose its value: as the highest reported vote says, if there is one."""
    vote, promises = proposal.vote, proposal.promises
    if vote.final or vote.ballot.number < 1 or vote.member != vote.ballot.proposer:
        return False
    if not exists(vote.ballot, vote.value, committee=committee):
        return False
    members = {promise.member for promise in promises}
    if len(members) < len(promises) or not members <= {*committee.members} or len(members) < committee.majority:
        return False
    if any((each.subject, each.ballot) != (vote.subject, vote.ballot) for each in promises):
        return False
    if any((each.voted is None) != (each.value is None) for each in promises):
        return False
    highest, values = highest_report(promises)
    if highest is None:
        return True
    if highest >= vote.ballot or choose_proposal(promises, wanted=vote.value, committee=committee) != vote.value:
        return False
    return all(is_certified(vote.subject, highest, value, proposal.proof, committee=committee) for value in values)


def highest_report(promises: Collection[Promise]) -> tuple[Ballot | None, frozenset[Value]]:
    """Return the highest ballot in which promises report votes, and the values of these; ``None`` without any."""
    voted = [(each.voted, each.value) for each in promises if each.voted is not None and each.value is not None]
    if not voted:
        return None, frozenset()
    highest = max(ballot for ballot, _ in voted)
    return highest, frozenset(value for ballot, value in voted if ballot == highest)


def choose_proposal(promises: Collection[Promise], *, wanted: Value, committee: Committee) -> Value | None:
    """Return the value that the promises of a majority allow; ``None`` as long as they do not tell.

    Parameters
    ----------
    promises
        One of each member that has promised, with proven votes.
    wanted
        Value if they report no vote.
    committee
        Committee of the subject.

    Examples
    --------
    Two of three others have voted for one copy, and the third for another one, so the owner is Byzantine, and the first
    copy may have been decided.

    >>> group, ballot = Committee(("ada", "bob", "eve", "mia"), owner="ada"), Ballot(1, "bob")
    >>> votes = {"bob": b"one", "eve": b"one", "mia": b"two"}
    >>> release = Release("ada", 7, 0, 0)
    >>> promises = [Promise(release, name, ballot, group.first, value) for name, value in votes.items()]
    >>> choose_proposal(promises, wanted=DROPPED, committee=group)
    b'one'
    """
    highest, values = highest_report(promises)
    if highest is None:
        return wanted
    if len(values) == 1:
        return min(values)
    if highest != committee.first:
        return None  # more than one member is Byzantine
    others = [each for each in promises if each.member != committee.owner]
    silent = len(committee.members) - 1 - len(others)
    least = committee.majority - 1 - silent
    possible = [
        value for value in values if sum((each.voted, each.value) == (highest, value) for each in others) >= least
    ]
    if len(possible) > 1:
        return None
    return possible[0] if possible else DROPPED


def contradict(one: Vote, other: Vote | Promise) -> bool:
    """Return whether a member cannot have stated both: two values in one ballot, or a promise that hides a vote."""
    if (one.subject, one.member) != (other.subject, other.member):
        return False
    if isinstance(other, Vote):
        same = (one.ballot, one.final) == (other.ballot, other.final)
        return same and one.value != other.value
    if other.voted is None or other.voted < one.ballot:
        hidden = True
    else:
        hidden = other.voted == one.ballot and other.value != one.value
    return one.final and one.ballot < other.ballot and hidden
