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
from typing import TYPE_CHECKING, TypeVar

from p2pfl.report.swarm.state import Setting
from p2pfl.report.swarm.timeline import setting_of
from p2pfl.watch.source import DRAWN

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
    return apart(lambda: _made(experiment))


def apart(make: Callable[[], T]) -> T:
    """Return what a function makes, from a forked process if that keeps the library of graphs out of this one.

    The function runs in this process instead if it holds the library already, has threads or cannot fork, or if it
    failed in the other one: whatever it raises, it raises here.

    Examples
    --------
    >>> apart(lambda: 6 * 7)
    42
    """
    if LIBRARY in sys.modules or not _forks():
        return make()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(make, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        made: T = ours.recv()
    except EOFError:
        return make()
    finally:
        ours.close()
        process.kill()
        process.join()
    return made


def _forks() -> bool:
    """Return whether a copy of this process works: on macOS, system libraries may refuse."""
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def _send(make: Callable[[], T], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits, which ends this one
    with contextlib.suppress(Exception):  # the other process meets the same one
        pipe.send(make())


def _made(experiment: Experiment) -> tuple[Setting, Places]:
    from p2pfl.experiment.outline import built, loaded  # noqa: PLC0415 (the server would hold the library of graphs)
    from p2pfl.topology.drawing import positions  # noqa: PLC0415

    setting, drawn = setting_of(experiment), (loaded(experiment) or built(experiment)).union
    return setting, positions(drawn) if len(setting.peers) <= DRAWN else {}
