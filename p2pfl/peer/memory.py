"""Memory of a peer's process."""

import contextlib
import ctypes
from pathlib import Path

ARENAS = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""


def one_heap() -> None:
    """Let all threads of this process share one heap, where the C library is glibc.

    By default each thread has its own, and each of them fills with holes: 3 MB more for a peer from the start, and half
    a kilobyte more a round.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(ARENAS, 1)


def private_memory() -> int | None:
    """Bytes of memory that this process shares with no other, where the system tells (Linux)."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
