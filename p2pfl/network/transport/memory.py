"""In-memory broker for tests and for simulations in one process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, Self, TypeVar

from p2pfl.core.errors import BrokerError, TransportError
from p2pfl.network.transport.channel import LIMIT, Message, Payload, Will, check_filters, check_publish, matches


class MemoryTransport:
    """Transport that connects all channels of one process.

    Delivery is immediate and in the order of publication, the same in every run.
    A transport belongs to one event loop.

    Parameters
    ----------
    limit
        Largest payload in bytes.
    lose
        Function ``lose(receiver, message)`` called for each delivery; if it returns true, the message
        is dropped silently, as brokers do when a queue overflows.

    Examples
    --------
    >>> async def hello():
    ...     transport = MemoryTransport()
    ...     async with transport.join("ada") as ada, transport.join("bob") as bob:
    ...         await bob.subscribe("+/news")
    ...         await ada.publish("ada/news", b"hello")
    ...         return await anext(bob)
    >>> asyncio.run(hello())
    Message(topic='ada/news', data=b'hello', retained=False)
    """

    def __init__(self, *, limit: int = LIMIT, lose: Callable[[str, Message], bool] | None = None) -> None:
        self._lose = lose or (lambda _listener, _message: False)
        self._broker = MemoryBroker(self._deliver)
        self._limit = limit
        self._down = False

    def stop(self, *, wills: bool = False, persistent: bool = False) -> None:
        """End the broker; all channels are lost, and no one can join.

        Parameters
        ----------
        wills
            True if their wills are published before, as in an orderly shutdown of mosquitto.
        persistent
            True if retained messages survive until :meth:`start`.
        """
        self._down = True
        channels = tuple(self._broker.channels.values())
        if wills:
            for channel in channels:
                channel.last_words()
        for channel in channels:
            channel.end("the broker was stopped")
        if not persistent:
            self._broker.retained.clear()

    def start(self) -> None:
        """Let channels join again."""
        self._down = False

    def restart(self, *, wills: bool = False, persistent: bool = False) -> None:
        """Stop and start."""
        self.stop(wills=wills, persistent=persistent)
        self.start()

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator["MemoryChannel"]:
        """Open a channel under the name ``client``; an older one of that name is lost."""
        if self._down:
            raise BrokerError("the memory broker is stopped; start it")
        older = self._broker.channels.get(client)
        if older is not None:
            older.lose("another channel joined with its name")
        channel = MemoryChannel(self._broker, client, will, limit=self._limit)
        self._broker.channels[client] = channel
        try:
            await asyncio.sleep(0)  # as with a real broker, others run meanwhile
            yield channel
        finally:
            channel.leave()

    def _deliver(self, channel: "MemoryChannel", message: Message) -> None:
        if not self._lose(channel.client, message):
            channel.arrived.put_nowait(message)


class MemoryChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`MemoryTransport`."""

    away = 0.0
    lost = False
    grace = 0.0

    def __init__(self, broker: "MemoryBroker[Any]", client: str, will: Will | None, *, limit: int) -> None:
        self.client, self.limit, self.will = client, limit, will
        self.arrived: asyncio.Queue[Message | None] = asyncio.Queue()  # None marks the end
        self.ended = ""  # the reason, once it has ended
        self._broker = broker

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_publish(topic, data, limit=self.limit)
        self.check()
        self._broker.publish(topic, bytes(data), retain=retain)
        await asyncio.sleep(0)  # as with a real broker, others run meanwhile

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        self.check()
        for pattern in filters:
            self._broker.subscribe(self, pattern)
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Lose the connection as in a crash."""
        self.lose("it was aborted")

    def lose(self, cause: str) -> None:
        """End without a goodbye: the will is published."""
        if not self.ended:
            self.end(cause)
            self.last_words()

    def last_words(self) -> None:
        """Publish the will."""
        if self.will is not None:
            self._broker.publish(self.will.topic, self.will.data, retain=True)

    def leave(self) -> None:
        """End with a goodbye: the will is discarded."""
        if not self.ended:
            self.end("it was left")

    def end(self, cause: str) -> None:
        """End without a will, as with the broker."""
        self.ended = cause
        self._broker.remove(self)
        self.arrived.put_nowait(None)

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        message = await self.arrived.get()
        if message is None:
            self.arrived.put_nowait(None)  # for the next caller
            raise self.end_error()
        return message

    def check(self) -> None:
        """Raise an error if the channel has ended."""
        if self.ended:
            raise self.end_error()

    def end_error(self) -> TransportError:
        """Return the error of a channel that has ended."""
        return TransportError(f"channel {self.client} is closed because {self.ended}; join again")


L = TypeVar("L", bound=MemoryChannel)


class MemoryBroker(Generic[L]):
    """Subscriptions and retained messages of a broker.

    Parameters
    ----------
    deliver
        Function that delivers a message to one receiver.
    """

    def __init__(self, deliver: Callable[[L, Message], None]) -> None:
        self.channels: dict[str, L] = {}
        self.retained: dict[str, bytes] = {}
        self._deliver = deliver
        # Plain topics are looked up, wildcards are tried one by one; the inner dictionaries serve as ordered sets.
        self._plain: dict[str, dict[L, None]] = {}
        self._wild: dict[str, dict[L, None]] = {}
        self._literal: dict[str, str] = {}  # levels of a pattern before its first wildcard

    def publish(self, topic: str, data: bytes, *, retain: bool) -> None:
        """Deliver a message to all subscribers."""
        if retain and data:
            self.retained[topic] = data
        elif retain:
            self.retained.pop(topic, None)
        listeners = dict(self._plain.get(topic, {}))
        for pattern, channels in self._wild.items():
            if topic.startswith(self._literal[pattern]) and matches(pattern, topic):
                listeners |= channels  # each receives it once, however many of its filters match
        for channel in listeners:
            self._deliver(channel, Message(topic, data, retained=False))

    def subscribe(self, channel: L, pattern: str) -> None:
        """Record a subscription, and deliver the retained messages that it matches."""
        table = self._wild if "+" in pattern or "#" in pattern else self._plain
        if table is self._wild:
            self._literal[pattern] = pattern.partition("+")[0].partition("#")[0].rstrip("/")
        table.setdefault(pattern, {})[channel] = None
        for topic, data in self.retained.items():
            if matches(pattern, topic):
                self._deliver(channel, Message(topic, data, retained=True))

    def remove(self, channel: L) -> None:
        """Remove a channel."""
        for table in (self._plain, self._wild):
            for pattern in [*table]:
                table[pattern].pop(channel, None)
                if not table[pattern]:
                    del table[pattern]
        if self.channels.get(channel.client) is channel:
            del self.channels[channel.client]
