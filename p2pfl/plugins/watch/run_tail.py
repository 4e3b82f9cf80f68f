"""The files of a run as they grow: each complete line once, and a new start where a file is replaced."""

from __future__ import annotations

import functools
import operator
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.results.notices.kinds import kinds
from p2pfl.results.records import Record
from p2pfl.results.run_files import check_schema, restore
from p2pfl.results.swarm.state import Entry

CHUNK_BYTES = 4 * 2**20
"""Largest number of bytes of a file that are read at once; a longer line is skipped."""

NOTICE_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(functools.reduce(operator.or_, kinds().values()))
"""Decoder of a line of ``events.jsonl``."""

RECORD_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Record)
"""Decoder of a line of ``metrics.jsonl``."""


@dataclass(frozen=True)
class News:
    """Changes that one look at the files of a run found.

    Attributes
    ----------
    entries
        Records and notices that are new.
    reset
        True if a file was replaced, so that the entries are all since the beginning.
    """

    entries: list[Entry]
    reset: bool = False


class Tail:
    """Complete lines at the end of a file that grows.

    Parameters
    ----------
    path
        The file; it may not exist yet.

    Attributes
    ----------
    replaced
        True if another file has taken the place of the one that was read before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replaced = False
        self._file: BinaryIO | None = None
        self._offset = 0
        self._long = False

    def read(self) -> tuple[list[bytes], bool]:
        """Return the complete lines that are new, and whether there may be more.

        A line without its end is left for the next time: its writer may still write it, or take it back. A line that is
        too long is an empty one.
        """
        self._open()
        if self._file is None:
            return [], False
        self._file.seek(self._offset)
        data = self._file.read(CHUNK_BYTES)
        full = len(data) == CHUNK_BYTES
        if self._long:
            ended = self._skip(data)
            return ended, full or bool(ended)
        end = data.rfind(b"\n") + 1
        self._long = full and not end
        self._offset += end or full * CHUNK_BYTES
        return data[:end].splitlines(), full

    def rewind(self) -> None:
        """Begin again with the first line."""
        self._offset, self._long, self.replaced = 0, False, False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _skip(self, data: bytes) -> list[bytes]:
        """Skip more of a line that is too long; return an empty line in its place once it ends."""
        end = data.find(b"\n") + 1
        self._long = not end
        self._offset += end or len(data)
        return [b""] if end else []

    def _open(self) -> None:
        """Open the file, again if it was replaced or cut."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror}); check its permissions") from None
        if self._file is not None:
            mine = os.fstat(self._file.fileno())
            if (mine.st_dev, mine.st_ino) == (status.st_dev, status.st_ino) and mine.st_size >= self._offset:
                return
            self.close()
            self.rewind()
            self.replaced = True
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror}); check its permissions") from None


@dataclass
class Following:
    """Records and notices of a run directory, each once.

    Attributes
    ----------
    folder
        The run directory.
    unread
        Number of lines that are neither a record nor a notice of a known kind.
    """

    folder: Path
    unread: int = 0
    _failed: bool = False
    _tails: list[Tail] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tails = [Tail(self.folder / "events.jsonl"), Tail(self.folder / "metrics.jsonl")]

    def __enter__(self) -> Self:
        """Begin to read."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self.close()

    def read_new(self) -> News:
        """Return all that is new since the last look.

        Raises
        ------
        InputError
            A file cannot be read, or is of another version; the next look begins again.
        """
        entries, more = list[Entry](), True
        reset, self._failed = self._failed, False
        try:
            while more:
                fresh, more = self._read()
                entries += fresh
                if any(tail.replaced for tail in self._tails):
                    self._rewind()
                    entries, reset, more = [], True, True
        except InputError:
            self._rewind()
            self._failed = True
            raise
        return News(entries, reset=reset)

    def _rewind(self) -> None:
        for tail in self._tails:
            tail.rewind()
        self.unread = 0

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails:
            tail.close()

    def _read(self) -> tuple[list[Entry], bool]:
        entries, unfinished = list[Entry](), False
        for tail, decoder in zip(self._tails, (NOTICE_DECODER, RECORD_DECODER), strict=True):
            lines, more = tail.read()
            decoded = [_decode(line, decoder, tail.path) for line in lines]
            entries += [entry for entry in decoded if entry is not None]
            self.unread += decoded.count(None)
            unfinished |= more
        return entries, unfinished


def _decode(line: bytes, decoder: msgspec.json.Decoder[Any], path: Path) -> Entry | None:
    """Return the entry of a line, also with a score that is null; ``None`` of a later release, or no entry."""
    try:
        entry: Entry = decoder.decode(line)
    except msgspec.MsgspecError:
        try:
            table = msgspec.json.decode(line, type=dict[str, Any])
            check_schema(table, path)
            entry = msgspec.convert(restore(table), decoder.type)
        except msgspec.MsgspecError:
            return None
    return entry
