"""Transport below a prefix of topics, where a broker permits a client no others."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from p2pfl.core.errors import BrokerError
from p2pfl.network.transport.channel import Channel, Message, Payload, Transport, Will, check_filters, check_publish


def below(transport: Transport, prefix: str) -> Transport:
    """Return a transport whose topics all begin with a prefix, once; the transport itself without a prefix.

    Raises
    ------
    BrokerError
        The transport is below another prefix.

    Examples
    --------
    >>> from p2pfl.network.transport import MemoryTransport
    >>> placed = below(MemoryTransport(), "plant7/")
    >>> below(placed, "plant7/") is placed
    True
    """
    if not prefix:
        return transport
    if not isinstance(transport, PrefixedTransport):
        return PrefixedTransport(transport, prefix)
    if transport.prefix != prefix:
        raise BrokerError(
            f'this transport is below "{transport.prefix}" and transport.prefix is "{prefix}"; give the transport '
            "without a prefix"
        )
    return transport


class PrefixedTransport:
    """Transport whose topics all begin with a prefix, which nobody above it sees.

    Parameters
    ----------
    transport
        Transport to the broker.
    prefix
        Prefix, such as ``plant7/``.

    Examples
    --------
    >>> import asyncio
    >>> from p2pfl.network.transport import MemoryTransport
    >>> async def hello():
    ...     broker = MemoryTransport()
    ...     async with PrefixedTransport(broker, "plant7/").join("ada") as ada, broker.join("bob") as bob:
    ...         await ada.subscribe("news")
    ...         await bob.publish("plant7/news", b"hello")
    ...         return await anext(ada)
    >>> asyncio.run(hello())
    Message(topic='news', data=b'hello', retained=False)
    """

    def __init__(self, transport: Transport, prefix: str) -> None:
        self.transport, self.prefix = transport, prefix

    def __repr__(self) -> str:
        """Return the transport, without user and password."""
        return f"PrefixedTransport({self.transport!r}, {self.prefix!r})"

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator["PrefixedChannel"]:
        """Open a channel; see :class:`~p2pfl.network.transport.channel.Transport`."""
        placed = None if will is None else Will(f"{self.prefix}{will.topic}", will.data)
        async with self.transport.join(client, will=placed) as channel:
            yield PrefixedChannel(channel, self.prefix)


class PrefixedChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`PrefixedTransport`."""

    def __init__(self, channel: Channel, prefix: str) -> None:
        self._channel, self._prefix = channel, prefix

    @property
    def limit(self) -> int:
        """Largest payload in bytes."""
        return self._channel.limit

    @property
    def away(self) -> float:
        """Total seconds without a connection so far."""
        return self._channel.away

    @property
    def lost(self) -> bool:
        """True while there is no connection."""
        return self._channel.lost

    @property
    def grace(self) -> float:
        """Seconds within which another channel may return after its will was published."""
        return self._channel.grace

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_publish(topic, data, limit=self.limit)
        await self._channel.publish(f"{self._prefix}{topic}", data, retain=retain)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        await self._channel.subscribe(*(f"{self._prefix}{each}" for each in filters))

    def abort(self) -> None:
        """Lose the connection as in a crash."""
        self._channel.abort()

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        message = await anext(self._channel)
        return Message(message.topic.removeprefix(self._prefix), message.data, message.retained)
