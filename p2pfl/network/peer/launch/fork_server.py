"""The server that forks a process for every peer, so that torch is imported once for all of them.

Nothing here imports torch, so that the server can be started first: it imports torch while its parent does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from typing import Any

from p2pfl.core.imports import without_working_directory

PEERS = "p2pfl.network.peer.launch.preload"
"""Module that imports what the processes of peers need."""


def start(*modules: str) -> ForkServerContext:
    """Start the server unless it runs already; return what starts processes through it.

    It imports the modules, or :data:`PEERS` if none is named. Ctrl-C at the terminal reaches neither the server nor
    what it forks: whoever started them ends them.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*(modules or (PEERS,))])
    with without_working_directory():
        resource_tracker.ensure_running()  # or it would be started inside, and lift the mask
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


@contextmanager
def run_server(*modules: str) -> Iterator[None]:
    """Start the server early, as :func:`start` does; if something goes wrong, end it at once.

    Of itself it would notice only after it has imported torch that it is not needed any more.
    """
    try:
        start(*modules)
        yield
    except BaseException:
        server: Any = forkserver._forkserver  # noqa: SLF001 (there is no other way to its number)
        if server._forkserver_pid is not None:  # noqa: SLF001
            os.kill(server._forkserver_pid, signal.SIGKILL)  # noqa: SLF001
            server._stop()  # noqa: SLF001
        raise
