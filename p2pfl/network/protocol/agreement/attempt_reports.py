"""Reports of the members of an attempt at a round, and the outcome that follows from the verdicts on them.

Each member reports whether it is complete: it has received every model of every gossip step of the attempt. Its report
is the subject of an agreement among all members, with the member as its owner. A member that does not report is dropped
in a ballot above the first. So all members come to the same verdict on each report, and to the same outcome, which is a
function of the verdicts. This is Paxos Commit, with proofs against one Byzantine member.

References
----------
J. Gray, L. Lamport, "Consensus on transaction commit", ACM TODS 31(1), 2006.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from p2pfl.network.protocol.wire.verdict_messages import DROPPED, Release, Value

COMPLETE = b"\1"
"""First byte of the report of a member that has received every model of the attempt."""

NOBODY = b"\xff\xff"
"""Two bytes of a report that name no peer that joins."""

FAILED = b"\0"
"""Report of a member that lacks a model of the attempt, and that takes part in the next one."""


@dataclass(frozen=True)
class AttemptOutcome:
    """Outcome of an attempt.

    Attributes
    ----------
    committed
        True if the parameters of the attempt replace those from before the round; otherwise the round is played again.
    members
        Those of its members that take part in the next attempt, sorted.
    joins
        Place among all peers of one that all reports of a committed attempt name: it takes part in the next round.
    """

    committed: bool
    members: tuple[str, ...]
    joins: int | None = None


def report(peer: str, round: int, attempt: int) -> Release:
    """Return the subject of the agreement on a member's report, the same for all incarnations of the member."""
    return Release(peer, 0, round, attempt)


def complete(incarnations: bytes = b"", *, joins: int | None = None) -> Value:
    r"""Return the report of a member that has received every model of the attempt.

    Parameters
    ----------
    incarnations
        Digest of the incarnations of all members that this one knew when it chose its masks, at most 29 bytes.
    joins
        Place among all peers of one that asks to be a member of the next round.

    Examples
    --------
    >>> complete(b"\2"), complete(b"\2", joins=3)
    (b'\x01\xff\xff\x02', b'\x01\x00\x03\x02')
    """
    return COMPLETE + (NOBODY if joins is None else joins.to_bytes(2)) + incarnations


def outcome(verdicts: Mapping[str, Value]) -> AttemptOutcome:
    """Return the outcome of an attempt.

    It counts if all members are complete and knew the same incarnations when they chose their masks. Of a member that
    was dropped, nobody knows with which incarnations it shared masks, or whether it released its half of them, so an
    attempt without its report does not count.

    Parameters
    ----------
    verdicts
        By member, the verdict on its report.

    Examples
    --------
    >>> outcome({"ada": complete(), "bob": complete()})
    AttemptOutcome(committed=True, members=('ada', 'bob'), joins=None)
    >>> outcome({"ada": complete(joins=2), "bob": complete(joins=2)})
    AttemptOutcome(committed=True, members=('ada', 'bob'), joins=2)
    >>> outcome({"ada": complete(joins=2), "bob": complete()})
    AttemptOutcome(committed=True, members=('ada', 'bob'), joins=None)
    >>> outcome({"ada": complete(b"1"), "bob": complete(b"2")})
    AttemptOutcome(committed=False, members=('ada', 'bob'), joins=None)
    >>> outcome({"ada": complete(), "bob": FAILED})
    AttemptOutcome(committed=False, members=('ada', 'bob'), joins=None)
    >>> outcome({"ada": complete(), "bob": complete(), "eve": DROPPED})
    AttemptOutcome(committed=False, members=('ada', 'bob'), joins=None)
    """
    members = tuple(sorted(peer for peer, value in verdicts.items() if value != DROPPED))
    reports = {*verdicts.values()}
    if len({each[3:] for each in reports}) != 1 or not all(each.startswith(COMPLETE) for each in reports):
        return AttemptOutcome(False, members)
    named = {each[1:3] for each in reports}
    joins = int.from_bytes(named.pop()) if len(named) == 1 and NOBODY not in named else None
    return AttemptOutcome(True, members, joins)


def are_connected(members: Collection[str], neighbours: Mapping[str, Collection[str]]) -> bool:
    """Return whether members form one component of a graph.

    Examples
    --------
    >>> ring = {"ada": ["bob", "eve"], "bob": ["ada", "mia"], "eve": ["ada", "mia"], "mia": ["bob", "eve"]}
    >>> are_connected(["ada", "bob", "mia"], ring), are_connected(["ada", "mia"], ring)
    (True, False)
    """
    left = {*members}
    frontier = [left.pop()] if left else []
    while frontier:
        new = left & {*neighbours[frontier.pop()]}
        left -= new
        frontier += new
    return not left
