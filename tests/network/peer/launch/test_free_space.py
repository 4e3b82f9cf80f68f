"""FreeSpace on a device: when it is short, and when it is there again."""

import shutil
from types import SimpleNamespace

import pytest

from p2pfl.network.peer.launch.free_space import COPIES, LEAST, FreeSpace, available
from p2pfl.results.notices.kinds import RoomRestored, RoomShort

MEMORY = "MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {free} kB\n"


@pytest.fixture
def device(tmp_path, monkeypatch):
    """A device whose free disk and memory a test sets."""
    state = SimpleNamespace(disk=10**9, free=500, total=1000, folder=tmp_path / "run", root=tmp_path / "root")
    (state.folder / "peers").mkdir(parents=True)
    (state.root / "proc").mkdir(parents=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=state.disk))
    room = FreeSpace("ada", state.folder, root=state.root)

    def look():
        (state.root / "proc/meminfo").write_text(MEMORY.format(total=state.total, free=state.free))
        return [*room.look()]

    state.look = look
    return state


def test_a_full_disk_is_reported_once_and_again_once_there_is_room(device):
    (device.folder / "peers" / "ada.safetensors").write_bytes(bytes(1000))
    (device.folder / "peers" / "bob.safetensors").write_bytes(bytes(9000))
    needed = COPIES * 1000 + LEAST
    assert device.look() == []
    device.disk = needed - 1
    assert device.look() == [RoomShort(peer="ada", resource="disk", free=needed - 1, needed=needed)]
    assert device.look() == []
    device.disk = needed + 1  # it may be short again in a moment
    assert device.look() == []
    device.disk = 2 * needed
    assert device.look() == [RoomRestored(peer="ada", resource="disk")]


def test_little_memory_is_reported(device):
    device.free = 99
    assert device.look() == [RoomShort(peer="ada", resource="memory", free=99 * 1024, needed=102400)]
    device.free = 200
    assert device.look() == [RoomRestored(peer="ada", resource="memory")]


def test_the_limit_of_a_container_counts(device):
    group = device.root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("102400\n")
    (group / "memory.current").write_text("100000\n")
    [short] = device.look()
    assert (short.resource, short.free, short.needed) == ("memory", 2400, 10240)
    (group / "memory.max").write_text("max\n")
    assert [type(notice) for notice in device.look()] == [RoomRestored]


def test_a_system_that_does_not_say_has_no_alert(device):
    assert available(device.root) is None
    shutil.rmtree(device.folder)
    assert device.look() == []
