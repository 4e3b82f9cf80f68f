"""Channel that outlives its connections: it reconnects, if necessary to the next broker of a list."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, Self

from p2pfl.core.errors import AccessError, BrokerError, BusyError, RefusedError, TransportError
from p2pfl.network.transport.backoff import Backoff, Outages, RetrySchedule
from p2pfl.network.transport.channel import Channel, Message, Payload, Transport, Will, check_filters, check_publish

RETURN_INTERVAL = 10.0
"""Seconds between two attempts to return to an earlier broker of the list."""

MAX_CONNECTIONS = 4
"""Largest number of connections that one publish may cost."""

SMALL_PUBLISH = 4096
"""Number of bytes that every broker accepts; a smaller publish does not end a connection."""


class Wait(NamedTuple):
    """Wait for a broker.

    Attributes
    ----------
    error
        What keeps the channel from going on.
    seconds
        Longest time that the channel retries; infinite without a limit.
    """

    error: BrokerError | TransportError
    seconds: float


class LastingTransport:
    """Transport whose channels reconnect when their connection is lost.

    A channel then subscribes again, publishes its retained messages again, sets its will again, and its publishes wait
    meanwhile. Messages on their way are lost or arrive twice; the protocol above has to handle that. A
    broker that denies access is not tried again.

    Parameters
    ----------
    transports
        Transports of the brokers. The first that accepts is used; once an earlier one is back, that one is, so that
        peers that lost theirs at different moments meet again.
    backoff
        Pauses and timeout of attempts to connect, and to subscribe where the broker refuses temporarily.
    notice
        Function called with a :class:`Wait` when the first connection or a subscription has to wait.

    Examples
    --------
    >>> from p2pfl.network.transport import MemoryTransport
    >>> async def hello():
    ...     broker = MemoryTransport()
    ...     async with LastingTransport([broker]).join("ada") as ada:
    ...         await ada.subscribe("news")
    ...         broker.restart()
    ...         await ada.publish("news", b"hello")
    ...         return await anext(ada)
    >>> asyncio.run(hello())
    Message(topic='news', data=b'hello', retained=False)
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        *,
        backoff: Backoff | None = None,
        notice: Callable[[Wait], None] | None = None,
    ) -> None:
        self.transports = tuple(transports)
        self.backoff = backoff or Backoff()
        self.notice = notice or (lambda _wait: None)

    def __repr__(self) -> str:
        """Return the transports, without user and password."""
        return f"LastingTransport({list(self.transports)!r})"

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator["LastingChannel"]:
        """Open a channel; wait for a broker up to the timeout of ``backoff``.

        Raises
        ------
        AccessError
            A broker denies access, or is not the trusted one.
        BrokerError
            No broker can be reached, and ``backoff`` permits no second attempt.
        TransportError
            No broker could be reached in time.
        """
        channel = LastingChannel(self, client, will)
        await channel.open()
        try:
            yield channel
        finally:
            await channel.leave()


class _Connection(NamedTuple):
    """Connection of a channel; ``place`` is that of its broker in the list."""

    channel: Channel
    stack: AsyncExitStack
    place: int


class LastingChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`LastingTransport`."""

    def __init__(self, lasting: LastingTransport, client: str, will: Will | None) -> None:
        self._lasting, self._client, self._will = lasting, client, will
        self._clock = asyncio.get_running_loop().time
        self._outages = Outages(lasting.backoff, client, now=self._clock())
        self._connection: _Connection | None = None  # None while lost
        self._held: _Connection | None = None  # the last connection, to close
        self._reading: Channel | None = None
        self._filters: dict[str, None] = {}
        self._kept: dict[str, bytes] = {}  # by topic
        self._over: Exception | None = None
        self._why: Exception | None = None  # reason for the lack of a connection
        self._news = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.limit = 0

    @property
    def away(self) -> float:
        """Total seconds without a connection so far."""
        return self._outages.away(self._clock())

    @property
    def lost(self) -> bool:
        """True while there is no connection."""
        return self._connection is None

    @property
    def grace(self) -> float:
        """Seconds within which other lost channels may return."""
        return self._outages.grace(self._clock())

    @property
    def outages(self) -> int:
        """Number of times that the connection was lost."""
        return self._outages.count

    # ------------------------------------------------------------------ channel

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish; see :class:`~p2pfl.network.transport.channel.Channel`. It waits while there is no connection.

        Raises
        ------
        TransportError
            One connection after the other ends during the publish, as they do for a packet that is too large.
        """
        check_publish(topic, data, limit=self.limit)
        if retain:  # the broker may lose it
            self._kept.pop(topic, None)
            self._kept |= {topic: bytes(data)} if data else {}
        size = memoryview(data).nbytes
        for attempt in itertools.count(1):
            channel = await self._await_connection()
            check_publish(topic, data, limit=channel.limit)
            began = self._clock()
            try:
                return await channel.publish(topic, data, retain=retain)
            except RefusedError:
                raise
            except TransportError as error:
                self._lose(channel, error, since=began)
                if attempt >= MAX_CONNECTIONS and size > SMALL_PUBLISH:
                    raise TransportError(
                        f"{attempt} connections ended while publishing {size} bytes on {topic} (the last with: "
                        f"{error}); lower transport.chunk (126976 fits a broker that accepts 128 KB), or raise "
                        "the limit of the broker (max_packet_size of mosquitto)"
                    ) from None
        raise AssertionError

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        self._filters |= dict.fromkeys(filters)
        attempts: RetrySchedule | None = None
        while True:
            channel = await self._await_connection()
            try:
                return await channel.subscribe(*filters)
            except BusyError as error:
                attempts = await self._wait(error, attempts)
            except RefusedError:
                raise
            except TransportError as error:
                self._lose(channel, error)

    def abort(self) -> None:
        """Lose the connection as in a crash, without reconnecting."""
        connection = self._connection
        self._end(TransportError("the channel is closed because it was aborted; join again"))
        if connection is not None:
            connection.channel.abort()

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        while True:
            channel = self._reading or await self._await_connection()
            self._reading = channel  # to its end, even if it is lost by now
            try:
                return await anext(channel)
            except TransportError as error:
                self._reading = None
                self._lose(channel, error)

    # ------------------------------------------------------------------ connections

    async def open(self) -> None:
        """Connect for the first time."""
        connection, attempts = None, None
        while connection is None:
            try:
                connection = await self._reach(self._lasting.transports)
            except (AccessError, RefusedError):
                raise
            except (BrokerError, TransportError) as error:
                attempts = await self._wait(error, attempts)
        self._take(connection)
        self._keeper = asyncio.create_task(self._keep(), name=f"connections of {self._client}")

    async def _wait(self, error: BrokerError | TransportError, attempts: RetrySchedule | None) -> RetrySchedule:
        """Wait until the next attempt at a failed operation; ``attempts`` are those so far, if any.

        Raises
        ------
        BrokerError, TransportError
            The timeout is over; the original error if there is no timeout.
        """
        backoff = self._lasting.backoff
        outage = backoff.outage
        if attempts is None and outage:
            self._lasting.notice(Wait(error, outage))
        attempts = attempts or RetrySchedule(backoff, self._client, now=self._clock())
        pause = attempts.pause(self._clock())
        if pause is None and not attempts.failures:
            raise error
        if pause is None:
            raise TransportError(f"{error}; this peer gave up after {outage:g} s (transport.outage)")
        await asyncio.sleep(pause)
        return attempts

    async def leave(self) -> None:
        """Say goodbye if there is a connection."""
        self._end(TransportError("the channel is closed because it was left; join again"))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if self._held is not None:
            await self._held.stack.aclose()

    async def _keep(self) -> None:
        """Keep a connection, to the first broker of the list if possible, until the timeout."""
        try:
            while self._over is None:
                connection, news = self._connection, self._news
                if connection is None:
                    await self._again()
                elif connection.place:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RETURN_INTERVAL):
                            await news.wait()
                            continue
                    await self._home(connection)
                else:
                    await news.wait()
        except Exception as error:  # noqa: BLE001 - no one awaits this task, so users of the channel get the error
            self._end(error)

    async def _again(self) -> None:
        """Make one attempt to connect, after a pause."""
        if self._held is not None:
            lost, self._held = self._held, None
            await lost.stack.aclose()
        if self._outages.hopeless(self._clock()):
            raise TransportError(
                f"there was no steady connection for {self._lasting.backoff.outage:g} s ({self._why}); check "
                "the broker, or raise transport.outage"
            )
        await asyncio.sleep(self._outages.pause)
        try:
            self._take(await self._reach(self._lasting.transports))
        except (AccessError, RefusedError):
            raise
        except (BrokerError, TransportError) as error:
            self._outages.note_failure()
            self._why = error

    async def _home(self, present: _Connection) -> None:
        """Move to an earlier broker of the list, if one accepts."""
        try:
            earlier = await self._reach(self._lasting.transports[: present.place])
        except (BrokerError, TransportError):
            return
        if self._over is not None:
            await earlier.stack.aclose()
            return
        self._take(earlier)
        await present.stack.aclose()

    async def _reach(self, transports: Sequence[Transport]) -> _Connection:
        """Connect to the first broker that accepts, and restore the state of the channel on it."""
        failures = []
        for index, transport in enumerate(transports):
            stack = AsyncExitStack()
            try:
                channel = await stack.enter_async_context(transport.join(self._client, will=self._will))
                if self._filters:
                    await channel.subscribe(*self._filters)
                for topic, data in tuple(self._kept.items()):
                    await channel.publish(topic, data, retain=True)
            except (AccessError, RefusedError):
                await stack.aclose()
                raise
            except (BrokerError, TransportError) as error:
                await stack.aclose()
                failures.append(str(error))
            except BaseException:
                await stack.aclose()
                raise
            else:
                return _Connection(channel, stack, index)
        raise BrokerError("; ".join(failures))

    def _take(self, connection: _Connection) -> None:
        """Use a connection."""
        limit = connection.channel.limit
        self.limit = min(self.limit, limit) if self.limit else limit
        self._connection = self._held = connection
        self._reading = self._reading or connection.channel
        self._outages.note_connection(self._clock())
        self._tell()

    def _lose(self, channel: Channel, why: Exception, *, since: float | None = None) -> None:
        """Record the failure of a connection once."""
        if self._connection is not None and channel is self._connection.channel:
            self._connection, self._why = None, why
            self._outages.lost(self._clock(), since=since)
            channel.abort()
            self._tell()

    def _end(self, error: Exception) -> None:
        """End the channel; all later calls raise this error."""
        if self._over is None:
            self._over = error
            self._connection = None
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _await_connection(self) -> Channel:
        """Return the present connection; wait while there is none."""
        while self._connection is None:
            if self._over is not None:
                raise self._over
            await self._news.wait()
        return self._connection.channel
