"""Contract of transports: bytes by topic, delivered as by MQTT.

A :class:`Transport` knows how to reach a broker; :meth:`Transport.join` opens one
:class:`Channel` on it under a name. The guarantees are those of MQTT at QoS 1 with a clean session:

- messages of one publisher on one topic arrive in the order in which they were published;
- the broker keeps one retained message per topic for later subscribers, until an empty one clears it;
- the broker publishes the will of a channel, retained, when the channel is lost without leaving;
- of two channels under one name the newer stays and the older is lost.

An acknowledged publish has reached the broker, not the receivers: messages that must arrive need
their own acknowledgements.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from p2pfl.core.errors import TransportError

Payload = bytes | bytearray | memoryview
"""Type of payloads."""

LIMIT = (256 + 4) * 1024
"""Default for the largest payload in bytes: a chunk of 256 KiB and 4 KiB for its headers."""

KEEPALIVE = 15.0
"""Seconds of silence before a ping; after one and a half times as many the connection counts as lost."""


@dataclass(frozen=True, slots=True)
class Message:
    """Message as it arrives.

    Parameters
    ----------
    topic
        Topic of the message.
    data
        Payload; treat it as read-only.
    retained
        True if it was published before this channel subscribed, and the broker retained it.
    """

    topic: str
    data: bytes | memoryview
    retained: bool


@dataclass(frozen=True, slots=True)
class KeptMessage(Message):
    """Message of a session that the broker keeps; it arrives again on a later connection until it is acknowledged.

    Parameters
    ----------
    number
        Packet identifier; 0 at QoS 0, where nothing arrives again.
    repeated
        True if the broker has sent it before under this number.
    acknowledge
        Function that acknowledges it; without effect once its connection is lost.
    """

    number: int
    repeated: bool
    acknowledge: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Will:
    """Message that the broker publishes, retained, for a channel that is lost without leaving.

    Parameters
    ----------
    topic
        Topic of the message.
    data
        Payload, at most 65 535 bytes.
    """

    topic: str
    data: bytes


class Channel(Protocol):
    """Connection of one peer to the broker.

    Iteration yields the messages of all subscriptions as they arrive and raises
    :class:`~p2pfl.core.errors.TransportError` once the connection is lost and all earlier messages are
    read. Arrived messages wait in memory without bound; the protocol above has to bound what is outstanding.
    """

    @property
    def limit(self) -> int:
        """Largest payload in bytes that :meth:`publish` accepts."""
        ...

    @property
    def away(self) -> float:
        """Total seconds without a connection so far, in which nothing was received."""
        ...

    @property
    def lost(self) -> bool:
        """True while there is no connection."""
        ...

    @property
    def grace(self) -> float:
        """Seconds within which another channel may return after its will was published."""
        ...

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish ``data``; return when the broker has acknowledged it, or at QoS 0 when it is written.

        An empty payload with ``retain`` clears the topic. ``data`` must not change before this returns.

        Raises
        ------
        RefusedError
            The broker refused the message.
        TransportError
            The payload is over :attr:`limit`, or no acknowledgement arrived; the message may have been delivered
            nevertheless.
        """
        ...

    async def subscribe(self, *filters: str) -> None:
        """Subscribe to all topics that match; ``+`` matches one level and a final ``#`` the rest.

        Raises
        ------
        RefusedError
            The broker refused.
        TransportError
            The connection is lost.
        """
        ...

    def abort(self) -> None:
        """Lose the connection without a goodbye, as in a crash; the broker publishes the will."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Message: ...


class Transport(Protocol):
    """Interface that reaches a broker."""

    def join(self, client: str, *, will: Will | None = None) -> AbstractAsyncContextManager[Channel]:
        """Open a channel under the name ``client``; leaving the context says goodbye, which discards the will.

        Raises
        ------
        AccessError
            The broker denies access, or is not the trusted one.
        BrokerError
            The broker cannot be reached.
        """
        ...


def matches(filter: str, topic: str) -> bool:
    """Return whether an MQTT topic filter covers a topic.

    By the standard, a leading wildcard does not cover the broker's own ``$`` topics.

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
    """Raise :class:`~p2pfl.core.errors.TransportError` for a message that no broker accepts.

    Examples
    --------
    >>> check_publish("swarm/ada", b"hello", limit=4)
    Traceback (most recent call last):
    p2pfl.core.errors.TransportError: the payload of 5 bytes on swarm/ada is over the limit of 4; send it in chunks
    """
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise TransportError(f"the topic {topic!r} contains wildcards; publish to one topic")
    size = memoryview(data).nbytes
    if size > limit:
        raise TransportError(f"the payload of {size} bytes on {topic} is over the limit of {limit}; send it in chunks")


def check_filters(filters: tuple[str, ...]) -> None:
    """Raise :class:`~p2pfl.core.errors.TransportError` for a filter that MQTT does not allow.

    Examples
    --------
    >>> check_filters(("swarm/#/state",))
    Traceback (most recent call last):
    p2pfl.core.errors.TransportError: 'swarm/#/state' is not a topic filter; use one such as swarm/+/state or swarm/#
    """
    for filter in filters:
        levels = filter.split("/")
        whole = all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
        if not filter or not whole or "#" in levels[:-1]:
            raise TransportError(f"{filter!r} is not a topic filter; use one such as swarm/+/state or swarm/#")
