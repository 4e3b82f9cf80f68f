r"""Reports of the members of an attempt at a round, and the outcome that a committee of them decides.

Each member reports whether it is complete: it has received every model of every gossip step of the attempt. The outcome
is a function of the reports, and of which members are dropped because they do not report: whether the attempt counts,
who takes part in the next one, and which peer joins. A committee of the members decides it in one agreement, so all
members come to the same outcome. This is Paxos Commit with one instance for all reports.

References
----------
J. Gray, L. Lamport, "Consensus on transaction commit", ACM TODS 31(1), 2006.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.wire.verdict_messages import Value

COMPLETE = b"\1"
"""First byte of the report of a member that has received every model of the attempt."""

NOBODY = b"\xff\xff"
"""Two bytes of a report that name no peer that joins."""

FAILED = b"\0"
"""Report of a member that lacks a model of the attempt, and that takes part in the next one."""


DROPPED = 19
"""Place in an encoded outcome of the bits of the members that are dropped, after flag, joining peer and digest."""


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


def complete(incarnations: bytes = b"", *, joins: int | None = None) -> bytes:
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


def outcome(reports: Mapping[str, bytes | None]) -> AttemptOutcome:
    """Return the outcome of an attempt.

    It counts if all members are complete and knew the same incarnations when they chose their masks. Of a member that
    was dropped, nobody knows with which incarnations it shared masks, or whether it released its half of them, so an
    attempt without its report does not count.

    Parameters
    ----------
    reports
        By member, what it reported; ``None`` for one that is dropped.

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
    >>> outcome({"ada": complete(), "bob": complete(), "eve": None})
    AttemptOutcome(committed=False, members=('ada', 'bob'), joins=None)
    """
    members = tuple(sorted(peer for peer, value in reports.items() if value is not None))
    values = {*reports.values()}
    if not are_complete(values):
        return AttemptOutcome(False, members)
    named = {each[1:3] for each in values if each is not None}
    joins = int.from_bytes(named.pop()) if len(named) == 1 and NOBODY not in named else None
    return AttemptOutcome(True, members, joins)


def are_complete(values: Collection[bytes | None]) -> bool:
    """Return whether reports are all complete, with the same digest of incarnations.

    Examples
    --------
    >>> are_complete([complete(b"1"), complete(b"1", joins=2)]), are_complete([complete(b"1"), complete(b"2")])
    (True, False)
    """
    given = [each for each in values if each is not None and each.startswith(COMPLETE)]
    return len(given) == len(values) > 0 and len({each[3:] for each in given}) == 1


def encode_outcome(outcome: AttemptOutcome, members: Collection[str]) -> Value:
    r"""Return an outcome as a committee decides it.

    It contains a digest of the members: a peer that was dropped and has restarted may count itself among the members of
    an attempt of which the others have decided without it.

    Parameters
    ----------
    outcome, members
        Outcome, and members of the attempt.

    Examples
    --------
    >>> value = encode_outcome(AttemptOutcome(True, ("ada", "bob"), 7), ("ada", "bob"))
    >>> value[:3], len(value)
    (b'\x01\x00\x07', 19)
    >>> encode_outcome(AttemptOutcome(False, ("ada", "eve")), ("ada", "bob", "eve"))[DROPPED:]
    b'\x02'
    """
    names = sorted(members)
    bits = sum(1 << place for place, member in enumerate(names) if member not in outcome.members)
    dropped = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    named = NOBODY if outcome.joins is None else outcome.joins.to_bytes(2)
    digest = hashlib.blake2b(msgspec.msgpack.encode(names), digest_size=DROPPED - 1 - len(NOBODY)).digest()
    return bytes([outcome.committed]) + named + digest + dropped


def decode_outcome(value: Value, members: Collection[str]) -> AttemptOutcome:
    """Return the outcome that a committee has decided.

    Raises
    ------
    DecodeError
        The bytes are no outcome of an attempt of these members.

    Examples
    --------
    >>> members = ("ada", "bob", "eve")
    >>> decode_outcome(encode_outcome(AttemptOutcome(False, ("ada", "eve")), members), members)
    AttemptOutcome(committed=False, members=('ada', 'eve'), joins=None)
    >>> decode_outcome(encode_outcome(AttemptOutcome(True, ("ada", "eve")), ("ada", "eve")), members)
    Traceback (most recent call last):
    p2pfl.core.errors.DecodeError: the bytes are no outcome of an attempt of these members
    """
    named, bits = value[1:3], int.from_bytes(value[DROPPED:], "little")
    left = tuple(member for place, member in enumerate(sorted(members)) if not bits >> place & 1)
    joins = None if named == NOBODY else int.from_bytes(named)
    outcome = AttemptOutcome(value[:1] == COMPLETE, left, joins)
    possible = len(left) == len(members) if outcome.committed else joins is None
    if encode_outcome(outcome, members) != value or not possible:
        raise DecodeError("the bytes are no outcome of an attempt of these members")
    return outcome
