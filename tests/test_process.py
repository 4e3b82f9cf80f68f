"""Settings of the running process: threads and memory."""

import ctypes
import platform
import subprocess
import sys

import pytest
import torch

from p2pfl import process


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


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


@pytest.mark.parametrize("setting", [process.one_heap, process.keep_freed_memory])
@pytest.mark.parametrize("library", [object(), None], ids=["without mallopt", "that cannot be opened"])
def test_a_memory_setting_does_nothing_where_the_c_library_has_none(setting, library, monkeypatch):
    def opened(name):
        assert name is None
        if library is None:
            raise OSError
        return library

    monkeypatch.setattr(ctypes, "CDLL", opened)
    setting()


CHURN = """
import resource
import torch
from p2pfl.process import keep_freed_memory

{setting}
torch.ones(2**22)  # 16 MiB
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for page in range(1, 41):
    torch.ones(2**22 + page * 1024)  # larger than any before, which glibc takes from the system by default
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these thresholds")
def test_memory_that_is_freed_and_needed_again_is_not_returned_to_the_system_in_between():
    def faults(setting):
        code = CHURN.format(setting=setting)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert 4 * faults("keep_freed_memory()") < faults("")
