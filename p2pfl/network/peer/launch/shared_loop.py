"""Event loop of several peers, whose clock leaves out the time in which the loop was behind with their work."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

MAX_STEP = 0.1
"""Seconds that count of one turn of the loop, and of a wait that ended too late."""


class LoadClock:
    """Clock that counts at most :data:`MAX_STEP` of each stretch in which a loop works, and of each delay.

    Peers that share a loop or a core are late together, so a neighbour's silence meanwhile says nothing. The clock
    then slows down, and with it everything that has a period or a deadline: heartbeats, timeouts, pauses.

    Parameters
    ----------
    now
        Present time in seconds.

    Examples
    --------
    A turn of 3 s counts as 0.1 s; the second of sleep that follows counts fully.

    >>> clock = LoadClock(0.0)
    >>> clock.read(0.05), clock.read(3.0)
    (0.05, 0.1)
    >>> clock.sleep(3.0)
    >>> clock.wake(4.0, timeout=1.0)
    >>> round(clock.read(4.0), 6)
    1.1
    """

    def __init__(self, now: float) -> None:
        self._since = now  # when the turn or the wait began
        self._left_out = 0.0

    def read(self, now: float) -> float:
        """Return the seconds that count, within a turn of the loop; they never decrease."""
        return min(now, self._since + MAX_STEP) - self._left_out

    def sleep(self, now: float) -> None:
        """End a turn of the loop: from now on it waits."""
        self._left_out += max(0.0, now - self._since - MAX_STEP)
        self._since = now

    def wake(self, now: float, *, timeout: float | None) -> None:
        """Begin a turn of the loop, which wanted to wait for ``timeout`` seconds at most; ``None`` is without limit."""
        if timeout is not None:
            self._left_out += max(0.0, now - self._since - max(timeout, 0.0) - MAX_STEP)
        self._since = now


class _Selector(selectors.DefaultSelector):
    """Selector that tells a clock when its loop waits, and somebody when a turn begins."""

    def __init__(self, clock: LoadClock, turned: Callable[[float], None] | None) -> None:
        super().__init__()
        self._clock, self._turned = clock, turned

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until a file is ready, or for ``timeout`` seconds."""
        self._clock.sleep(time.monotonic())
        try:
            return super().select(timeout)
        finally:
            now = time.monotonic()
            self._clock.wake(now, timeout=timeout)
            if self._turned is not None:
                self._turned(now)


class SharedLoop(asyncio.SelectorEventLoop):
    """Event loop of several peers, in the time of :class:`LoadClock`.

    Parameters
    ----------
    threads
        Number of threads for training and files.
    turned
        Called at the begin of each turn with :func:`time.monotonic`, for what must not slow down with the loop.

    Examples
    --------
    >>> with asyncio.Runner(loop_factory=SharedLoop) as runner:
    ...     runner.run(asyncio.sleep(0.01, "done"))
    'done'
    """

    def __init__(self, threads: int | None = None, *, turned: Callable[[float], None] | None = None) -> None:
        self._clock = LoadClock(time.monotonic())
        super().__init__(_Selector(self._clock, turned))
        if threads is not None:
            self.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="peers"))

    def time(self) -> float:
        """Return the time of the loop in seconds."""
        return self._clock.read(time.monotonic())
