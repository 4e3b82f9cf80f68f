"""A run directory has one owner at a time: two that write the same checkpoints and journals spoil both runs.

The owner is a process that plays peers, and every process that it starts to play one. The kernel keeps the lock with
the open file, which they share, and drops it when the last of them is gone, be it by ``kill -9``. So a run whose parent
was killed is still owned while one of its peers goes on: that peer would write its journal beside the one that resumes
it, and use masks twice. Peers end when their parent does, so that lasts a moment, but for one that hangs.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError

RUN_LOCK = "run.lock"
"""In the directory of ``p2pfl run``."""

PEER_LOCK = "peer.lock"
"""In that of ``p2pfl peer``."""

SIMULATION_LOCK = "simulation.lock"
"""In the directory of a simulation."""

LOCK_SECONDS = 5.0
"""Seconds that whoever resumes a run waits for the lock: processes that were killed a moment ago may still hold it."""

LOCK_PAUSE = 0.05
"""Seconds between two attempts to take the lock."""

_MAX_OWNER_BYTES = 2**16


class Owner:
    """A lock that is held; sent to a process as it starts, that one holds it, too.

    Parameters
    ----------
    descriptor
        Of the open file; whatever else is started does not inherit it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.write(descriptor, f"{os.getpid()}\n".encode())

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand the open file on, as connections are."""
        return _parse_owner, (reduction.DupFd(self.descriptor),)


def _parse_owner(duplicate: Any) -> Owner:
    return Owner(duplicate.detach())


@contextmanager
def own_directory(path: Path, *, within: float = 0.0, pause: Callable[[float], object] = time.sleep) -> Iterator[Owner]:
    """Own a run directory.

    Parameters
    ----------
    path
        Of the lock in it, which stays: whoever opened a file that is then removed would lock another.
    within
        Seconds to wait for the lock while another process holds it.
    pause
        Called with the seconds to wait before the next attempt.

    Raises
    ------
    InputError
        If another process holds the lock, or the file cannot be written or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        attempts = round(within / LOCK_PAUSE)
        while not _locked(descriptor, path.parent):
            if not attempts:
                raise InputError(
                    f"run directory {path.parent} is in use by {_who(descriptor)}; wait until it ends, or end it"
                )
            attempts -= 1
            pause(LOCK_PAUSE)
        try:
            os.ftruncate(descriptor, 0)
            owner = Owner(descriptor)
        except OSError as error:
            raise _unwritten(path, error) from None
        yield owner
    finally:
        os.close(descriptor)


def alive(path: Path) -> bool:
    """Return whether a process that has owned a run directory is alive, as far as this machine can see.

    It does not touch the lock, so that whoever takes it at this moment is not refused.

    Parameters
    ----------
    path
        Of the lock.
    """
    try:
        signed = path.read_bytes()[:_MAX_OWNER_BYTES].split()
    except OSError:
        return False
    return any(_runs(int(each)) for each in signed if each.isdigit())


def _unwritten(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written ({error.strerror}); choose another folder with --runs")


def _locked(descriptor: int, folder: Path) -> bool:
    """Try to take the lock; return whether this process holds it now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(
            f"the disk of {folder} cannot lock files ({error.strerror}); choose another folder with --runs"
        ) from None
    return True


def _who(descriptor: int) -> str:
    """Return the first owner that is alive, as far as this machine can see."""
    signed = [int(each) for each in os.pread(descriptor, _MAX_OWNER_BYTES, 0).split() if each.isdigit()]
    first = next((pid for pid in signed if _runs(pid)), signed[0] if signed else None)
    return "another process" if first is None else f"process {first}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True
