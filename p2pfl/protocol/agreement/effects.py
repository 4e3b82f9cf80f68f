"""What an agreement is told, and what it decides for the shell to carry out."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from p2pfl.protocol.agreement.messages import Ballot, Decision, Message, Value, Vote

NEVER = Ballot(-1, "")
"""Before every ballot."""


class Record(msgspec.Struct, frozen=True):
    """What a member must not forget in a crash.

    Attributes
    ----------
    promised
        It votes in no ballot below this one, and begins none up to it.
    voted
        Its vote in the highest ballot in which it has voted.
    decided
        What was decided, as far as it knows.
    """

    promised: Ballot = NEVER
    voted: Vote | None = None
    decided: Decision | None = None


BLANK = Record()
"""Of a member that has promised nothing."""

# ---------------------------------------------------------------------- events


@dataclass(frozen=True)
class Propose:
    """The peer wants this value; the owner proposes it in the first ballot, others where they are free to choose."""

    value: Value


@dataclass(frozen=True)
class Doubt:
    """The owner is probably gone, or the first ballot takes too long: begin another one."""


@dataclass(frozen=True)
class Received:
    """A message of another member came; the shell has authenticated it and the votes in it.

    The shell passes a vote on only once this peer holds what it counts: the proposal to count a release waits until the
    release is here.
    """

    sender: str
    message: Message


@dataclass(frozen=True)
class Stored:
    """The last record that was to be stored is durable."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = Propose | Doubt | Received | Stored | Tick


# ---------------------------------------------------------------------- effects


@dataclass(frozen=True)
class Store:
    """Make a record durable; a ``Stored`` follows. Nothing that it says was sent before."""

    record: Record


@dataclass(frozen=True)
class Send:
    """Send a message to another member.

    Attributes
    ----------
    prompt
        False for votes of the first ballot, which can wait for the next message that leaves anyway.
    """

    to: str
    message: Message
    prompt: bool = True


@dataclass(frozen=True)
class Decided:
    """The value is decided, and durable here."""

    decision: Decision


@dataclass(frozen=True)
class Contradicted:
    """A member has signed two values in one ballot: the two votes prove it to anybody who knows its key."""

    one: Vote
    other: Vote


@dataclass(frozen=True)
class WakeAt:
    """Send a ``Tick`` at this time."""

    when: float


Effect = Store | Send | Decided | Contradicted | WakeAt
