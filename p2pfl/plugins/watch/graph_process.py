"""The graph of a swarm for the page, made in a process of its own, so that the server holds no library of graphs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from p2pfl.core.errors import RunError
from p2pfl.plugins.watch.source import DRAWN
from p2pfl.results.swarm.state import Setting
from p2pfl.results.swarm.timeline import setting_of

if TYPE_CHECKING:
    from p2pfl.experiment import Experiment

T = TypeVar("T")

Places = dict[str, tuple[float, float]]
"""Positions of the peers in the drawing; empty if there are too many."""

LIBRARY = "networkx"
"""Module of the library of graphs; it brings 50 MB with it."""


def graph_of(experiment: Experiment) -> tuple[Setting, Places]:
    """Return what the events of an experiment do not repeat, and where its peers are drawn.

    Raises
    ------
    P2PFLError
        The topology cannot be built or read.
    """
    with graph_soon(experiment) as graph:
        return graph.result()


def graph_soon(experiment: Experiment) -> ForkedResult[tuple[Setting, Places]]:
    """Begin to make what :func:`graph_of` returns; this process can go on meanwhile."""
    return ForkedResult(lambda: _made(experiment))


class ForkedResult(Generic[T]):
    """Result of a function that a forked process calls, to keep the library of graphs out of this one.

    This process calls the function instead, when the result is first asked for, if it holds the library already, has
    threads or cannot fork, or if the function failed in the other process: its exceptions are then raised here.

    Parameters
    ----------
    make
        The function.

    Examples
    --------
    >>> with ForkedResult(lambda: 6 * 7) as answer:
    ...     answer.result()
    42
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._found: list[T] = []
        self._closed = False
        self._forked = None if LIBRARY in sys.modules or not _forks() else _forked(make)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the other process."""
        self.close()

    def result(self) -> T:
        """Return the result, and wait for it if necessary; any thread may call this.

        Raises
        ------
        RunError
            It was closed before the result was there.
        """
        with self._lock:
            if not self._found:
                self._found.append(self._received())
            return self._found[0]

    def close(self) -> None:
        """End the other process, and the waits of other threads for its result."""
        self._closed = True
        if self._forked is not None:
            self._forked[0].kill()
            self._forked[0].join()

    def _received(self) -> T:
        if self._forked is not None:
            process, pipe = self._forked
            with contextlib.suppress(EOFError), pipe:
                made: T = pipe.recv()
                process.join()
                return made
        if self._closed:
            raise RunError("the graph was no longer needed before it was made; start the command again")
        return self._make()


def _forked(make: Callable[[], T]) -> tuple[ForkProcess, Connection]:
    """Start a process that calls a function; return it with the pipe that brings the result."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(make, ours, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _forks() -> bool:
    """Return whether a copy of this process works: on macOS, system libraries may refuse."""
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def _send(make: Callable[[], T], ours: Connection, theirs: Connection) -> None:
    """Send a result to the process that waits for it, which decides when this one ends.

    A signal of the terminal is for that process. If it has ended, nobody reads, and writing fails.
    """
    ours.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(Exception):  # the other process calls the function itself and raises the same exception
        theirs.send(make())


def _made(experiment: Experiment) -> tuple[Setting, Places]:
    from p2pfl.experiment.parts.peer_graph import built  # noqa: PLC0415 (the server would hold the library of graphs)
    from p2pfl.topology.networkx_graphs import positions  # noqa: PLC0415

    setting, drawn = setting_of(experiment), built(experiment).union
    return setting, positions(drawn) if len(setting.peers) <= DRAWN else {}
