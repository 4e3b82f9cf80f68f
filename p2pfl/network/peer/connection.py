"""Shell around a session: it carries out the effects of the session, and passes arrivals and the time to it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from p2pfl.core.errors import DecodeError, PeerError, RunError
from p2pfl.network.peer.neighbourhoods.sum_relay import SumRelay
from p2pfl.network.protocol.interface import effects, events, requests
from p2pfl.network.protocol.interface.effects import Answer, Effect, Publish
from p2pfl.network.protocol.interface.events import Event
from p2pfl.network.protocol.interface.requests import Request
from p2pfl.network.protocol.session.session import Session
from p2pfl.network.protocol.wire.messages import ChangeRelay, Claim, Message
from p2pfl.network.protocol.wire.total_messages import Subtotal
from p2pfl.network.transport import Channel
from p2pfl.network.transport import Message as Arrived

TICK = 0.01
"""Seconds between two readings of a clock that stands still."""

MAX_PUBLISHERS = 16
"""Maximum number of messages that are sealed and published at a time."""

Post = effects.Publish | effects.Clear
"""Effect that a publisher carries out."""


async def _nothing() -> None:
    """Store nothing."""


def _ignore(sender: str, message: ChangeRelay) -> None:
    """Take no change of the swarm."""
    del sender, message


class Connection:
    """Connection of one peer to its neighbours.

    Parameters
    ----------
    channel
        Joined channel to the broker.
    session
        Session that makes the decisions.
    relay
        Part of this peer in secure sums; ``None`` without secure sums.
    durable
        Function that makes state durable; the connection awaits it before it publishes messages that depend on it.

    Attributes
    ----------
    diverts
        Functions that are called with each arrival; if one returns true, the session does not receive the arrival.
    take_change
        Function that is called with a neighbour and what it relays of a change of the swarm; it ignores it by default.
    bytes_out, bytes_in
        Bytes of the payloads sent and received so far.
    """

    def __init__(
        self,
        channel: Channel,
        session: Session,
        *,
        relay: SumRelay | None = None,
        durable: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self.channel, self.session, self.relay = channel, session, relay
        self._time = asyncio.get_running_loop().time
        self._work = work_of(asyncio.get_running_loop())
        self.durable = durable
        self.bytes_out = self.bytes_in = 0
        self.diverts: list[Callable[[Arrived], bool]] = []
        self.take_change: Callable[[str, ChangeRelay], object] = _ignore
        self._tasks: asyncio.TaskGroup | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._posts: deque[Post] = deque()  # not yet taken by a publisher
        self._idle: deque[asyncio.Future[None]] = deque()  # of publishers that wait for work
        self._publishers = 0
        self._flushed: asyncio.Future[None] | None = None
        self._retaining = asyncio.Lock()  # serial, so that the broker retains the last one
        self._storing = asyncio.Lock()
        self._stores: int | None = None  # number of writes before a request is answered
        self._slow: deque[effects.Parse] = deque()
        self._answer: Answer | None = None
        self._asked: dict[bool, asyncio.Future[Answer]] = {}  # pending requests; key True: the request to leave
        self._broken: asyncio.Future[None] | None = None
        self._watches: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._away = channel.away
        self._closed = False

    def clock(self) -> float:
        """Return the event loop's time minus the time offline, when silence is not the fault of neighbours."""
        return self._time() - self.channel.away

    # ------------------------------------------------------------------ for the peer

    async def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Join the swarm, and start the tasks that read messages and send heartbeats."""
        self._tasks = tasks
        self._broken = asyncio.get_running_loop().create_future()
        self._loops += [
            tasks.create_task(self._read(), name="reader"),
            tasks.create_task(self._guard(self._broken), name="guard"),
        ]
        await self.ask(requests.Enter(limit=self.channel.limit, grace=self.channel.grace))

    async def ask(self, request: Request) -> Answer:
        """Pass a request to the session; return its answer as soon as there is one."""
        leaving = isinstance(request, requests.Leave)
        if leaving in self._asked:
            raise RunError(f"the connection answers one request at a time; await the previous one before {request}")
        self._stores = 0
        answer = self.submit(request)
        stores, self._stores = self._stores, None
        if answer is not None:
            return answer
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[leaving] = asked
        try:
            for _ in range(stores):  # in this task rather than in a separate one
                await self._store()
            return await asked
        finally:
            del self._asked[leaving]

    def submit(self, request: Request) -> Answer | None:
        """Pass a request to the session; return the answer if there is one at once."""
        self._answer = None
        self.handle(request)
        answer, self._answer = self._answer, None
        return answer

    async def gather(self, *, quorum: float, within: float, together: bool = False) -> PeerError | None:
        """Wait for the neighbours; return an error if the peer cannot begin."""
        answer = await self.ask(requests.Gather(quorum=quorum, within=within, together=together))
        assert isinstance(answer, effects.Gathered)  # noqa: S101 (the answer to this request)
        return answer.error

    async def leave(self, *, done: bool = True) -> None:
        """Wait until sent messages have arrived, then send a goodbye; ``done`` is True if all rounds were played.

        Raises
        ------
        PeerError
            The others have taken the last total of this peer again without it.
        """
        until = self.clock() + self.session.shared.patience
        await self._confirm_total(until)
        await self.ask(requests.Leave(done=done, until=until))

    async def _confirm_total(self, until: float) -> None:
        """Wait until the children hold the last total: a peer that has left can send it to nobody."""
        totals = self.session.totals
        await self.until(lambda: not totals.unconfirmed, by=until)
        if apart := sorted(totals.apart):
            raise PeerError(
                f"{', '.join(apart)} lost this peer in the last total and took it again without it, so the models "
                "differ; use the models of the others"
            )

    def accompany(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the session until the connection is closed."""
        self._start(work)

    def close(self) -> None:
        """Stop the reader, the publishers and the clock, and handle no more events."""
        self._closed = True
        for task in self._loops:
            task.cancel()

    async def until(self, condition: Callable[[], bool], *, by: float) -> None:
        """Wait until a condition holds, checked after each event, or until the time ``by`` of :meth:`clock`."""
        while not condition() and self.clock() < by:
            watch = condition, asyncio.get_running_loop().create_future()
            self._watches.append(watch)
            with contextlib.suppress(TimeoutError):
                try:
                    async with asyncio.timeout(max(by - self.clock(), TICK) if by < math.inf else None):
                        await watch[1]
                finally:
                    self._watches.remove(watch)

    def look(self) -> None:
        """Resume each coroutine that waits for a condition that now holds."""
        for condition, future in self._watches:
            if not future.done() and condition():
                future.set_result(None)

    def post(self, path: str, message: Message) -> None:
        """Publish a message without waiting for confirmation."""
        self._carry_out(Publish(path, message))

    # ------------------------------------------------------------------ events and effects

    def handle(self, event: Event) -> None:
        """Pass an event to the session, and carry out its effects."""
        if self._closed:
            return
        for effect in self.session.handle(event, now=self.clock()):
            self._carry_out(effect)
        if self._watches:
            self.look()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case effects.Publish() | effects.Clear():
                self._post(effect)
            case effects.WakeAt():
                self._wake_at(effect.when)
            case effects.Parse():
                self._slow.append(effect)
            case effects.ProcessSum() | effects.Forget():
                self._process_sum(effect)
            case effects.TakeChange():
                self.take_change(effect.sender, effect.message)
            case effects.Fail():
                self._break(effect.error)
            case effects.Store() if self._stores is not None:
                self._stores += 1
            case effects.Subscribe() | effects.Store() | effects.Flush():
                self._start(self._perform(effect))
            case _:
                self._hand_over(effect)

    def _hand_over(self, answer: Answer) -> None:
        asked = self._asked.get(isinstance(answer, effects.Left))
        if asked is None:
            self._answer = answer
        elif not asked.done():
            asked.set_result(answer)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task for an effect, unless the peer's task group is shutting down."""
        assert self._tasks is not None, "a connection carries nothing out before it enters"  # noqa: S101 (ours)
        try:
            self._loops.append(self._tasks.create_task(work))
        except RuntimeError:  # the group is shutting down
            work.close()

    def _post(self, post: Post) -> None:
        """Queue a message, and wake an idle publisher, or start one if fewer than the maximum run.

        Publishers take messages in order: a piece of a total that overtakes another is sent again, after a timeout.
        """
        self._posts.append(post)
        while self._idle and (waiting := self._idle.popleft()):
            if not waiting.done():
                waiting.set_result(None)
                return
        if self._publishers < MAX_PUBLISHERS:
            self._publishers += 1
            self._start(self._publisher())

    async def _publisher(self) -> None:
        """Publish one message after another while the connection lasts."""
        while True:
            while not self._posts:
                await self._next()
            post = self._posts.popleft()
            await (self.publish(post) if isinstance(post, Publish) else self._clear(post))

    async def _next(self) -> None:
        """Wait for the next message to publish."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        flushed = self._flushed
        if flushed is not None and not flushed.done() and len(self._idle) == self._publishers:
            flushed.set_result(None)
        await waiting

    # ------------------------------------------------------------------ slow effects

    async def publish(self, effect: Publish) -> None:
        """Seal a message and publish it; return once the broker has confirmed it."""
        codec = self.session.shared.codec
        async with self._retaining if effect.retain else contextlib.nullcontext():
            payload = codec.seal(effect.place, effect.message, size=effect.size)
            if not isinstance(effect.message, Claim):  # claims do not count as traffic of the run
                self.bytes_out += len(payload)
            await self.channel.publish(codec.topic(effect.place), payload, retain=effect.retain)
        if effect.receipt:
            self._report_reconnection()
            self.handle(events.Published(effect.receipt))

    async def _clear(self, effect: effects.Clear) -> None:
        async with self._retaining:
            await self.channel.publish(self.session.shared.codec.topic("state"), b"", retain=True)
        self.handle(events.Published(effect.receipt))

    async def _perform(self, effect: effects.Subscribe | effects.Store | effects.Flush) -> None:
        match effect:
            case effects.Subscribe():
                await self.channel.subscribe(*self.session.shared.codec.filters(effect.places))
                if effect.receipt:
                    self.handle(events.Subscribed(effect.receipt))
            case effects.Store():
                await self._store()
            case effects.Flush():
                if self._posts or len(self._idle) < self._publishers:
                    self._flushed = asyncio.get_running_loop().create_future()
                    await self._flushed
                    self._flushed = None
                self.handle(events.Flushed())

    async def _store(self) -> None:
        """Make the state durable that must survive a crash."""
        async with self._storing:
            await self.durable()
        self.handle(events.Stored())

    async def _read(self) -> None:
        """Pass arrivals to the session, one message after another, while the connection lasts."""
        codec = self.session.shared.codec
        own = codec.topic(f"in/{codec.me.peer}")
        async for message in self.channel:
            if any(takes(message) for takes in self.diverts):
                continue
            if message.topic != own:  # claims do not count as traffic of the run
                self.bytes_in += len(message.data)
            self.handle(events.Received(message.topic, message.data))
            while self._slow:
                self.handle(await asyncio.to_thread(self._slow.popleft().result))

    def _process_sum(self, effect: effects.ProcessSum | effects.Forget) -> None:
        if isinstance(effect, effects.Forget):
            if self.relay is not None:
                self.relay.sum_receiver.forget(effect.peer)
            return
        assert self.relay is not None, "a session hands on messages of sums only if there are any"  # noqa: S101
        kind, sender, mine = type(effect.message).__name__, effect.sender, self.relay.sum_receiver
        before = mine.lacking.get(sender)
        try:
            answers = self.relay.receive(sender, effect.message)
        except DecodeError:
            self.handle(events.SumRefused(sender, kind, equivocated=sender in self.relay.sum_sender.proofs))
            return
        if isinstance(effect.message, Subtotal) and mine.lacking.get(sender) != before:  # repeated ones are no progress
            self.session.streams.progress[sender] = self.clock()
        for peer, answer in answers:
            self.post(f"in/{peer}", answer)

    # ------------------------------------------------------------------ time, and failure

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._set(when, least=0.0)

    def _set(self, when: float, *, least: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(when - self.clock(), least), self._wake, when)

    def _wake(self, when: float) -> None:
        """Send the session a ``Tick``, unless the clock stood still."""
        self._timer = None
        early = self.clock() < when
        if early:
            self._set(when, least=TICK)
        try:
            self._report_reconnection()
            if not early:
                self.handle(events.Tick(grace=self.channel.grace, work=self._work()))
        except Exception as error:  # noqa: BLE001 (no coroutine awaits a timer)
            self._break(error)

    def _report_reconnection(self) -> None:
        """Notify the session if the connection was lost and is back."""
        if not self.channel.lost and self.channel.away > self._away:
            self._away = self.channel.away
            self.handle(events.Connected())

    def _break(self, error: Exception) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    async def _guard(self, broken: asyncio.Future[None]) -> None:
        """Raise the error that stops the peer; at the end, stop the clock."""
        try:
            await broken
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()


def work_of(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the function that measures the work done so far, in tenths of seconds, for heartbeats to state.

    Computations run in other threads than the event loop, whose own time does not count: a process whose threads hang
    still sends heartbeats. A loop in virtual time states its own work.
    """
    virtual: Callable[[], int] | None = getattr(loop, "work", None)
    return _threads_work if virtual is None else virtual


def _threads_work() -> int:
    return int(10 * max(0.0, time.process_time() - time.thread_time()))
