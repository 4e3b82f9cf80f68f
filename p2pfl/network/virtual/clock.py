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
from typing import Any

from p2pfl.core.errors import RunError

WHO: ContextVar[str] = ContextVar("who", default="")
"""Name of the peer whose code is running; empty for the network."""


class StuckError(RunError):
    """All peers wait and no event is scheduled: a deadlock."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop in virtual time.

    Attributes
    ----------
    now
        Time of the world in seconds.

    Examples
    --------
    >>> loop = VirtualLoop()
    >>> with asyncio.Runner(loop_factory=lambda: loop) as runner:
    ...     runner.run(asyncio.sleep(3600))
    >>> loop.now
    3600.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._spent = 0.0
        self._timers = 0
        # asyncio.BaseEventLoop keeps its callbacks in it since 3.4, and leaves their order to _run_once.
        self._ready: deque[Any]
        self._timers_due: list[tuple[float, int, asyncio.TimerHandle]] = []  # a heap: of one moment, in their order
        self._stopping: bool

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    def call_at(  # type: ignore[override] # mypy's stub ties the arguments to the callback
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a virtual time."""
        self._timers += 1
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers_due, (when, self._timers, handle))
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

    def thread_time(self) -> float:
        """Return, in a function that runs in a thread, the time that it has reached."""
        return self.now + self._spent

    def work(self) -> int:
        """Return the tenths of seconds so far: functions in threads take virtual time and no processor time."""
        return int(10 * self.now)

    def _run_once(self) -> None:
        """Run the next callback, at its time."""
        due, ready = self._timers_due, self._ready
        while due and due[0][2]._cancelled:  # noqa: SLF001 (called for each callback)
            heapq.heappop(due)
        if not ready:
            if not due:
                if self._stopping:
                    return
                raise StuckError("all peers wait and no event is scheduled, which is a deadlock")
            self.now = max(self.now, due[0][0])
        now = self.now
        while due and due[0][0] <= now:
            ready.append(heapq.heappop(due)[2])
        handle = ready.popleft()
        if not handle._cancelled:  # noqa: SLF001 (as above)
            self.run_callback(handle)

    def run_callback(self, handle: Any) -> None:
        """Run a callback that is due."""
        handle._run()  # noqa: SLF001

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing, as cancelled timers are dropped when their time comes."""

    def _process_events(self, event_list: Any) -> None:
        """Do nothing, as there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing, as no other thread has to wake the loop."""
