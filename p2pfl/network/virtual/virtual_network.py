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
from dataclasses import dataclass

from p2pfl.core.errors import BrokerError
from p2pfl.core.rows import draw
from p2pfl.network.transport.channel import KEEPALIVE, LIMIT, Message, Payload, Will, check_filters, check_publish
from p2pfl.network.transport.memory import MemoryBroker, MemoryChannel
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
            channel.last_words()
        for channel in channels:
            channel.end("the broker stopped")  # other wills are lost with it
        if not restart.kept:
            self.broker.retained.clear()


class WorldChannel(MemoryChannel):
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`WorldTransport`.

    Attributes
    ----------
    who, conditions
        Name of the peer, and the conditions of its connection.
    up, down
        Both directions of the connection.
    ordered
        Time of arrival of the last message by topic.
    """

    def __init__(self, transport: WorldTransport, client: str, who: str, will: Will | None, *, life: int) -> None:
        super().__init__(transport.broker, client, will, limit=transport.limit)
        self.transport, self.who = transport, who
        self.conditions = c = transport.conditions.get(who, Conditions())
        self.ordered: dict[str, float] = {}
        self._pending: dict[asyncio.Future[None], None] = {}
        self._loop = loop = transport.loop
        name, now = f"{who} {life}", loop.now
        self.up = Pipe(c, bandwidth=c.up, seed=transport.seed, name=f"{name} up", opened=now)
        self.down = Pipe(c, bandwidth=c.down, seed=transport.seed, name=f"{name} down", opened=now)
        for start, end in c.cuts:
            if end - start >= 1.5 * KEEPALIVE and end > now:
                loop.call_at(max(now, start) + 1.5 * KEEPALIVE, self.lose, "nothing arrived any more", context=NOBODY)

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish, and return when the acknowledgement arrives."""
        check_publish(topic, data, limit=self.limit)
        self.check()
        payload = bytes(data)
        self.transport.note(self.who, payload)

        def accepted() -> None:
            self.transport.accept(self.who, topic, payload, retain=retain)

        await self._ask(accepted, size=len(payload) + len(topic) + FRAME)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        self.check()

        def granted() -> None:
            for pattern in filters:
                self.transport.broker.subscribe(self, pattern)

        await self._ask(granted, size=FRAME)

    async def _ask(self, act: Callable[[], None], *, size: int) -> None:
        """Let the broker act on a packet when it arrives, and return when the acknowledgement arrives."""
        answered: asyncio.Future[None] = self._loop.create_future()
        self._pending[answered] = None

        def acknowledge() -> None:
            if self._pending.pop(answered, 0) is None and not answered.done():
                answered.set_result(None)

        def arrive() -> None:
            if not self.ended:
                act()
                self._call_at(self.down.arrival(self._loop.now, size=FRAME), acknowledge)

        self._call_at(self.up.arrival(self._loop.now, size=size), arrive)
        await answered

    def _call_at(self, when: float, callback: Callable[[], None]) -> None:
        if when < math.inf:
            self._loop.call_at(when, callback, context=NOBODY)

    def receive(self, message: Message) -> None:
        """Receive a message over the connection."""
        if not self.ended:
            self.transport.log("hear", self.who, message.topic, f"{zlib.crc32(message.data):08x}")
            self.arrived.put_nowait(message)

    def abort(self) -> None:
        """Lose the connection as in a crash: the system informs the broker."""
        self._vanish("it was aborted", after=self.conditions.latency)

    def vanish(self) -> None:
        """Lose the connection as in a power failure: the broker learns of it by the keepalive."""
        self._vanish("its device is off", after=1.5 * KEEPALIVE)

    def _vanish(self, cause: str, *, after: float) -> None:
        if not self.ended:
            self.end(cause)
            self._call_at(self._loop.now + after, self.last_words)

    def last_words(self) -> None:
        """Publish the will, if there is one."""
        if self.will is not None:
            self.transport.note(self.who, self.will.data)
            self.transport.accept(self.who, self.will.topic, self.will.data, retain=True)

    def end(self, cause: str) -> None:
        """End the channel; waits for acknowledgements fail."""
        self.transport.log("end", self.who, self.client, cause)
        super().end(cause)
        waiting, self._pending = self._pending, {}
        for future in waiting:
            if not future.done():
                future.set_exception(self.closed())
