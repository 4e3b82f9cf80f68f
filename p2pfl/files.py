"""Files that are written as a whole or not at all."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from p2pfl.errors import StorageError


class Disk(Protocol):
    """What is asked of a disk; each may raise ``OSError``."""

    def read(self, path: Path) -> bytes:
        """All of a file."""

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync what is in it; its name is durable when its folder is synced."""

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name, and take it from whatever had that."""

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""

    def sync(self, folder: Path) -> None:
        """Make names durable, where folders can be synced."""


class Drive:
    """The disk of this device."""

    def read(self, path: Path) -> bytes:
        """All of a file."""
        return path.read_bytes()

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync what is in it."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, path: Path, to: Path) -> None:
        """Give a file another name."""
        path.replace(to)

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""
        path.unlink(missing_ok=True)

    def sync(self, folder: Path) -> None:
        """Make names durable, where folders can be synced."""
        if os.name != "posix":
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


DRIVE = Drive()


def replace(path: Path, data: bytes, *, former: Path | None = None, mode: int = 0o666, disk: Disk = DRIVE) -> None:
    """Write a file; a reader finds what was there before, or all of this, also after a loss of power.

    Parameters
    ----------
    path
        What to write.
    data
        All of it.
    former
        Where to keep what was there; a reader that finds nothing at ``path`` finds it here.
    mode
        Of a new file, before the umask.
    disk
        Where it lies.

    Raises
    ------
    StorageError
        If the disk is full or not writable; what was there is untouched.
    """
    temporary = _beside(path)
    try:
        disk.remove(temporary)  # of another mode, perhaps
        disk.write(temporary, data, mode=mode)
        if former is not None:
            _keep(disk, path, former)
        disk.rename(temporary, path)
        disk.sync(path.parent)
    except OSError as error:
        disk.remove(temporary)
        raise StorageError(
            f"expected to write {path}, got: {error.strerror}; what was there is untouched, free some space"
        ) from None


@lru_cache(maxsize=16)
def _beside(path: Path) -> Path:
    """Where it is written first: joined once, as each join interns its name anew in a table that would grow."""
    return path.with_name(f".{path.name}.part")


def _keep(disk: Disk, path: Path, former: Path) -> None:
    try:
        disk.rename(path, former)
    except FileNotFoundError:
        return  # it is the first
