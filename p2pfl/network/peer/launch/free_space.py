"""FreeSpace that is left on a device: disk for checkpoints, and memory."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from p2pfl.results.notices.kinds import Notice, Resource, RoomRestored, RoomShort

EVERY = 10.0
"""Seconds between two looks."""

COPIES = 5
"""Number of copies of the largest file of a peer that the disk should have room for."""

LEAST = 2**20
"""Bytes that the disk should have in any case."""

SHARE = 0.1
"""Share of the memory that should be available."""

AGAIN = 1.5
"""Ratio of what is free to what is needed from which there is room again."""


class FreeSpace:
    """Watch of the disk and the memory, which reports when they become short or recover.

    Parameters
    ----------
    peer
        Name of the peer.
    folder
        Folder with the files of the peer.
    root
        Root of the file system; another one in tests.
    """

    def __init__(self, peer: str, folder: Path, *, root: Path = Path("/")) -> None:
        self._peer, self._folder, self._root = peer, folder, root
        self._short: set[Resource] = set()

    def look(self) -> Iterator[Notice]:
        """Yield what has changed since the last look."""
        with contextlib.suppress(OSError):  # the folder is gone, which the next checkpoint reports
            files = [each.stat().st_size for each in self._folder.glob(f"peers/{self._peer}*")]
            needed = COPIES * max(files, default=0) + LEAST
            yield from self._judged("disk", shutil.disk_usage(self._folder).free, needed)
        if (memory := available(self._root)) is not None:
            free, total = memory
            yield from self._judged("memory", free, round(SHARE * total))

    def _judged(self, resource: Resource, free: int, needed: int) -> Iterator[Notice]:
        if free < needed and resource not in self._short:
            self._short.add(resource)
            yield RoomShort(peer=self._peer, resource=resource, free=free, needed=needed)
        elif free > AGAIN * needed and resource in self._short:
            self._short.discard(resource)
            yield RoomRestored(peer=self._peer, resource=resource)


def available(root: Path) -> tuple[int, int] | None:
    """Return the available and the total bytes of memory, by the kernel and the control group; ``None`` if unknown."""
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        table = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        free, total = table["MemAvailable"], table["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return None
    group = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError, ValueError):  # there is no limit
        most, used = (int((group / f"memory.{name}").read_text("ascii")) for name in ("max", "current"))
        if most < total:
            free, total = min(free, most - used), most
    return free, total
