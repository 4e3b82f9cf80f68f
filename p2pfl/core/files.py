"""Atomic files, which are written as a whole or not at all."""

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Protocol

from p2pfl.core.errors import InputError, StorageError

MAX_WRITERS = 4
"""Files that are synced at a time: the disk takes several in hardly more time than one."""


OWNER_ONLY = 0o600
"""Mode of files with secrets, or with exact statistics of private data, which only their owner may read."""


class Disk(Protocol):
    """Interface of a disk; each method may raise ``OSError``."""

    def read(self, path: Path) -> bytes:
        """Return the contents of a file."""

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync its contents; its name is durable once its folder is synced."""

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Append to a file, and make it if there is none; a loss of power may take the end."""

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file, and replace any file of the new name."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""

    def sync(self, path: Path) -> None:
        """Make the names in a folder durable, where folders can be synced, or the contents of a file."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none if there is no folder."""


class Drive:
    """Disk of this device."""

    def read(self, path: Path) -> bytes:
        """Return the contents of a file."""
        return path.read_bytes()

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file and sync its contents."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Append to a file, and make it if there is none."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode), "wb") as file:
            file.write(data)

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file."""
        path.replace(to)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        """Make the names in a folder durable, where folders can be synced, or the contents of a file."""
        if os.name != "posix":
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none if there is no folder."""
        with contextlib.suppress(FileNotFoundError):
            return [path.name for path in folder.iterdir()]
        return []


class CountingDrive(Drive):
    """Disk of this device that counts what is written, as flash wears out by it.

    Attributes
    ----------
    written
        Bytes of all files, without what the file system adds.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> disk = CountingDrive()
    >>> with TemporaryDirectory() as folder:
    ...     for data in (b"123", b"45"):
    ...         replace(Path(folder) / "a", data, disk=disk)
    >>> disk.written
    5
    """

    def __init__(self) -> None:
        self.written = 0
        self._lock = Lock()

    def write(self, path: Path, data: bytes, *, mode: int) -> None:
        """Write a new file, sync its contents, and count them."""
        super().write(path, data, mode=mode)
        self._count(data)

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Append to a file, and count it."""
        super().append(path, data, mode=mode)
        self._count(data)

    def _count(self, data: bytes) -> None:
        with self._lock:
            self.written += len(data)


DRIVE = Drive()


def read_bounded(path: Path, *, largest: int) -> bytes:
    """Return the contents of a file that somebody else has written.

    Parameters
    ----------
    path
        Path of the file.
    largest
        Most bytes that it may have.

    Raises
    ------
    InputError
        It cannot be read, or has more.
    """
    try:
        size = path.stat().st_size
        if size <= largest:
            return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from None
    raise InputError(f"{path} has {size:,} bytes, more than {largest:,}; ask for the right file")


def replace(path: Path, data: bytes, *, former: Path | None = None, mode: int = 0o666, disk: Disk = DRIVE) -> None:
    """Replace a file atomically; a reader finds the old or the new contents, even after a power failure.

    Parameters
    ----------
    path
        Path of the file.
    data
        New contents.
    former
        Path that keeps the old contents; a reader that finds no file at ``path`` finds them here.
    mode
        Mode of a new file, before the umask.
    disk
        Disk of the file.

    Raises
    ------
    StorageError
        The disk is full or not writable; the old contents stay unchanged.
    """
    _exchange(path, data, _temporary_path(path), former=former, mode=mode, disk=disk)
    _sync(path.parent, disk)


def create(path: Path, data: bytes, *, mode: int = 0o666, disk: Disk = DRIVE) -> None:
    """Write a new file, and never over another one.

    Parameters
    ----------
    path, data
        Path of the file, and its contents.
    mode
        Its mode, before the umask.
    disk
        Disk of the file.

    Raises
    ------
    InputError
        A file of that name exists.
    StorageError
        The disk is full or not writable; no partial file remains.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     create(Path(folder) / "a", b"1")
    ...     (Path(folder) / "a").read_bytes()
    b'1'
    """
    try:
        disk.write(path, data, mode=mode)
    except FileExistsError:
        raise InputError(f"{path} exists already; choose another name") from None
    except OSError as error:
        with contextlib.suppress(OSError):  # there is none if its folder is
            disk.remove(path)
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
    _sync(path.parent, disk)


def replace_all(folder: Path, contents: Iterable[tuple[str, bytes]], *, mode: int = 0o666, disk: Disk = DRIVE) -> None:
    """Replace files of a folder, each of them atomically, and sync the folder once.

    Files are written while the contents of further ones are made.

    Parameters
    ----------
    folder
        Path of the folder.
    contents
        Names of files and their new contents.
    mode
        Mode of new files, before the umask.
    disk
        Disk of the files.

    Raises
    ------
    StorageError
        The disk is full or not writable; each file has its old or its new contents.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     replace_all(Path(folder), [("a", b"1"), ("b", b"2")])
    ...     sorted((path.name, path.read_bytes()) for path in Path(folder).iterdir())
    [('a', b'1'), ('b', b'2')]
    """

    def write(name: str, content: bytes) -> None:
        path = folder / name
        _exchange(path, content, _part(path), mode=mode, disk=disk)

    with ThreadPoolExecutor(MAX_WRITERS) as pool:
        for written in [pool.submit(write, *each) for each in contents]:
            written.result()
    _sync(folder, disk)


def _exchange(path: Path, data: bytes, temporary: Path, *, former: Path | None = None, mode: int, disk: Disk) -> None:
    """Write new contents beside a file, and put them in its place."""
    try:
        disk.remove(temporary)  # it may have another mode
        disk.write(temporary, data, mode=mode)
        if former is not None:
            with contextlib.suppress(FileNotFoundError):  # there is no earlier file
                disk.rename(path, former)
        disk.rename(temporary, path)
    except OSError as error:
        disk.remove(temporary)
        raise StorageError(
            f"{path} cannot be written ({error.strerror}), and its old contents are unchanged; free some space"
        ) from None


def _sync(folder: Path, disk: Disk) -> None:
    """Make the names in a folder durable."""
    try:
        disk.sync(folder)
    except OSError as error:
        raise StorageError(
            f"new files in {folder} may not survive a loss of power ({error.strerror}); check the disk"
        ) from None


def _part(path: Path) -> Path:
    """Return the path to write first."""
    return path.with_name(f".{path.name}.part")


@lru_cache(maxsize=16)
def _temporary_path(path: Path) -> Path:
    """Return the path to write first, joined once, because each join interns a new name in a table that would grow."""
    return _part(path)
