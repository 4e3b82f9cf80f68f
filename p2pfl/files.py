"""Files that are written as a whole or not at all."""

import os
from pathlib import Path

from p2pfl.errors import StorageError


def replace(path: Path, data: bytes) -> None:
    """Write a file; a reader finds what was there before, or all of this, also after a loss of power.

    Raises
    ------
    StorageError
        If the disk is full or not writable; what was there is untouched.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(
            f"expected to write {path}, got: {error.strerror}; what was there is untouched, free some space"
        ) from None
