"""Events that a session handles: arrivals, outcomes of effects, and the requests of :mod:`.requests`."""

from __future__ import annotations

from dataclasses import dataclass

from p2pfl.network.protocol.interface.requests import Request
from p2pfl.network.protocol.wire.wire_rows import Parsed

# ---------------------------------------------------------------------- arrivals


@dataclass(frozen=True)
class Received:
    """Arrival of a payload on a topic."""

    topic: str
    data: bytes | memoryview


@dataclass(frozen=True)
class Tick:
    """Passage of time.

    Parameters
    ----------
    grace
        Seconds within which a peer whose Last Will arrived may still return.
    work
        Processor time that computations have used, see :class:`~p2pfl.network.protocol.wire.messages.Pulse`.
    """

    grace: float = 0.0
    work: int = 0


@dataclass(frozen=True)
class Connected:
    """Return of a lost connection; other peers may have received the Last Will of this peer."""


# ---------------------------------------------------------------------- outcomes


@dataclass(frozen=True)
class Subscribed:
    """Confirmation by the broker of a :class:`~p2pfl.network.protocol.interface.effects.Subscribe` with a receipt."""

    receipt: str


@dataclass(frozen=True)
class Published:
    """Confirmation by the broker of a :class:`~p2pfl.network.protocol.interface.effects.Publish` with a receipt."""

    receipt: str


@dataclass(frozen=True)
class Flushed:
    """Confirmation that everything in the queue is published."""


@dataclass(frozen=True)
class Stored:
    """Confirmation that the state is durable, see :class:`~p2pfl.network.protocol.interface.effects.Store`."""


@dataclass(frozen=True)
class Read:
    """Models that were read after an effect ``Parse``; ``None`` marks an invalid model."""

    sender: str
    phase: int
    models: tuple[Parsed | None, ...]
    head: int | None


@dataclass(frozen=True)
class SumRefused:
    """Refusal of a message of a secure sum.

    Parameters
    ----------
    sender, kind
        Sender and type of the message.
    equivocated
        True if the sender has signed two different participant sets of one sum.
    """

    sender: str
    kind: str
    equivocated: bool = False


Arrival = Received | Read | SumRefused
"""Arrival from the network, as received or as processed by the shell."""

Outcome = Tick | Connected | Subscribed | Published | Flushed | Stored
"""Outcome of an effect, or the passage of time."""

Event = Arrival | Outcome | Request
