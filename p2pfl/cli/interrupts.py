"""Ctrl-C and SIGTERM end a command in order, and soon."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STATUS = 130
"""Exit status of a command that was interrupted, as shells have it."""

SOON = 1.5
"""Seconds that tidying up may take."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _raise() -> None:
    raise KeyboardInterrupt


@contextmanager
def interruptible(react: Callable[[], object] = _raise) -> Iterator[None]:
    """React to the first signal, by ``KeyboardInterrupt`` if nothing else is said; ignore those that follow.

    What cannot be interrupted, such as a thread that trains a large model, does not hold up the end:
    after :data:`SOON` the process is gone, and peers and broker with it (they watch for that).
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        late = threading.Timer(SOON, os._exit, (STATUS,))
        late.daemon = True
        late.start()
        react()

    before = {each: signal.signal(each, interrupt) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def until_interrupted(errand: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; a signal cancels it, so that it can say goodbye before ``KeyboardInterrupt`` goes on."""

    async def body() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(errand)
        with interruptible(lambda: loop.call_soon_threadsafe(task.cancel)):
            await task

    try:
        asyncio.run(body())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
