"""A simulated disk: what a crash leaves is what a later life could find on a real one."""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pfl.core.errors import StorageError
from p2pfl.core.files import Drive, replace, replace_all
from p2pfl.network.virtual.clock import VirtualLoop
from worlds.disk import Mounted, WorldDisk

OLD, NEW = b"old" * 10_000, b"new" * 10_000
FILE, FORMER = Path("peers/ada.state"), Path("peers/ada.previous.state")


def crashed(after, *, power, seed=0, lies=False):
    """A disk on which a file was replaced, the process ending so many seconds after that began."""
    loop = VirtualLoop()
    disk = WorldDisk(loop, seed=seed, name="ada", lies=lies)

    async def write(data):
        await asyncio.to_thread(lambda: replace(FILE, data, former=FORMER, disk=disk))

    async def main():
        await write(OLD)
        writing = asyncio.create_task(write(NEW))
        await asyncio.sleep(after)
        disk.crash(power=power)
        await writing

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    return disk


@pytest.fixture
def loop():
    """A loop that nothing runs on."""
    made = VirtualLoop()
    yield made
    made.close()


def found(disk, path):
    try:
        return disk.read(path)
    except FileNotFoundError:
        return None


@given(after=st.floats(0.0, 0.03), power=st.booleans(), seed=st.integers(0, 9))
def test_a_replaced_file_is_the_old_or_the_new_one_whenever_a_crash_comes(after, power, seed):
    disk = crashed(after, power=power, seed=seed)
    assert (found(disk, FILE), found(disk, FORMER)) in [(OLD, None), (None, OLD), (NEW, OLD)]


def test_what_was_synced_is_there_after_a_loss_of_power():
    disk = crashed(1.0, power=True)
    assert (found(disk, FILE), found(disk, FORMER)) == (NEW, OLD)


def test_a_name_that_was_not_synced_may_be_lost_with_the_power_and_only_then():
    moment = 0.0125  # both renames are done, and the folder is in syncing
    assert {found(crashed(moment, power=True, seed=seed), FILE) for seed in range(30)} > {NEW, OLD}
    assert {found(crashed(moment, power=False, seed=seed), FILE) for seed in range(30)} == {NEW}


def test_a_disk_that_lies_cuts_checkpoints_off():
    disks = [crashed(1.0, power=True, seed=seed, lies=True) for seed in range(20)]
    assert {disk.cut for disk in disks} == {0, 1}
    assert all(NEW.startswith(found(disk, FILE)) and found(disk, FORMER) == OLD for disk in disks)


def test_a_full_disk_refuses_and_keeps_what_it_has(loop):
    disk = WorldDisk(loop, seed=0, name="ada", full=((1.0, 2.0),))
    replace(FILE, OLD, disk=disk)
    loop.now = 1.5
    with pytest.raises(StorageError, match="No space left"):
        replace(FILE, NEW, disk=disk)
    assert disk.read(FILE) == OLD
    assert disk.refused == 1
    loop.now = 2.5
    replace(FILE, NEW, disk=disk)
    assert disk.read(FILE) == NEW


def test_a_process_that_has_ended_writes_nothing_any_more(loop):
    disk = WorldDisk(loop, seed=0, name="ada")
    mounted = Mounted(disk)
    replace(FILE, OLD, disk=mounted)
    mounted.gone()
    with pytest.raises(StorageError, match="the process has ended"):
        replace(FILE, NEW, disk=mounted)
    assert disk.read(FILE) == OLD


class FullDisk(Drive):
    """A disk on which files of one name cannot be written."""

    def write(self, path, data, *, mode):
        if "bob" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(path, data, mode=mode)


def test_replacing_several_files_leaves_each_old_or_new_and_names_one_that_failed(tmp_path):
    names = ["ada", "bob", "cy"]
    replace_all(tmp_path, [(name, OLD) for name in names])
    with pytest.raises(StorageError, match=r"bob cannot be written \(No space left on device\)"):
        replace_all(tmp_path, [(name, NEW) for name in names], disk=FullDisk())
    assert [(tmp_path / name).read_bytes() for name in names] == [NEW, OLD, NEW]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
