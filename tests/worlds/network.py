"""Connections that break, a broker that restarts, and clocks of peers that are wrong, beside what forecasts simulate.

A connection waits while the peer is cut off. A cut longer than the keepalive ends it at both ends, and the broker
publishes the will. The broker may deliver twice, and let messages of different topics overtake each other; those of one
publisher on one topic stay in order, except for second deliveries.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from p2pfl.core.errors import BrokerError
from p2pfl.network.transport import Message, Will
from p2pfl.network.transport.channel import KEEPALIVE, LIMIT, Payload, check_publish
from p2pfl.network.virtual.clock import WHO, VirtualLoop
from p2pfl.network.virtual.virtual_network import (
    FRAME,
    NOBODY,
    Pipe,
    WorldChannel,
    WorldTransport,
)
from p2pfl.network.virtual.virtual_network import Conditions as ForecastConditions

Log = Callable[[str, str, str, str | bytes], None]
"""Function ``log(kind, who, topic, detail)`` that takes every event; the detail of a message is its payload."""


@dataclass(frozen=True)
class Clock:
    """Clock of a peer.

    Attributes
    ----------
    rate
        Seconds that it counts per second.
    offset
        Time that it showed at the start of the world, in seconds.
    """

    rate: float = 1.0
    offset: float = 0.0

    def shows(self, now: float) -> float:
        """Return the time on this clock at a time of the world."""
        return self.offset + self.rate * now

    def when(self, shown: float) -> float:
        """Return the time of the world at which this clock shows a time."""
        return (shown - self.offset) / self.rate


class FaultyLoop(VirtualLoop):
    """Event loop in virtual time, whose peers have clocks of their own and may stand still.

    Parameters
    ----------
    clocks
        Clocks by peer; peers without one see the time of the world.

    Attributes
    ----------
    events
        Number of callbacks that have run.
    after
        Function called after each callback with the name of its peer.
    """

    def __init__(self, clocks: Mapping[str, Clock] | None = None) -> None:
        super().__init__()
        self.events = 0
        self.after: Callable[[str], None] | None = None
        self._clocks = clocks or {}
        self._paused: dict[str, deque[Any]] = {}

    def time(self) -> float:
        """Return the time on the clock of the running peer."""
        clock = self._clocks.get(WHO.get())
        return self.now if clock is None else clock.offset + clock.rate * self.now

    def call_at(  # type: ignore[override] # mypy's stub ties the arguments to the callback
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for when the clock of the running peer shows a time."""
        clock = self._clocks.get(WHO.get() if context is None else context.get(WHO, ""))
        return super().call_at(when if clock is None else clock.when(when), callback, *args, context=context)

    def pause(self, who: str, seconds: float) -> None:
        """Suspend a process for some seconds; its callbacks run afterwards, in order."""
        if who not in self._paused:
            self._paused[who] = deque()
            self.call_at(self.now + seconds, self._resume, who, context=Context())

    def _resume(self, who: str) -> None:
        self._ready.extend(self._paused.pop(who))

    def run_callback(self, handle: Any) -> None:
        """Run a callback that is due, unless its peer stands still."""
        who = handle._context.get(WHO, "")  # get_context is new in 3.12
        if who in self._paused:
            self._paused[who].append(handle)
            return
        handle._run()
        self.events += 1
        if self.after is not None:
            self.after(who)


class Conditions(ForecastConditions, frozen=True):
    """Conditions of one peer's connection to the broker.

    Attributes
    ----------
    twice
        Probability that a delivery is repeated.
    overtaken
        Probability that a delivery is delayed by up to ``held`` seconds while those of other topics pass.
    cuts
        Pairs of times between which nothing passes.
    """

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


class FaultyPipe(Pipe):
    """One direction of a connection that may be cut; earlier cuts than the time ``opened`` do not matter."""

    conditions: Conditions

    def __init__(self, conditions: Conditions, *, bandwidth: float, seed: int, name: str, opened: float = 0.0) -> None:
        super().__init__(conditions, bandwidth=bandwidth, seed=seed, name=name)
        self.opened = opened

    def arrival(self, now: float, *, size: int, overtaking: bool = False) -> float:
        """Return the time of arrival, infinite if the connection ends before; an overtaken message delays no other."""
        c, came = self.conditions, self.delay(now, size=size)
        for start, end in c.cuts:
            if came >= start and now < end and end > self.opened:
                came = max(came, end + c.latency) if end - start < 1.5 * KEEPALIVE else math.inf
        came = max(came, self.last)
        if overtaking:
            return came + float(self.random.uniform(0.0, c.held))
        self.last = came
        return came


class FaultyTransport(WorldTransport):
    """Transport over connections with faults.

    Parameters
    ----------
    loop, conditions, seed, limit
        As in :class:`WorldTransport`.
    restarts
        Restarts of the broker.
    log
        Function that takes every event.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        conditions: Mapping[str, Conditions],
        *,
        seed: int = 0,
        limit: int = LIMIT,
        restarts: tuple[Restart, ...] = (),
        log: Log | None = None,
    ) -> None:
        super().__init__(loop, conditions, seed=seed, limit=limit)
        self.log = log or (lambda _kind, _who, _topic, _detail: None)
        self.counts: Counter[str] = Counter()
        self.said: dict[str, set[bytes]] | None = None
        """By peer, everything that it has published, if recorded: other messages are forged."""
        self.received: Callable[[str, str, bytes], None] = lambda _who, _topic, _data: None
        """Function called with each accepted message."""
        self.meddle: Callable[[str, str], tuple[float, float]] = lambda _who, _topic: (0.0, 0.0)
        """Function that returns by how much a malicious broker delays a delivery, and when it repeats it."""
        self._down = -1.0  # time at which the broker is up again
        for restart in restarts:
            loop.call_at(restart.at, self._restart, restart, context=NOBODY)

    def of(self, who: str) -> Conditions:
        """Return the conditions of a peer's connection."""
        found = self.conditions.get(who, Conditions())
        assert isinstance(found, Conditions)
        return found

    def connect(self, client: str, who: str, will: Will | None) -> WorldChannel:
        """Return an open channel, if the broker can be reached."""
        if self.loop.now < self._down or any(start <= self.loop.now < end for start, end in self.of(who).cuts):
            raise BrokerError("the broker is down; try again")
        channel = super().connect(client, who, will)
        self.log("join", who, client, "")
        return channel

    def channel(self, client: str, who: str, will: Will | None, *, life: int) -> FaultyChannel:
        """Return the channel of a peer."""
        return FaultyChannel(self, client, who, will, life=life)

    def pipe(self, who: str, life: int, way: str, *, bandwidth: float) -> FaultyPipe:
        """Return one direction of a connection."""
        name = f"{who} {life} {way}"
        return FaultyPipe(self.of(who), bandwidth=bandwidth, seed=self.seed, name=name, opened=self.loop.now)

    def note(self, who: str, data: bytes) -> None:
        """Record what a peer publishes, if enabled; the record grows with the run."""
        if self.said is not None:
            self.said.setdefault(who, set()).add(data)

    def accept(self, who: str, topic: str, data: bytes, *, retain: bool) -> None:
        """Accept a message at the broker."""
        self.log("accept", who, topic, data)
        self.received(who, topic, data)
        super().accept(who, topic, data, retain=retain)

    def deliver(self, channel: WorldChannel, message: Message) -> None:
        """Send a message to a receiver: not at all, once or twice."""
        assert isinstance(channel, FaultyChannel)
        c, pipe = self.of(channel.who), channel.down
        assert isinstance(pipe, FaultyPipe)
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
            size = len(message.data) + len(message.topic) + FRAME
            came = pipe.arrival(self.loop.now, size=size, overtaking=overtaking)
            if not repeated:  # messages of one topic stay in order
                came = channel.ordered[message.topic] = max(came, channel.ordered.get(message.topic, 0.0))
            if overtaking and not repeated:
                self.counts["overtaken"] += 1
            if came < math.inf:
                held, repeated_after = self.meddle(channel.who, message.topic)
                self.loop.call_at(came + held, channel.receive, message, context=NOBODY)
                if repeated_after:
                    self.loop.call_at(came + repeated_after, channel.receive, message, context=NOBODY)

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


class FaultyChannel(WorldChannel):
    """Channel of :class:`FaultyTransport`, with the time of arrival of the last message by topic."""

    transport: FaultyTransport

    def __init__(self, transport: FaultyTransport, client: str, who: str, will: Will | None, *, life: int) -> None:
        super().__init__(transport, client, who, will, life=life)
        self.ordered: dict[str, float] = {}
        loop = self.loop
        for start, end in transport.of(who).cuts:
            if end - start >= 1.5 * KEEPALIVE and end > loop.now:
                when = max(loop.now, start) + 1.5 * KEEPALIVE
                loop.call_at(when, self.lose, "nothing arrived any more", context=NOBODY)

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish, and return when the acknowledgement arrives."""
        check_publish(topic, data, limit=self.limit)
        self.check()
        payload = bytes(data)
        self.transport.note(self.who, payload)
        await super().publish(topic, payload, retain=retain)

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Schedule what the network does at a time, if ever."""
        if when < math.inf:
            super().call_at(when, callback)

    def receive(self, message: Message) -> None:
        """Receive a message over the connection."""
        if not self.ended:
            self.transport.log("hear", self.who, message.topic, bytes(message.data))
        super().receive(message)

    def lose_power(self) -> None:
        """Lose the connection as in a power failure: the broker learns of it by the keepalive."""
        self.vanish("its device is off", after=1.5 * KEEPALIVE)

    def last_words(self) -> None:
        """Publish the will, if there is one."""
        if self.will is not None:
            self.transport.note(self.who, self.will.data)
        super().last_words()

    def end(self, cause: str) -> None:
        """End the channel; waits for acknowledgements fail."""
        self.transport.log("end", self.who, self.client, cause)
        super().end(cause)
