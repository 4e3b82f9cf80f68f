"""A peer's disk, simulated: what a crash finds on it is what had come so far, and what a loss of power finds is less.

What is done takes virtual time, one thing after the other. A process that is killed leaves all that was done, and of a
file in writing the beginning. Where the power goes with it, names that were not synced are those from some moment
since the last sync: later ones never without earlier ones, as journalling file systems keep them. A disk may be full
for a while, and may lie about its last sync of a checkpoint, which is then cut off.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from p2pfl.core.draws import draw
from p2pfl.network.virtual.clock import VirtualLoop

SYNC = 0.004
"""Seconds that a sync takes."""

RATE = 5e6
"""Bytes written in a second."""

Files = dict[Path, bytes]


@dataclass(frozen=True)
class _Deed:
    """Something done to a disk.

    Attributes
    ----------
    began, done
        When.
    change
        What it does to the files: all of it, or as much as a crash leaves.
    names
        Whether names are durable with it.
    """

    began: float
    done: float
    change: Callable[[Files, float], None]
    names: bool = False


class WorldDisk:
    """The disk of one device, which outlives its processes; see :class:`p2pfl.core.files.Disk`.

    Parameters
    ----------
    loop
        Whose time it takes.
    seed, name
        Of its draws.
    full
        From when to when nothing can be written.
    lies
        Whether the last checkpoint may be cut off when the power goes.

    Attributes
    ----------
    refused
        How often it was too full to write.
    cut
        How often a checkpoint was cut off.
    """

    def __init__(
        self, loop: VirtualLoop, *, seed: int, name: str, full: tuple[tuple[float, float], ...] = (), lies: bool = False
    ) -> None:
        self.full = full
        self.lies = lies
        self.refused = self.cut = 0
        self._loop = loop
        self._random = draw(seed, "world disk", name)
        self._files: Files = {}  # as processes see them
        self._kept: Files = {}  # as they were at the beginning of the deeds
        self._deeds: list[_Deed] = []

    def read(self, path: Path) -> bytes:
        """All of a file."""
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self._files[path]

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync what is in it."""
        del mode
        began = self._loop.spent(0.0)
        if any(start <= began < end for start, end in self.full):
            self.refused += 1
            self._do(0.0, lambda files, _: files.update({path: b""}))
            raise OSError(errno.ENOSPC, "No space left on device")

        def change(files: Files, part: float) -> None:
            files[path] = data[: int(part * len(data))]

        self._do(SYNC + len(data) / RATE, change)

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Append to a file without a sync."""
        del mode
        began = self._loop.spent(0.0)
        if any(start <= began < end for start, end in self.full):
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

        def change(files: Files, part: float) -> None:
            files[path] = files.get(path, b"") + data[: int(part * len(data))]

        self._do(len(data) / RATE, change)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name."""
        self.read(path)

        def change(files: Files, part: float) -> None:
            if part == 1.0 and path in files:
                files[to] = files.pop(path)

        self._do(SYNC / 10, change)

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""

        def change(files: Files, part: float) -> None:
            if part == 1.0:
                files.pop(path, None)

        if path in self._files:
            self._do(SYNC / 10, change)

    def sync(self, folder: Path) -> None:
        """Make names durable."""
        del folder
        self._do(SYNC, lambda _files, _part: None, names=True)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return [path.name for path in self._files if path.parent == folder]

    def crash(self, *, power: bool) -> None:
        """Lose what a process that ends now, or the power, takes with it."""
        now = self._loop.now
        deeds, safe = self._done(before=now)
        if power:
            deeds = deeds[: int(self._random.integers(safe, len(deeds) + 1))]
        for deed in deeds:
            deed.change(self._kept, min(1.0, (now - deed.began) / max(deed.done - deed.began, 1e-9)))
        self._deeds.clear()
        if power and self.lies:
            self._lie()
        self._files = dict(self._kept)

    def _lie(self) -> None:
        for path in sorted(self._kept):
            if path.suffix == ".state" and ".previous" not in path.name and self._random.random() < 0.5:
                self.cut += 1
                whole = self._kept[path]
                self._kept[path] = whole[: int(self._random.integers(len(whole)))] if whole else whole

    def _do(self, seconds: float, change: Callable[[Files, float], None], *, names: bool = False) -> None:
        began = self._loop.spent(0.0)
        change(self._files, 1.0)
        self._deeds.append(_Deed(began, self._loop.spent(seconds), change, names))
        if names:
            self._retire()

    def _retire(self) -> None:
        """What was durable long ago need not be remembered as deeds."""
        deeds, safe = self._done()
        for deed in deeds[:safe]:
            deed.change(self._kept, 1.0)
        self._deeds = deeds[safe:]

    def _done(self, *, before: float = math.inf) -> tuple[list[_Deed], int]:
        """What was begun before some time, in the order in which it is done; how much of it is durable by now."""
        deeds = sorted((deed for deed in self._deeds if deed.began < before), key=lambda deed: deed.done)
        named = (place for place, deed in enumerate(deeds, 1) if deed.names and deed.done <= self._loop.now)
        return deeds, max(named, default=0)


class Mounted:
    """A disk as one process has it: after its end nothing that it still runs reaches the disk.

    Parameters
    ----------
    disk
        Which.
    """

    def __init__(self, disk: WorldDisk) -> None:
        self._disk: WorldDisk | None = disk

    def gone(self) -> None:
        """The process has ended."""
        self._disk = None

    def _there(self) -> WorldDisk:
        if self._disk is None:
            raise OSError(errno.EIO, "the process has ended")
        return self._disk

    def read(self, path: Path) -> bytes:
        """All of a file."""
        return self._there().read(path)

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync what is in it."""
        self._there().write(path, data, mode=mode)

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Append to a file."""
        self._there().append(path, data, mode=mode)

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name."""
        self._there().rename(path, to)

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""
        if self._disk is not None:
            self._disk.remove(path)

    def sync(self, folder: Path) -> None:
        """Make names durable."""
        self._there().sync(folder)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""
        return self._there().names(folder)
