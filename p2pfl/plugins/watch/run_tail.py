"""The files of a run as they grow: each complete line once, and a new start where a file is replaced."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
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

MIN_BATCH = 2000
"""Entries from which a part of what is new is handed on."""

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
        """Return all that is new since the last look; raises as :meth:`batches`."""
        entries, reset = list[Entry](), False
        for news in self.batches():
            entries, reset = news.entries if news.reset else entries + news.entries, reset or news.reset
        return News(entries, reset=reset)

    def batches(self) -> Iterator[News]:
        """Yield what is new since the last look in parts, none of which is earlier than the one before.

        So a long run needs the memory of a few megabytes of its files. Entries without times come in one part.

        Raises
        ------
        InputError
            A file cannot be read, or is of another version; the next look begins again.
        """
        reset, self._failed = self._failed, False
        held, open_tails = list[Entry](), {tail: datetime.min.replace(tzinfo=UTC) for tail in self._tails}
        try:
            while open_tails:
                behind = min(open_tails, key=lambda tail: open_tails[tail])
                fresh, more = self._read(behind)
                if behind.replaced:
                    self._rewind()
                    held, reset = [], True
                    open_tails = {tail: datetime.min.replace(tzinfo=UTC) for tail in self._tails}
                    continue
                held += fresh
                times = [entry.time for entry in fresh if entry.time is not None]
                open_tails[behind] = max([open_tails[behind], *times])
                if not more:
                    del open_tails[behind]
                elif len(held) > MIN_BATCH:
                    until = min(open_tails.values())
                    ready = [entry for entry in held if entry.time is not None and entry.time <= until]
                    if ready and len(times) == len(fresh):
                        held = [entry for entry in held if entry.time is None or entry.time > until]
                        yield News(ready, reset=reset)
                        reset = False
        except InputError:
            self._rewind()
            self._failed = True
            raise
        yield News(held, reset=reset)

    def _rewind(self) -> None:
        for tail in self._tails:
            tail.rewind()
        self.unread = 0

    def close(self) -> None:
        """Close the files."""
        for tail in self._tails:
            tail.close()

    def _read(self, tail: Tail) -> tuple[list[Entry], bool]:
        """Return the entries of the next lines of a file, and whether there may be more."""
        lines, more = tail.read()
        decoder = NOTICE_DECODER if tail is self._tails[0] else RECORD_DECODER
        decoded = [_decode(line, decoder, tail.path) for line in lines]
        self.unread += decoded.count(None)
        return [entry for entry in decoded if entry is not None], more


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
