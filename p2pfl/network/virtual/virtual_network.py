"""Simulated broker and connections: slow, narrow, unreliable, and the same in every run.

A connection behaves like TCP: in each direction everything arrives once and in order, after its size over the
bandwidth, the latency and a jitter. The broker behaves like MQTT at QoS 1: it acknowledges, and may then drop what it
cannot queue for a receiver.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Annotated, Any

from msgspec import Meta

from p2pfl.core.draws import draw
from p2pfl.experiment.schema import NotNegative, Section
from p2pfl.network.transport.channel import LIMIT, Message, Payload, Will, check_filters, check_publish
from p2pfl.network.transport.memory import MemoryBroker, MemoryChannel
from p2pfl.network.virtual.clock import WHO, VirtualLoop

NOBODY = Context()
"""Context of the callbacks of the network itself."""

Positive = Annotated[float, Meta(gt=0)]

FRAME = 64
"""Number of bytes of headers around a message, and of an acknowledgement: TCP, IP and MQTT without the topic."""


class Conditions(Section, frozen=True):
    """Conditions of one peer's connection to the broker, and a section of a network file.

    Attributes
    ----------
    latency, jitter
        Minimum of the one-way delay in seconds, and mean of the random delay on top (exponential).
    up, down
        Bandwidths in bytes per second.
    loss
        Probability that the broker acknowledges a message and drops it for this receiver.
    """

    latency: NotNegative = 0.0
    jitter: NotNegative = 0.0
    up: Positive = math.inf
    down: Positive = math.inf
    loss: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class Pipe:
    """One direction of a connection, which maps times of sending to times of arrival.

    Parameters
    ----------
    conditions
        Conditions of the connection.
    bandwidth
        Bytes per second in this direction.
    seed, name
        Seed and name of the draws.

    Examples
    --------
    >>> pipe = Pipe(Conditions(latency=0.1), bandwidth=1000.0, seed=0, name="ada up")
    >>> pipe.arrival(0.0, size=500), pipe.arrival(0.0, size=500)
    (0.6, 1.1)
    """

    def __init__(self, conditions: Conditions, *, bandwidth: float, seed: int, name: str) -> None:
        self.conditions = conditions
        self.bandwidth = bandwidth
        self.random = draw(seed, "network", name)
        self.last = 0.0
        self._free = 0.0

    def delay(self, now: float, *, size: int) -> float:
        """Return when a message would arrive if none had to stay in front of it."""
        self._free = max(now, self._free) + size / self.bandwidth
        jitter = self.conditions.jitter
        came = self._free + self.conditions.latency
        return came + jitter * float(self.random.exponential()) if jitter else came

    def arrival(self, now: float, *, size: int) -> float:
        """Return the time of arrival of a message."""
        self.last = max(self.delay(now, size=size), self.last)
        return self.last

    def chance(self, probability: float) -> bool:
        """Draw whether an event of some probability happens now."""
        return probability > 0 and float(self.random.random()) < probability


class WorldTransport:
    """Transport over simulated connections for all peers that join it.

    Parameters
    ----------
    loop
        Event loop in virtual time.
    conditions
        Conditions of the connection of each peer; peers without any are connected ideally.
    seed
        Seed of all draws.
    limit
        Largest payload in bytes.
    """

    def __init__(
        self, loop: VirtualLoop, conditions: Mapping[str, Conditions], *, seed: int = 0, limit: int = LIMIT
    ) -> None:
        self.loop = loop
        self.conditions = conditions
        self.seed = seed
        self.limit = limit
        self.broker: MemoryBroker[Any] = MemoryBroker(self.deliver)
        self._joins: Counter[str] = Counter()

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[WorldChannel]:
        """Open a channel; an older channel of that name ends."""
        who = WHO.get()
        await asyncio.sleep(4 * self.of(who).latency)  # one round trip each for TCP and for CONNECT
        channel = self.connect(client, who, will)
        try:
            yield channel
        finally:
            channel.leave()

    def of(self, who: str) -> Conditions:
        """Return the conditions of a peer's connection."""
        return self.conditions.get(who, Conditions())

    def connect(self, client: str, who: str, will: Will | None) -> WorldChannel:
        """Return an open channel of a peer, in place of an older one of its name."""
        older = self.broker.channels.get(client)
        if older is not None:
            older.lose("another channel joined with its name")
        self._joins[who] += 1
        channel = self.broker.channels[client] = self.channel(client, who, will, life=self._joins[who])
        return channel

    def channel(self, client: str, who: str, will: Will | None, *, life: int) -> WorldChannel:
        """Return the channel of a peer that joins for the ``life``-th time."""
        return WorldChannel(self, client, who, will, life=life)

    def pipe(self, who: str, life: int, way: str, *, bandwidth: float) -> Pipe:
        """Return one direction of a connection."""
        return Pipe(self.of(who), bandwidth=bandwidth, seed=self.seed, name=f"{who} {life} {way}")

    def accept(self, who: str, topic: str, data: bytes, *, retain: bool) -> None:
        """Accept a message of a peer at the broker."""
        del who
        self.broker.publish(topic, data, retain=retain)

    def deliver(self, channel: WorldChannel, message: Message) -> None:
        """Send a message from the broker to a receiver, or drop it."""
        if not channel.down.chance(channel.conditions.loss):
            size = len(message.data) + len(message.topic) + FRAME
            self.loop.call_at(channel.down.arrival(self.loop.now, size=size), channel.receive, message, context=NOBODY)


class WorldChannel(MemoryChannel):
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`WorldTransport`.

    Attributes
    ----------
    who, conditions
        Name of the peer, and the conditions of its connection.
    up, down
        Both directions of the connection.
    """

    def __init__(self, transport: WorldTransport, client: str, who: str, will: Will | None, *, life: int) -> None:
        super().__init__(transport.broker, client, will, limit=transport.limit)
        self.transport, self.who, self.loop = transport, who, transport.loop
        self.conditions = transport.of(who)
        self.up = transport.pipe(who, life, "up", bandwidth=self.conditions.up)
        self.down = transport.pipe(who, life, "down", bandwidth=self.conditions.down)
        self._pending: dict[asyncio.Future[None], None] = {}

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish, and return when the acknowledgement arrives."""
        check_publish(topic, data, limit=self.limit)
        self.check()
        payload = bytes(data)

        def hand_over() -> None:
            self.transport.accept(self.who, topic, payload, retain=retain)

        await self._ask(hand_over, size=len(payload) + len(topic) + FRAME)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        self.check()

        def add_filters() -> None:
            for pattern in filters:
                self.transport.broker.subscribe(self, pattern)

        await self._ask(add_filters, size=FRAME)

    async def _ask(self, act: Callable[[], None], *, size: int) -> None:
        """Let the broker act on a packet when it arrives, and return when the acknowledgement arrives."""
        answered: asyncio.Future[None] = self.loop.create_future()
        self._pending[answered] = None

        def acknowledge() -> None:
            if self._pending.pop(answered, 0) is None and not answered.done():
                answered.set_result(None)

        def arrive() -> None:
            if not self.ended:
                act()
                self.call_at(self.down.arrival(self.loop.now, size=FRAME), acknowledge)

        self.call_at(self.up.arrival(self.loop.now, size=size), arrive)
        await answered

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Schedule what the network does at a time."""
        self.loop.call_at(when, callback, context=NOBODY)

    def receive(self, message: Message) -> None:
        """Receive a message over the connection."""
        if not self.ended:
            self.arrived.put_nowait(message)

    def abort(self) -> None:
        """Lose the connection as in a crash: the system informs the broker."""
        self.vanish("it was aborted", after=self.conditions.latency)

    def vanish(self, cause: str, *, after: float) -> None:
        """Lose the connection, of which the broker learns after some seconds."""
        if not self.ended:
            self.end(cause)
            self.call_at(self.loop.now + after, self.last_words)

    def last_words(self) -> None:
        """Publish the will, if there is one."""
        if self.will is not None:
            self.transport.accept(self.who, self.will.topic, self.will.data, retain=True)

    def end(self, cause: str) -> None:
        """End the channel; waits for acknowledgements fail."""
        super().end(cause)
        waiting, self._pending = self._pending, {}
        for future in waiting:
            if not future.done():
                future.set_exception(self.end_error())
