"""Settings of the running process: threads and memory; and its random generators."""

import contextlib
import ctypes
import functools
import math
import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from p2pfl.core.tensors import torch

T = TypeVar("T")

_spreading = threading.local()

GROUP_FOLDER = Path("/sys/fs/cgroup")
"""Folder in which Linux mounts control groups."""

ARENA_OPTION = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""

TRIM_OPTION = -1
"""``M_TRIM_THRESHOLD`` of glibc's ``malloc.h``."""

MMAP_OPTION = -3
"""``M_MMAP_THRESHOLD`` of glibc's ``malloc.h``."""

KEPT_HEAP_BYTES = 128 * 2**20
"""Bytes of freed memory at the end of the heap that the process keeps: ten blocks of rows."""

MIN_MAPPED_BYTES = 2**20
"""Bytes of the smallest block that returns to the system on a device."""

SEEDING = threading.RLock()
"""Lock of whoever seeds, watches or restores the global generators, which all threads of the process share."""

MAX_HEAP_ALLOCATION = 32 * 2**20
"""Bytes of the largest allocation that comes from the heap, which is the most that glibc accepts."""


@contextlib.contextmanager
def watch_generators() -> Iterator[list[str]]:
    """Yield a list that afterwards names the global generators from which a block of code drew; restore them.

    Examples
    --------
    >>> with watch_generators() as drawn:
    ...     _ = random.random()
    >>> drawn
    ["Python's"]
    """
    with SEEDING:
        before = generators()
        drawn: list[str] = []
        try:
            yield drawn
        finally:
            drawn += find_used_generators(before)
            torch.random.set_rng_state(before["torch's"])
            np.random.set_state(before["numpy's"])  # noqa: NPY002 -- the generator of users' code
            random.setstate(before["Python's"])


@contextlib.contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Let torch's generator of the CPU start from a seed in one thread at a time, and restore it afterwards.

    Examples
    --------
    >>> with seeded_torch(7):
    ...     once = torch.rand(1)
    >>> with seeded_torch(7):
    ...     bool(torch.rand(1) == once)
    True
    """
    with SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
"""Classes of random generators of users' code, which change when they are used."""


def generators() -> dict[str, Any]:
    """Return the states of the global generators by their names."""
    legacy = np.random.get_state()  # noqa: NPY002 -- the generator of users' code
    return {"torch's": torch.random.get_rng_state(), "numpy's": legacy, "Python's": random.getstate()}


def find_used_generators(before: Mapping[str, Any]) -> list[str]:
    """Return the names of the global generators from which any thread of the process has drawn.

    Parameters
    ----------
    before
        Result of :func:`generators` at an earlier moment.
    """
    names = []
    for (name, state), old in zip(generators().items(), before.values(), strict=True):
        if name == "numpy's":
            same = np.array_equal(state[1], old[1]) and state[2:] == old[2:]
        else:
            same = bool(np.array_equal(state, old)) if torch.is_tensor(state) else state == old
        names += [] if same else [name]
    return names


def one_at_a_time() -> contextlib.AbstractContextManager[object]:
    """Return a reentrant lock for one thread at a time."""
    return threading.RLock()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and numpy run each operation of the calling thread in one thread, and restore the numbers afterwards.

    Training a stack of models takes thousands of short operations. With several intra-op threads each operation ends
    in a barrier, so that a core that is busy with something else delays every one of them.

    Threads that start to use torch inside of the context use one thread, too, and contexts in several threads at once
    restore each other's numbers.

    Examples
    --------
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    with threads(1):
        yield


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch and numpy run each operation of the calling thread in so many threads, as :func:`one_thread` does.

    Parameters
    ----------
    count
        Number of threads, at least one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def set_threads(count: int) -> None:
    """Let this process use so many cores until it ends, for operations of torch and numpy and for :func:`cores`.

    Parameters
    ----------
    count
        Number of threads, at least one.
    """
    os.environ["OMP_NUM_THREADS"] = str(count)
    torch.set_num_threads(count)
    _libraries().limit(limits=count, user_api="blas")


@functools.cache  # looking through the loaded libraries takes a millisecond
def _libraries() -> ThreadpoolController:
    """Return the libraries of this process that multiply matrices for numpy."""
    return ThreadpoolController()


def cores(groups: Path = GROUP_FOLDER) -> int:
    """Return the number of cores that this process may keep busy.

    It is that of :func:`processors`, at most ``OMP_NUM_THREADS``.

    Parameters
    ----------
    groups
        Folder in which control groups are mounted.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(processors(groups), int(wanted) if wanted.isdecimal() and int(wanted) else sys.maxsize)


def processors(groups: Path = GROUP_FOLDER) -> int:
    """Return the number of cores that several processes may keep busy.

    It is the number of cores of the affinity of this one, at most the quota of its control group.

    Parameters
    ----------
    groups
        Folder in which control groups are mounted.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    there = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    return max(1, math.floor(min(float(there), _quota(groups))))


@functools.cache  # training asks in every round, and reading these files takes a millisecond
def _quota(groups: Path) -> float:
    """Return the cores that the control group grants: infinity without a limit, or where there are no groups.

    A limit that changes during a run counts from the next run on.
    """
    limits = [math.inf]
    for folder in _own_groups("cpu", groups):
        limits += [_ratio(folder / "cpu.max"), _ratio(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")]
    return min(limits)


def _own_groups(controller: str, groups: Path) -> list[Path]:
    """Return the folders of the control groups that limit this process, of both versions."""
    try:
        own = Path("/proc/self/cgroup").read_text("ascii").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for number, controllers, path in (line.split(":", 2) for line in own):
        if number == "0" or controller in controllers.split(","):  # a container may see its own group as the first one
            root = groups if number == "0" else groups / controller  # version 2 or 1
            folder = root / path.lstrip("/")
            folders += [
                each for each in (folder, *folder.parents) if each.is_relative_to(root)
            ]  # all above limit it, too
    return folders


def _ratio(*files: Path) -> float:
    """Return the first number of some files over the second one; infinity where they name no limit."""
    try:
        quota, period = " ".join(file.read_text("ascii") for file in files).split()
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError):  # there is no file, or it says "max"
        return math.inf


def spread(work: Callable[[int, T], None], items: Sequence[T], *, workers: int, inner: int = 1) -> None:
    """Do some work on each item in several threads, each with one intra-op thread, or ``inner`` of them.

    Items are taken from the front of a queue, so the longest should come first. No thread waits for another. One item
    is done by the calling thread, with at least as many intra-op threads as it has. Work that spreads work in turn does
    it alone.

    Parameters
    ----------
    work
        Function ``work(number, item)``; calls at the same time have different numbers below ``workers``.
    items
        Items, independent of each other.
    workers
        Number of threads, of which the calling one is the first; usually :func:`cores`.
    inner
        Number of intra-op threads of each.

    Examples
    --------
    >>> squares = [0] * 4
    >>> spread(lambda _number, item: squares.__setitem__(item, item**2), range(4), workers=2)
    >>> squares
    [0, 1, 4, 9]
    """
    if len(items) < 2 or getattr(_spreading, "now", False):
        with threads(max(inner, torch.get_num_threads())) if inner > 1 else contextlib.nullcontext():
            for item in items:
                work(0, item)
        return
    left = deque(items)

    def some(number: int) -> None:
        _spreading.now = True
        torch.set_num_threads(inner)  # a thread of the pool has its own number
        try:
            while True:
                try:
                    item = left.popleft()
                except IndexError:
                    return
                work(number, item)
        except BaseException:
            left.clear()  # the other threads end after their item
            raise
        finally:
            _spreading.now = False

    helpers = min(workers, len(items)) - 1
    with threads(inner):
        futures = [_pool(os.getpid(), helpers).submit(some, number + 1) for number in range(helpers)]
        try:
            some(0)
        finally:
            left.clear()
            wait(futures)
    for future in futures:
        future.result()


@functools.cache
def _pool(process: int, count: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a forked process has none of them and makes its own."""
    del process
    return ThreadPoolExecutor(count, thread_name_prefix="p2pfl")


def raise_file_limit() -> int:
    """Let this process open as many files as the system permits, and return their number; each connection is one."""
    import resource  # noqa: PLC0415 (Windows has none)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def one_heap() -> None:
    """Let all threads of this process share one heap, where the C library is glibc.

    By default each thread has its own, and each of them fills with holes: 3 MB more for a peer from the start, and half
    a kilobyte more a round.
    """
    _mallopt(ARENA_OPTION, 1)


def return_freed_memory() -> None:
    """Return freed blocks of :data:`MIN_MAPPED_BYTES` bytes and more to the system, where the C library is glibc.

    Once a block of up to 32 MiB has been freed, glibc by default takes further blocks of that size from the heap, which
    small blocks keep from shrinking: with a model of 4 MB and four neighbours a peer needs 339 MiB instead of 153.
    Returning memory costs a page fault for each page: rounds of eight such peers on two cores take 1.3 times as long.
    So ``p2pfl peer``, for devices, returns it, and ``p2pfl run`` does not.
    """
    _mallopt(MMAP_OPTION, MIN_MAPPED_BYTES)


def keep_freed_memory() -> None:
    """Keep up to 128 MiB of freed memory for the next allocation, where the C library is glibc.

    By default glibc returns the memory of a block of rows to the system when it is freed, and each page of the next
    block costs a page fault. The setting holds for the rest of the process: once it is changed, glibc cannot return to
    the thresholds that it adapts by itself.
    """
    _mallopt(TRIM_OPTION, KEPT_HEAP_BYTES)
    _mallopt(MMAP_OPTION, MAX_HEAP_ALLOCATION)


def _mallopt(option: int, value: int) -> None:
    """Set an option of glibc's ``malloc``; other C libraries do not have the function."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(option, value)


def private_memory() -> int | None:
    """Return the bytes of memory that this process shares with no other, where the system reports it (Linux)."""
    sizes = _kilobytes(Path("/proc/self/smaps_rollup"))
    return sum(size for name, size in sizes.items() if name.startswith("Private_")) if sizes else None


def peak_memory() -> int | None:
    """Return the bytes of the largest resident memory that this process had, where the system reports it (Linux)."""
    return _kilobytes(Path("/proc/self/status")).get("VmHWM")


def resident_memory() -> int:
    """Return the bytes of memory that this process holds; 0 where the system does not report it (other than Linux)."""
    return _kilobytes(Path("/proc/self/status")).get("VmRSS", 0)


class FreeMemory(NamedTuple):
    """Memory that a process can still take.

    Attributes
    ----------
    bytes
        Number of bytes.
    limit
        What ends it: the ``machine``, a ``control group``, or the address space of the ``process`` (``ulimit -v``).
    """

    bytes: int
    limit: Literal["machine", "control group", "process"]


def free_memory(groups: Path = GROUP_FOLDER) -> FreeMemory | None:
    """Return the memory that this process can still take; ``None`` where the system does not report it.

    Parameters
    ----------
    groups
        Folder in which control groups are mounted.
    """
    machine = _kilobytes(Path("/proc/meminfo"))
    if "MemAvailable" not in machine:
        return None
    import resource  # noqa: PLC0415 (Windows has none)

    limits = [FreeMemory(machine["MemAvailable"] + machine.get("SwapFree", 0), "machine")]
    limits += [FreeMemory(free, "control group") for free in _free_in_groups(groups)]
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        used = _kilobytes(Path("/proc/self/status")).get("VmSize", 0)
        limits.append(FreeMemory(max(0, limit - used), "process"))
    return min(limits)


def _free_in_groups(groups: Path) -> list[int]:
    """Return the bytes that are left under the limit of each control group of this process."""
    left = []
    for folder in _own_groups("memory", groups):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            with contextlib.suppress(OSError, ValueError):  # there is no file, or it says "max"
                most, taken = (int((folder / name).read_text("ascii")) for name in (limit, used))
                cached = 0
                with contextlib.suppress(OSError):  # files in memory give way
                    lines = (folder / "memory.stat").read_text("ascii").splitlines()
                    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
                left.append(max(0, most - taken + cached))
    return left


def _kilobytes(file: Path) -> dict[str, int]:
    """Return the numbers of a file of the system that has lines such as ``VmRSS: 12 kB``, in bytes."""
    try:
        lines = file.read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {each[0].rstrip(":"): int(each[1]) * 1024 for each in words if len(each) == 3 and each[2] == "kB"}
