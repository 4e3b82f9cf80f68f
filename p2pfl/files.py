"""Files that are written as a whole or not at all."""

import os
from pathlib import Path

from p2pfl.errors import StorageError


def replace(path: Path, data: bytes, *, former: Path | None = None, mode: int = 0o666) -> None:
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

    Raises
    ------
    StorageError
        If the disk is full or not writable; what was there is untouched.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)  # of another mode, perhaps
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if former is not None and path.exists():
            path.replace(former)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(
            f"expected to write {path}, got: {error.strerror}; what was there is untouched, free some space"
        ) from None


def _sync(folder: Path) -> None:
    """Make names durable, where folders can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
