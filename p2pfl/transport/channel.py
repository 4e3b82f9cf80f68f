"""What a transport promises: bytes by topic, as MQTT delivers them.

A :class:`Transport` knows how to reach a broker; :meth:`Transport.join` opens one
:class:`Channel` on it under a name. The promises are those of MQTT at QoS 1 with a clean session:

- messages of one publisher on one topic arrive in the order in which they were published;
- a retained message is kept by the broker, one a topic, for whoever subscribes later, until an
  empty one clears it;
- the will of a channel is published, retained, when the channel is lost without having left;
- of two channels under one name the younger stays and the older is lost.

An acknowledged publish has reached the broker, not the listeners: what must arrive needs
acknowledgements of its own.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from p2pfl.errors import TransportError

Payload = bytes | bytearray | memoryview
"""What may be published."""

LIMIT = (256 + 4) * 1024
"""Default for the largest payload in bytes: a chunk of 256 KiB and 4 KiB for its headers."""

KEEPALIVE = 15.0
"""Seconds without a sign after which a connection is asked for one; after half as many again it counts as lost."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it arrives.

    Parameters
    ----------
    topic
        Where it was published.
    data
        Its payload; treat it as read-only.
    retained
        True if it was published before this channel subscribed and the broker had kept it.
    """

    topic: str
    data: bytes | memoryview
    retained: bool


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes, retained, for a channel that is lost without having left.

    Parameters
    ----------
    topic
        Where it will be published.
    data
        Its payload, 65 535 bytes at most.
    """

    topic: str
    data: bytes


class Channel(Protocol):
    """One peer's connection to the broker.

    Iterating yields the messages of all subscriptions as they arrive and raises
    :class:`~p2pfl.errors.TransportError` once the connection is lost and all that had arrived is
    read. Arrived messages wait in memory without bound; what is outstanding is for the protocol
    above to bound.
    """

    @property
    def limit(self) -> int:
        """Largest payload in bytes that :meth:`publish` takes."""
        ...

    @property
    def away(self) -> float:
        """Seconds so far in which there was no connection: nothing was heard, whoever spoke."""
        ...

    @property
    def lost(self) -> bool:
        """Whether there is no connection now."""
        ...

    @property
    def grace(self) -> float:
        """Seconds within which another channel whose will came may well be there again."""
        ...

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish ``data``; returns when the broker has acknowledged it.

        An empty payload with ``retain`` clears the topic. ``data`` must not change before this returns.

        Raises
        ------
        RefusedError
            The broker refused it.
        TransportError
            The payload is over :attr:`limit`, or no acknowledgement came; then it may have been delivered all the same.
        """
        ...

    async def subscribe(self, *filters: str) -> None:
        """Ask for all topics that match; ``+`` stands for one level and a final ``#`` for the rest.

        Raises
        ------
        RefusedError
            The broker refused.
        TransportError
            The connection is lost.
        """
        ...

    async def unsubscribe(self, *filters: str) -> None:
        """Take filters back; those never asked for are ignored.

        Raises
        ------
        TransportError
            The connection is lost.
        """
        ...

    def abort(self) -> None:
        """Lose the connection without a goodbye, as a crash would; the broker publishes the will."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Message: ...


class Transport(Protocol):
    """A way to reach a broker."""

    def join(self, client: str, *, will: Will | None = None) -> AbstractAsyncContextManager[Channel]:
        """Open a channel under the name ``client``; leaving the context says goodbye, so no will.

        Raises
        ------
        AccessError
            The broker does not let us in, or is not the one we trust.
        BrokerError
            It cannot be reached.
        """
        ...


def matches(filter: str, topic: str) -> bool:
    """Tell whether an MQTT topic filter covers a topic.

    As the standard has it, a wildcard in first place does not cover the broker's own ``$`` topics.

    Examples
    --------
    >>> matches("swarm/+/state", "swarm/ada/state"), matches("swarm/#", "swarm"), matches("+", "$SYS")
    (True, True, False)
    """
    if topic.startswith("$") and filter[:1] in ("+", "#"):
        return False
    levels = topic.split("/")
    wanted = filter.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def check_publish(topic: str, data: Payload, *, limit: int) -> None:
    """Raise :class:`~p2pfl.errors.TransportError` for what no broker would take.

    Examples
    --------
    >>> check_publish("swarm/ada", b"hello", limit=4)
    Traceback (most recent call last):
    p2pfl.errors.TransportError: expected a payload of at most 4 bytes on swarm/ada, got 5: send it in chunks
    """
    if not topic or any(sign in topic for sign in "+#\0"):
        raise TransportError(f"expected a topic without wildcards, got {topic!r}: publish to one topic")
    size = memoryview(data).nbytes
    if size > limit:
        raise TransportError(f"expected a payload of at most {limit} bytes on {topic}, got {size}: send it in chunks")


def check_filters(filters: tuple[str, ...]) -> None:
    """Raise :class:`~p2pfl.errors.TransportError` for a filter that MQTT does not allow.

    Examples
    --------
    >>> check_filters(("swarm/#/state",))
    Traceback (most recent call last):
    p2pfl.errors.TransportError: expected a topic filter such as swarm/+/state or swarm/#, got 'swarm/#/state'
    """
    for filter in filters:
        levels = filter.split("/")
        whole = all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
        if not filter or not whole or "#" in levels[:-1]:
            raise TransportError(f"expected a topic filter such as swarm/+/state or swarm/#, got {filter!r}")
