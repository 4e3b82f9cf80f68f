"""Events that an agreement handles, effects that it returns for the shell to carry out, and its durable record."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from p2pfl.network.protocol.wire.verdict_messages import (
    Agreed,
    Ballot,
    Decision,
    Message,
    Place,
    Statement,
    Value,
    Vote,
)

NEVER = Ballot(-1, "")
"""Placeholder below every ballot."""


class MemberRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a member that must survive a crash.

    Attributes
    ----------
    promised
        Promised ballot: the member votes in no ballot below it, and begins none up to it.
    voted
        Vote of the member in the highest ballot in which it has voted.
    decided
        Decision, if the member knows of one.
    accepted
        Acceptance of the member in the highest ballot in which it has accepted a proposal.
    proof
        Acceptances of a majority that allowed the member to vote as it did.
    """

    promised: Ballot = NEVER
    voted: Vote | None = None
    decided: Decision | None = None
    accepted: Vote | None = None
    proof: tuple[Vote, ...] = ()


BLANK = MemberRecord()
"""Record of a member that has promised nothing."""


class VerdictRecord(msgspec.Struct, frozen=True):
    """Record of one agreement as the journal contains it."""

    subject: Place
    record: MemberRecord


# ---------------------------------------------------------------------- events


@dataclass(frozen=True)
class Propose:
    """Value that the peer wants; the owner proposes it in the first ballot, others when they are free to choose."""

    value: Value


@dataclass(frozen=True)
class Believe:
    """Statement of the peer that a value which another member has proposed may be decided."""

    value: Value


@dataclass(frozen=True)
class Certify:
    """Request that the owner's ballot is decided by votes of a majority, because some members do not accept in time."""


@dataclass(frozen=True)
class Doubt:
    """Request to begin another ballot, because the owner is probably gone or the first ballot takes too long."""


@dataclass(frozen=True)
class MessageReceived:
    """Arrival of another member's message; the shell has authenticated the message and the statements in it."""

    sender: str
    message: Message


@dataclass(frozen=True)
class RecordStored:
    """Confirmation that the last record to store is durable."""


@dataclass(frozen=True)
class TimePassed:
    """Passage of time."""


Event = Propose | Believe | Certify | Doubt | MessageReceived | RecordStored | TimePassed


# ---------------------------------------------------------------------- effects


@dataclass(frozen=True)
class StoreRecord:
    """Instruction to make a record durable; ``RecordStored`` follows, and no vote or promise in it was sent before."""

    record: MemberRecord


@dataclass(frozen=True)
class Send:
    """Instruction to send a message to other members."""

    to: tuple[str, ...]
    message: Agreed


@dataclass(frozen=True)
class Contradicted:
    """Two statements that contradict each other; they prove to any peer that knows the member's key that it is faulty.

    Or it forgot: then the statements are of two incarnations.
    """

    one: Statement
    other: Statement


@dataclass(frozen=True)
class TickAt:
    """Instruction to send a ``TimePassed`` at this time."""

    when: float


Effect = StoreRecord | Send | Contradicted | TickAt
