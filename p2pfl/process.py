"""Settings of the running process: threads and memory."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

ARENAS = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""

TRIM = -1
"""``M_TRIM_THRESHOLD`` of glibc's ``malloc.h``."""

MMAP = -3
"""``M_MMAP_THRESHOLD`` of glibc's ``malloc.h``."""

KEPT = 128 * 2**20
"""Bytes of freed memory at the end of the heap that the process keeps: ten blocks of rows."""

LARGEST = 32 * 2**20
"""Bytes of the largest allocation that comes from the heap, which is the most that glibc accepts."""


def one_at_a_time() -> contextlib.AbstractContextManager[object]:
    """Return what one thread at a time can enter, and enter again inside."""
    return threading.RLock()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch run each operation of the calling thread in one thread, and restore the number of threads afterwards.

    Training a stack of models takes thousands of short operations. With several intra-op threads each operation ends
    in a barrier, so that a core that is busy with something else delays every one of them. ``docs/benchmarks.md`` has
    the figures, also of large models, for which several threads pay on idle cores.

    The number of threads is a setting of the process. Threads that start to use torch inside of the context use one
    thread, too, and contexts in several threads at once restore each other's numbers.

    Examples
    --------
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_heap() -> None:
    """Let all threads of this process share one heap, where the C library is glibc.

    By default each thread has its own, and each of them fills with holes: 3 MB more for a peer from the start, and half
    a kilobyte more a round.
    """
    _mallopt(ARENAS, 1)


def keep_freed_memory() -> None:
    """Keep up to 128 MiB of freed memory for the next allocation, where the C library is glibc.

    By default glibc returns the memory of a block of rows to the system when it is freed, and each page of the next
    block costs a page fault. The setting holds for the rest of the process: once it is changed, glibc cannot return to
    the thresholds that it adapts by itself.
    """
    _mallopt(TRIM, KEPT)
    _mallopt(MMAP, LARGEST)


def _mallopt(option: int, value: int) -> None:
    """Set an option of glibc's ``malloc``; other C libraries do not have the function."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(option, value)


def private_memory() -> int | None:
    """Bytes of memory that this process shares with no other, where the system tells (Linux)."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
