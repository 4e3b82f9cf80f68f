"""Event loop in virtual time, in which hours pass in seconds, reproducibly.

It replaces everything that a running loop takes from its surroundings: the clock stands until nothing is left to do at
its time and then jumps to the next timer, threads run where they are started and take virtual time, and there are no
sockets. Callbacks run one by one in the order of their scheduling, as asyncio guarantees, and so do timers of one
moment.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any

from p2pfl.core.errors import RunError

WHO: ContextVar[str] = ContextVar("who", default="")
"""Name of the peer whose code is running; empty for the network."""


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


class StuckError(RunError):
    """All peers wait and no event is scheduled: a deadlock."""


class _Timer(asyncio.TimerHandle):
    """Timer that runs, among timers of one moment, in the order of scheduling."""

    def __init__(self, number: int, when: float, *rest: Any) -> None:
        super().__init__(when, *rest)
        self.order = when, number

    def __lt__(self, other: object) -> bool:
        return isinstance(other, _Timer) and self.order < other.order


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop in virtual time.

    Parameters
    ----------
    clocks
        Clocks by peer; peers without one see the time of the world.

    Attributes
    ----------
    now
        Time of the world in seconds.
    events
        Number of callbacks that have run.
    after
        Function called after each callback with the name of its peer.

    Examples
    --------
    >>> loop = VirtualLoop()
    >>> with asyncio.Runner(loop_factory=lambda: loop) as runner:
    ...     runner.run(asyncio.sleep(3600))
    >>> loop.now
    3600.0
    """

    def __init__(self, clocks: dict[str, Clock] | None = None) -> None:
        super().__init__()
        self.now = 0.0
        self.events = 0
        self.after: Callable[[str], None] | None = None
        self._clocks = clocks or {}
        self._paused: dict[str, deque[Any]] = {}
        self._spent = 0.0
        self._timers = 0
        # asyncio.BaseEventLoop keeps its callbacks in these since 3.4, and leaves their order to _run_once.
        self._ready: deque[Any]
        self._scheduled: list[Any]
        self._stopping: bool

    def time(self) -> float:
        """Return the time on the clock of the running peer."""
        clock = self._clocks.get(WHO.get())
        return self.now if clock is None else clock.shows(self.now)

    def call_at(  # type: ignore[override] # mypy's stub ties the arguments to the callback
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for when the clock of the running peer shows a time."""
        clock = self._clocks.get(WHO.get() if context is None else context.get(WHO, ""))
        at = when if clock is None else clock.when(when)
        self._timers += 1
        handle = _Timer(self._timers, at, callback, args, self, context)
        heapq.heappush(self._scheduled, handle)
        handle._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 (as BaseEventLoop.call_at does)
        return handle

    def run_in_executor(  # type: ignore[override] # a future rather than a coroutine, as BaseEventLoop has it
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function at once; its result arrives after the time that it reported to :meth:`spent`."""
        del executor
        self._spent = 0.0
        future = self.create_future()
        try:
            result, error = func(*args), None
        except Exception as raised:  # noqa: BLE001 (it is raised again where the result is awaited)
            result, error = None, raised

        def settle() -> None:
            if not future.done() and error is not None:
                future.set_exception(error)
            elif not future.done():
                future.set_result(result)

        seconds, self._spent = self._spent, 0.0
        self.call_at(self.now + seconds, settle, context=Context())  # of the world, whatever the peer's clock shows
        return future

    def spent(self, seconds: float) -> float:
        """Report, from a function that runs in a thread, its duration; return the time of its end."""
        self._spent += seconds
        return self.now + self._spent

    def pause(self, who: str, seconds: float) -> None:
        """Suspend a process for some seconds; its callbacks run afterwards, in order."""
        if who not in self._paused:
            self._paused[who] = deque()
            self.call_at(self.now + seconds, self._resume, who, context=Context())

    def _resume(self, who: str) -> None:
        self._ready.extend(self._paused.pop(who))

    def _run_once(self) -> None:
        """Run the next callback, at its time."""
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)._scheduled = False  # noqa: SLF001
        if not self._ready:
            if not self._scheduled:
                if self._stopping:
                    return
                raise StuckError("all peers wait and no event is scheduled, which is a deadlock")
            self.now = max(self.now, self._scheduled[0].when())
        while self._scheduled and self._scheduled[0].when() <= self.now:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False  # noqa: SLF001
            self._ready.append(handle)
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        who = handle._context.get(WHO, "")  # noqa: SLF001 (get_context is new in 3.12)
        if who in self._paused:
            self._paused[who].append(handle)
            return
        handle._run()  # noqa: SLF001
        self.events += 1
        if self.after is not None:
            self.after(who)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, as cancelled timers are dropped when their time comes."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing, as there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing, as no other thread has to wake the loop."""
