"""Ctrl-C and SIGTERM end a command in order, and soon.

The exit status says which of the two it was: 130 after Ctrl-C, as in shells. After SIGTERM the process ends by that
signal, so that a shell sees 143 and service managers such as systemd count it as a clean stop.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STATUS = 130
"""Exit status of a command that was interrupted, as shells have it."""

TERMINATED = 128 + signal.SIGTERM
"""Exit status of a command that was terminated, as shells have it."""

SOON = 1.5
"""Seconds that tidying up may take."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM asked the command to end."""


def interruption(number: int) -> KeyboardInterrupt:
    """Return the exception that stands for a signal."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def _raise(number: int) -> None:
    raise interruption(number)


@contextmanager
def interruptible(react: Callable[[int], object] = _raise) -> Iterator[None]:
    """React to the first signal, by ``KeyboardInterrupt`` if nothing else is said; ignore those that follow.

    What cannot be interrupted, such as a thread that trains a large model, does not hold up the end:
    after :data:`SOON` the process is gone, and peers and broker with it (they watch for that).

    Parameters
    ----------
    react
        Called with the number of the signal.
    """

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        late = threading.Timer(SOON, _exit, (number,))
        late.daemon = True
        late.start()
        react(number)

    before = {each: signal.signal(each, interrupt) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def run_until_interrupted(errand: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; a signal cancels it, so that it can say goodbye before ``KeyboardInterrupt`` goes on."""
    import asyncio  # noqa: PLC0415 (most commands have no loop)

    received = signal.SIGINT.value

    async def body() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(errand)

        def cancel(number: int) -> None:
            nonlocal received
            received = number
            loop.call_soon_threadsafe(task.cancel)

        with interruptible(cancel):
            await task

    try:
        asyncio.run(body())
    except asyncio.CancelledError:
        raise interruption(received) from None


def terminate() -> int:
    """End this process by SIGTERM; return :data:`TERMINATED` where that does not end it, as for PID 1 of a container.

    Any thread may call it.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone, or it is closed
            stream.flush()
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # SIG_DFL; `signal.signal` works in the main thread alone
    os.kill(os.getpid(), signal.SIGTERM)
    return TERMINATED


def _exit(number: int) -> None:
    os._exit(terminate() if number == signal.SIGTERM else STATUS)
