"""Work of a process: processor time that its computations have used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def work_of(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return the function that measures the work done so far, in tenths of seconds, for heartbeats to state.

    Computations run in other threads than the event loop, whose own time does not count: a process whose threads hang
    still sends heartbeats. A loop in virtual time states its own work.
    """
    virtual: Callable[[], int] | None = getattr(loop, "work", None)
    return _threads_work if virtual is None else virtual


def _threads_work() -> int:
    return int(10 * max(0.0, time.process_time() - time.thread_time()))
