"""Settings of the running process: threads and memory."""

import ctypes
import platform
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info

from p2pfl.core import process
from waiting import DEADLINE


@pytest.fixture
def _two_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    process.set_threads(2)
    yield
    process.set_threads(before)  # the environment is restored by pytest


@pytest.mark.usefixtures("_two_threads")
def test_inside_one_thread_torch_uses_one_and_afterwards_as_many_as_before():
    with process.one_thread():
        assert torch.get_num_threads() == 1
        with process.one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("_two_threads")
def test_the_number_of_threads_is_restored_after_an_exception():
    with pytest.raises(KeyError), process.one_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


def threads_of_numpy():
    return {each["num_threads"] for each in threadpool_info() if "numpy" in each["filepath"]}


@pytest.mark.usefixtures("_two_threads")
def test_products_of_numpy_take_one_thread_as_those_of_torch_do():
    assert threads_of_numpy() == {2}
    with process.one_thread():
        assert threads_of_numpy() == {1}
    assert threads_of_numpy() == {2}
    process.set_threads(1)
    assert threads_of_numpy() == {1}
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("setting", [process.one_heap, process.return_freed_memory, process.keep_freed_memory])
@pytest.mark.parametrize("library", [object(), None], ids=["without mallopt", "that cannot be opened"])
def test_a_memory_setting_does_nothing_where_the_c_library_has_none(setting, library, monkeypatch):
    def opened(name):
        assert name is None
        if library is None:
            raise OSError
        return library

    monkeypatch.setattr(ctypes, "CDLL", opened)
    setting()


def printed(code, setting):
    """Return the number that a program prints under a setting of memory."""
    command = [sys.executable, "-c", code.format(setting=setting)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


CHURN = """
import ctypes
import torch
from p2pfl.core.process import keep_freed_memory

class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]

{setting}
torch.ones(2**22)  # 16 MiB
for page in range(1, 41):
    torch.ones(2**22 + page * 1024)  # larger than any before, which glibc takes from the system by default
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Figures
print(mallinfo().fordblks)  # bytes that are freed and not returned
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or [*map(int, platform.libc_ver()[1].split("."))] < [2, 33],
    reason="only glibc has these thresholds, and since 2.33 these figures",
)
def test_memory_that_is_freed_and_needed_again_is_not_returned_to_the_system_in_between():
    assert printed(CHURN, "") < 2**24 < printed(CHURN, "keep_freed_memory()")


HOLES = """
import torch
from p2pfl.core.process import return_freed_memory, private_memory

{setting}
torch.ones(2**22)  # 16 MiB: from now on glibc takes such blocks from the heap by default
models, kept = [], [torch.ones(2**13) for _ in range(1000)]  # imports leave holes, where small blocks would go
for _ in range(50):
    models.append(torch.ones(2**20))  # 4 MiB
    kept.append(torch.ones(2**13))  # outlives it
models.clear()
print(private_memory())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these thresholds")
def test_small_blocks_do_not_keep_freed_models_in_memory():
    assert printed(HOLES, "return_freed_memory()") < printed(HOLES, "") - 2**26


def test_spread_does_each_item_once_in_order_of_the_queue():
    done, lock = [], threading.Lock()

    def work(_number, item):
        with lock:
            done.append(item)

    process.spread(work, range(50), workers=1)
    assert done == list(range(50))
    process.spread(work, range(50), workers=4)
    assert sorted(done) == sorted([*range(50), *range(50)])


def test_workers_at_the_same_time_have_different_numbers_and_one_intra_op_thread():
    meet = threading.Barrier(3)
    found = []

    def work(number, _item):
        meet.wait(DEADLINE)
        found.append((number, torch.get_num_threads()))

    process.spread(work, range(3), workers=3)
    assert sorted(found) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("culprit", [0, 1], ids=["the calling thread", "another thread"])
def test_an_error_in_a_thread_ends_the_others_and_is_raised(culprit, monkeypatch):
    meet, cleared = threading.Barrier(2), threading.Event()
    done = []

    class Items(deque):
        """Say when nothing is left to do."""

        def clear(self):
            super().clear()
            cleared.set()

    def work(number, item):
        meet.wait(DEADLINE)  # one item each
        if number == culprit:
            raise KeyError(number)
        assert cleared.wait(DEADLINE)
        done.append(item)

    monkeypatch.setattr(process, "deque", Items)
    with pytest.raises(KeyError):
        process.spread(work, range(10_000), workers=2)
    assert len(done) == 1
    process.spread(lambda _number, item: done.append(-item), range(1, 5), workers=2)
    assert {-1, -2, -3, -4} < set(done)


@pytest.mark.usefixtures("_two_threads")
def test_one_item_keeps_the_intra_op_threads_of_the_caller():
    found = []
    process.spread(lambda number, _item: found.append((number, torch.get_num_threads())), range(1), workers=8)
    assert found == [(0, 2)]


@pytest.mark.parametrize("items", [1, 6])
def test_workers_have_as_many_intra_op_threads_as_they_are_given(items):
    before, seen = torch.get_num_threads(), []
    with process.one_thread():
        process.spread(lambda *_: seen.append(torch.get_num_threads()), range(items), workers=2, inner=3)
        process.spread(lambda *_: seen.append(torch.get_num_threads()), range(items), workers=2)
    assert seen == [3] * items + [1] * items
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("_two_threads")
def test_a_process_that_is_given_some_threads_counts_as_many_cores(monkeypatch):
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert process.cores(groups=Path("/nowhere")) == 2


def test_work_that_spreads_work_in_turn_does_it_in_its_own_thread():
    found = []

    def outer(_number, item):
        before = threading.get_ident()
        process.spread(
            lambda number, inner: found.append((item, inner, number, threading.get_ident() == before)),
            range(3),
            workers=4,
        )

    process.spread(outer, range(20), workers=4)
    assert sorted(found) == [(item, inner, 0, True) for item in range(20) for inner in range(3)]


def test_a_forked_process_has_threads_of_its_own():
    assert process._pool(1, 2) is process._pool(1, 2)
    assert process._pool(1, 2) is not process._pool(2, 2)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a folder of control groups without limits, for a process with eight cores."""
    monkeypatch.setattr(process.os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return tmp_path


def test_cores_are_those_of_the_affinity_without_a_limit(groups):
    assert process.cores(groups) == 8


@pytest.mark.parametrize(("wanted", "found"), [("2", 2), ("1", 1), ("0", 8), ("many", 8), ("", 8), ("64", 8)])
def test_the_environment_bounds_the_cores(groups, monkeypatch, wanted, found):
    monkeypatch.setenv("OMP_NUM_THREADS", wanted)
    assert process.cores(groups) == found


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
@pytest.mark.parametrize(
    ("own", "files", "found"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("2:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_the_quota_of_a_control_group_bounds_the_cores(groups, monkeypatch, own, files, found):
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *how: own if path == Path("/proc/self/cgroup") else read(path, *how)
    )
    assert process.cores(groups) == found
