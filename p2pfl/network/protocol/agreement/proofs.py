r"""Checks of what members of a committee state: what proves that a value may be proposed, and what contradicts itself.

Each ballot above the first takes three steps: promises, acceptances, votes; the first one needs no promises. A member
accepts a proposal only with the signed promises of a majority, and votes only for a value that a majority has accepted
in the ballot. A value is *certified* in a ballot if a majority has accepted it there.

*Byzantine members are not enough.* Of n members, let f < n / 3 be Byzantine, so that any two majorities share f + 1
members and thus an honest one. An honest member accepts one value in a ballot, so at most one value is certified in it.
Let v be decided in ballot b, and let b' > b be the least ballot in which another value is certified. An honest member
accepted it, so it has seen promises of a majority for b'. One of them is of an honest member that voted for v in b. It
voted before it promised, so it reported its vote in b or in a ballot between b and b'. The highest vote that the
promises report is proved by acceptances, and all values certified from b up to b' are v. The honest member accepted no
value but v. This is a contradiction. ∎

*Acceptances of all.* That an attempt counts is also decided once all n members have accepted it in the first ballot.
Let v be decided so, and let b be the least higher ballot in which an honest member accepts another value, or in which
another value is certified; a certified value was accepted by an honest member. This member has seen promises of a
majority for b. The honest ones among these had accepted v before they promised b, because a member that has promised b
accepts nothing in the first ballot, and v in all ballots below b since. Votes in the first ballot are for v, because
only v is certified there. So all but f of these promises report v as the
last value that was accepted, and none proves a vote for another value. There are more than 2 f promises, so all but f
report no other value. Thus the member accepted v. This is a contradiction. ∎ Such decisions are those of SBFT.

*What one honest peer counts, all believe.* The proofs assume that each honest peer believes a statement that another
one has counted. A peer believes a repeated statement if it is signed, and if its incarnation is not below the first one
that the peer met. That one is not above the incarnation with which it chose its masks, and in an attempt that counts,
all reports name the same incarnations. There is no upper bound, because a peer takes no announcement of a member that
it has excluded.

*What is decided was believed.* Let b be the lowest ballot in which a value is certified. No promise for b can prove a
vote for it. An honest member that accepted it in b believed it itself; or all but f promises reported that members have
accepted that the attempt counts, of which one at least is honest and had the signed reports of all. Of a majority, more
than f are honest, so it takes more than f honest members to drop one.

References
----------
M. Castro, B. Liskov, "Practical Byzantine fault tolerance", OSDI 1999.
G. Golan Gueta et al., "SBFT: a scalable and decentralized trust infrastructure", DSN 2019.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from p2pfl.network.protocol.wire.verdict_messages import (
    COMMITS,
    Ballot,
    Committee,
    Place,
    Promise,
    Proposal,
    Report,
    Statement,
    Value,
    Vote,
)


def is_certified(
    subject: Place, ballot: Ballot, value: Value, proof: Collection[Vote], *, committee: Committee
) -> bool:
    """Return whether acceptances prove that members may vote for a value in a ballot; their signatures are verified.

    Parameters
    ----------
    subject, ballot, value
        What is to be proved.
    proof
        Acceptances of a majority.
    committee
        Committee of the subject.
    """
    if not committee.owns(ballot):
        return False
    signers = {
        vote.member
        for vote in proof
        if (vote.subject, vote.ballot, vote.value, vote.final) == (subject, ballot, value, False)
    }
    return len(signers & {*committee.members}) >= committee.majority


def reports(promise: Promise, *, committee: Committee) -> bool:
    """Return whether a promise is for a ballot of the committee, and proves the vote that it reports."""
    if promise.member not in committee.members or not committee.owns(promise.ballot) or not _possible(promise):
        return False
    if promise.voted is None or promise.value is None:
        return True
    below = promise.voted < promise.ballot
    return below and is_certified(promise.subject, promise.voted, promise.value, promise.proof, committee=committee)


def follows(proposal: Proposal, *, committee: Committee) -> bool:
    """Return whether the proposer was free to choose its value: as the highest reported vote says, if there is one.

    In the first ballot, whether a majority has accepted the value.
    """
    vote, promises = proposal.vote, proposal.promises
    if vote.final or vote.member != vote.ballot.proposer or not committee.owns(vote.ballot):
        return False
    if vote.ballot == committee.first:
        proved = is_certified(vote.subject, vote.ballot, vote.value, proposal.proof, committee=committee)
        return proved and not promises and committee.decides_at_once(vote.ballot, vote.value)
    members = {promise.member for promise in promises}
    if len(members) < len(promises) or not members <= {*committee.members} or len(members) < committee.majority:
        return False
    if any((each.subject, each.ballot) != (vote.subject, vote.ballot) for each in promises):
        return False
    if not all(map(_possible, promises)):
        return False
    highest, values = highest_report(promises)
    if highest is None:
        return accepted_by_most(promises, committee=committee) in {None, vote.value}
    if highest >= vote.ballot or values != {vote.value}:
        return False
    return is_certified(vote.subject, highest, vote.value, proposal.proof, committee=committee)


def highest_report(promises: Collection[Promise]) -> tuple[Ballot | None, frozenset[Value]]:
    """Return the highest ballot in which promises report votes, and the values of these; ``None`` without any."""
    voted = [(each.voted, each.value) for each in promises if each.voted is not None and each.value is not None]
    if not voted:
        return None, frozenset()
    highest = max(ballot for ballot, _ in voted)
    return highest, frozenset(value for ballot, value in voted if ballot == highest)


def _possible(promise: Promise) -> bool:
    """Return whether a promise names ballots with their values, or neither, and an acceptance below its own ballot."""
    named = (promise.voted, promise.value), (promise.accepted, promise.accepted_value)
    if any((ballot is None) != (value is None) for ballot, value in named):
        return False
    return promise.accepted is None or promise.accepted < promise.ballot


def accepted_by_most(promises: Collection[Promise], *, committee: Committee) -> Value | None:
    r"""Return the outcome that all honest members among these may have accepted, so that it may be decided.

    Examples
    --------
    >>> committee, ballot = Committee(("ada", "bob", "eve", "mia")), Ballot(1, "bob")
    >>> def promise(member, value):
    ...     return Promise(Place(0, 0), member, ballot, accepted=committee.first, accepted_value=value)
    >>> promises = [promise("bob", b"\1"), promise("eve", b"\1"), Promise(Place(0, 0), "mia", ballot)]
    >>> accepted_by_most(promises, committee=committee), accepted_by_most(promises[1:], committee=committee)
    (b'\x01', b'\x01')
    """
    values = [each.accepted_value for each in promises if each.accepted_value is not None]
    least = len(promises) - committee.faulty
    most = [each for each, count in Counter(values).items() if each.startswith(COMMITS) and count >= least]
    return most[0] if len(most) == 1 else None


def choose_proposal(promises: Collection[Promise], *, wanted: Value | None, committee: Committee) -> Value | None:
    """Return the value that the promises of a majority allow; ``None`` if there is none to propose.

    Parameters
    ----------
    promises
        One of each member that has promised, with proven votes.
    wanted
        Value if they report nothing that may be decided.
    committee
        Committee of the subject.

    Examples
    --------
    >>> ballot, place, committee = Ballot(1, "bob"), Place(0, 0), Committee(("ada", "bob", "eve"))
    >>> promises = [Promise(place, "bob", ballot), Promise(place, "eve", ballot, Ballot(0, "ada"), b"one")]
    >>> choose_proposal(promises, wanted=b"two", committee=committee)
    b'one'
    >>> choose_proposal(promises[:1], wanted=b"two", committee=committee)
    b'two'
    """
    highest, values = highest_report(promises)
    if highest is None:
        accepted = accepted_by_most(promises, committee=committee)
        return wanted if accepted is None else accepted
    return min(values) if len(values) == 1 else None  # more members are Byzantine than the committee tolerates


def contradict(one: Statement, other: Statement) -> bool:
    """Return whether a member cannot have stated both: two values in one place, or a promise that hides a vote."""
    if (one.subject, one.member) != (other.subject, other.member):
        return False
    match one, other:
        case Report(), Report():
            return one.value != other.value
        case Vote(), Vote():
            return (one.ballot, one.final) == (other.ballot, other.final) and one.value != other.value
        case Vote(), Promise():
            last, value = (other.voted, other.value) if one.final else (other.accepted, other.accepted_value)
            hidden = last is None or last < one.ballot or (last == one.ballot and value != one.value)
            return one.ballot < other.ballot and hidden
    return False
