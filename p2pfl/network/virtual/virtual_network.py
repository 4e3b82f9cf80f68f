"""Simulated broker and connections: slow, narrow, unreliable, and the same in every run.

A connection behaves like TCP: in each direction everything arrives once and in order, after its size over the
bandwidth, the latency and a jitter; it waits while the peer is cut off. A cut longer than the keepalive ends the
connection at both ends, and the broker publishes the will. The broker behaves like MQTT at QoS 1: it acknowledges, and
may then drop what it cannot queue for a receiver, deliver twice, or let messages of different topics overtake each
other. Messages of one publisher on one topic stay in order, except for second deliveries.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Self

from p2pfl.core.errors import BrokerError, TransportError
from p2pfl.core.rows import draw
from p2pfl.network.transport.channel import KEEPALIVE, LIMIT, Message, Payload, Will, check_filters, check_publish
from p2pfl.network.transport.memory import MemoryBroker
from p2pfl.network.virtual.clock import WHO, VirtualLoop

NOBODY = Context()
"""Context of the callbacks of the network itself."""

FRAME = 64
"""Number of bytes of headers around a message, and of an acknowledgement: TCP, IP and MQTT without the topic."""

Log = Callable[[str, str, str, str], None]
"""Function ``log(kind, who, topic, detail)`` that takes every event."""


@dataclass(frozen=True)
class Conditions:
    """Conditions of one peer's connection to the broker.

    Attributes
    ----------
    latency, jitter
        Minimum of the one-way delay in seconds, and mean of the random delay on top (exponential).
    up, down
        Bandwidths in bytes per second.
    loss
        Probability that the broker acknowledges a message and drops it for this receiver.
    twice
        Probability that a delivery is repeated.
    overtaken
        Probability that a delivery is delayed by up to ``held`` seconds while those of other topics pass.
    cuts
        Pairs of times between which nothing passes.
    """

    latency: float = 0.0
    jitter: float = 0.0
    up: float = math.inf
    down: float = math.inf
    loss: float = 0.0
    twice: float = 0.0
    overtaken: float = 0.0
    held: float = 0.5
    cuts: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Restart:
    """Restart of the broker: every connection ends, and none is accepted for a while.

    Attributes
    ----------
    at, down
        Time of the restart, and its duration in seconds.
    kept
        True if the broker keeps retained messages.
    wills
        True if it publishes all wills before it ends, as in an orderly shutdown.
    """

    at: float
    down: float
    kept: bool = True
    wills: bool = False


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
    opened
        Time when the connection opened; earlier cuts do not matter.

    Examples
    --------
    >>> pipe = Pipe(Conditions(latency=0.1, cuts=((5.0, 9.0),)), bandwidth=1000.0, seed=0, name="ada up")
    >>> pipe.arrival(0.0, size=500), pipe.arrival(0.0, size=500), pipe.arrival(6.0, size=100)
    (0.6, 1.1, 9.1)
    """

    def __init__(self, conditions: Conditions, *, bandwidth: float, seed: int, name: str, opened: float = 0.0) -> None:
        self.conditions = conditions
        self.bandwidth = bandwidth
        self.opened = opened
        self._random = draw(seed, "network", name)
        self._free = 0.0
        self._last = 0.0

    def arrival(self, now: float, *, size: int, overtaking: bool = False) -> float:
        """Return the time of arrival, infinite if the connection ends before; an overtaken message delays no other."""
        c = self.conditions
        self._free = max(now, self._free) + size / self.bandwidth
        came = self._free + c.latency
        if c.jitter:
            came += c.jitter * float(self._random.exponential())
        for start, end in c.cuts:
            if came >= start and now < end and end > self.opened:
                came = max(came, end + c.latency) if end - start < 1.5 * KEEPALIVE else math.inf
        came = max(came, self._last)
        if overtaking:
            return came + float(self._random.uniform(0.0, c.held))
        self._last = came
        return came

    def chance(self, probability: float) -> bool:
        """Draw whether an event of some probability happens now."""
        return probability > 0 and float(self._random.random()) < probability


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
    restarts
        Restarts of the broker.
    limit
        Largest payload in bytes.
    log
        Function that takes every event.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        conditions: Mapping[str, Conditions],
        *,
        seed: int = 0,
        restarts: tuple[Restart, ...] = (),
        limit: int = LIMIT,
        log: Log | None = None,
    ) -> None:
        self.loop = loop
        self.conditions = conditions
        self.seed = seed
        self.limit = limit
        self.log = log or (lambda _kind, _who, _topic, _detail: None)
        self.counts: Counter[str] = Counter()
        self.said: dict[str, set[bytes]] | None = None
        """By peer, everything that it has published, if recorded: other messages are forged."""
        self.received: Callable[[str, str, bytes], None] = lambda _who, _topic, _data: None
        """Function called with each accepted message."""
        self.broker: MemoryBroker[WorldChannel] = MemoryBroker(self._deliver)
        self._joins: Counter[str] = Counter()
        self._down = -1.0  # time at which the broker is up again
        for restart in restarts:
            loop.call_at(restart.at, self._restart, restart, context=NOBODY)

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[WorldChannel]:
        """Open a channel; an older channel of that name ends."""
        who = WHO.get()
        conditions = self.conditions.get(who, Conditions())
        await asyncio.sleep(4 * conditions.latency)  # one round trip each for TCP and for CONNECT
        if self.loop.now < self._down or any(start <= self.loop.now < end for start, end in conditions.cuts):
            raise BrokerError("the broker is down; try again")
        older = self.broker.channels.get(client)
        if older is not None:
            older.lose("another channel joined with its name")
        self._joins[who] += 1
        channel = WorldChannel(self, client, who, will, life=self._joins[who])
        self.broker.channels[client] = channel
        self.log("join", who, client, "")
        try:
            yield channel
        finally:
            channel.leave()

    def note(self, who: str, data: bytes) -> None:
        """Record what a peer publishes, if enabled; the record grows with the run."""
        if self.said is not None:
            self.said.setdefault(who, set()).add(data)

    def accept(self, who: str, topic: str, data: bytes, *, retain: bool) -> None:
        """Accept a message at the broker."""
        self.log("accept", who, topic, f"{len(data)} {zlib.crc32(data):08x}")
        self.received(who, topic, data)
        self.broker.publish(topic, data, retain=retain)

    def _deliver(self, channel: WorldChannel, message: Message) -> None:
        c, pipe = channel.conditions, channel.down
        self.counts["deliveries"] += 1
        if pipe.chance(c.loss):
            self.counts["lost"] += 1
            self.log("drop", channel.who, message.topic, "")
            return
        times = 1
        if pipe.chance(c.twice):
            self.counts["twice"] += 1
            times = 2
        for repeated in range(times):
            overtaking = bool(repeated) or pipe.chance(c.overtaken)
            came = pipe.arrival(
                self.loop.now, size=len(message.data) + len(message.topic) + FRAME, overtaking=overtaking
            )
            if not repeated:  # messages of one topic stay in order
                came = channel.ordered[message.topic] = max(came, channel.ordered.get(message.topic, 0.0))
            if overtaking and not repeated:
                self.counts["overtaken"] += 1
            if came < math.inf:
                self.loop.call_at(came, channel.receive, message, context=NOBODY)

    def _restart(self, restart: Restart) -> None:
        self.counts["broker restarts"] += 1
        self.log("restart", "", "", f"down for {restart.down:g} s")
        self._down = self.loop.now + restart.down
        channels = [*self.broker.channels.values()]
        for channel in channels if restart.wills else ():
            channel.last_will()
        for channel in channels:
            channel.end("the broker stopped")  # other wills are lost with it
        if not restart.kept:
            self.broker.retained.clear()


@dataclass(eq=False)
class WorldChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`WorldTransport`."""

    transport: WorldTransport
    client: str
    who: str
    will: Will | None
    life: int
    away = 0.0
    lost = False
    grace = 0.0
    ordered: dict[str, float] = field(default_factory=dict)
    """Time of arrival of the last message by topic."""

    def __post_init__(self) -> None:
        """Open both directions, and end them if a cut is too long."""
        transport, loop = self.transport, self.transport.loop
        self.conditions = transport.conditions.get(self.who, Conditions())
        self.limit = transport.limit
        self._arrived: asyncio.Queue[Message | None] = asyncio.Queue()
        self._ended = ""
        self._pending: dict[asyncio.Future[None], None] = {}
        names = {way: f"{self.who} {self.life} {way}" for way in ("up", "down")}
        c, seed, now = self.conditions, transport.seed, loop.now
        self.up = Pipe(c, bandwidth=c.up, seed=seed, name=names["up"], opened=now)
        self.down = Pipe(c, bandwidth=c.down, seed=seed, name=names["down"], opened=now)
        for start, end in c.cuts:
            if end - start >= 1.5 * KEEPALIVE and end > now:
                loop.call_at(max(now, start) + 1.5 * KEEPALIVE, self.lose, "nothing arrived any more", context=NOBODY)

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish, and return when the acknowledgement arrives."""
        check_publish(topic, data, limit=self.limit)
        self._check()
        loop, payload = self.transport.loop, bytes(data)
        self.transport.note(self.who, payload)
        acknowledged: asyncio.Future[None] = loop.create_future()
        self._pending[acknowledged] = None
        came = self.up.arrival(loop.now, size=len(payload) + len(topic) + FRAME)
        if came < math.inf:
            loop.call_at(came, self._accepted, topic, payload, retain, acknowledged, context=NOBODY)
        await acknowledged

    def _accepted(self, topic: str, data: bytes, retain: bool, acknowledged: asyncio.Future[None]) -> None:  # noqa: FBT001
        if self._ended:
            return
        self.transport.accept(self.who, topic, data, retain=retain)
        self._answer(acknowledged)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        await self._ask(self.transport.broker.subscribe, filters)

    async def _ask(self, wish: Callable[[WorldChannel, str], None], filters: tuple[str, ...]) -> None:
        self._check()
        loop = self.transport.loop
        answered: asyncio.Future[None] = loop.create_future()
        self._pending[answered] = None

        def granted() -> None:
            if not self._ended:
                for pattern in filters:
                    wish(self, pattern)
                self._answer(answered)

        came = self.up.arrival(loop.now, size=FRAME)
        if came < math.inf:
            loop.call_at(came, granted, context=NOBODY)
        await answered

    def _answer(self, waiting: asyncio.Future[None]) -> None:
        came = self.down.arrival(self.transport.loop.now, size=FRAME)
        if came < math.inf:
            self.transport.loop.call_at(came, self._answered, waiting, context=NOBODY)

    def _answered(self, waiting: asyncio.Future[None]) -> None:
        if self._pending.pop(waiting, 0) is None and not waiting.done():
            waiting.set_result(None)

    def receive(self, message: Message) -> None:
        """Receive a message over the connection."""
        if not self._ended:
            self.transport.log("hear", self.who, message.topic, f"{zlib.crc32(message.data):08x}")
            self._arrived.put_nowait(message)

    def abort(self) -> None:
        """Lose the connection as in a crash: the system informs the broker."""
        if not self._ended:
            self.end("it was aborted")
            latency = self.conditions.latency
            self.transport.loop.call_at(self.transport.loop.now + latency, self.last_will, context=NOBODY)

    def vanish(self) -> None:
        """Lose the connection as in a power failure: the broker learns of it by the keepalive."""
        if not self._ended:
            self.end("its device is off")
            when = self.transport.loop.now + 1.5 * KEEPALIVE
            self.transport.loop.call_at(when, self.last_will, context=NOBODY)

    def lose(self, cause: str) -> None:
        """End without a goodbye: the will is published."""
        if not self._ended:
            self.end(cause)
            self.last_will()

    def leave(self) -> None:
        """End with a goodbye: the will is discarded."""
        if not self._ended:
            self.end("it was left")

    def last_will(self) -> None:
        """Publish the will, if there is one."""
        if self.will is not None:
            self.transport.note(self.who, self.will.data)
            self.transport.accept(self.who, self.will.topic, self.will.data, retain=True)

    def end(self, cause: str) -> None:
        """End the channel; waits for acknowledgements fail."""
        self._ended = cause
        self.transport.log("end", self.who, self.client, cause)
        self.transport.broker.remove(self)
        self._arrived.put_nowait(None)
        waiting, self._pending = self._pending, {}
        for future in waiting:
            if not future.done():
                future.set_exception(self._lost())

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        message = await self._arrived.get()
        if message is None:
            self._arrived.put_nowait(None)  # for the next caller
            raise self._lost()
        return message

    def _check(self) -> None:
        if self._ended:
            raise self._lost()

    def _lost(self) -> TransportError:
        return TransportError(f"channel {self.client} is closed because {self._ended}; join again")
