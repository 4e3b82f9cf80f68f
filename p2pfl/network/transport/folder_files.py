"""Files of :mod:`p2pfl.network.transport.folder`: their names, their contents, and what lies in which folder."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from p2pfl.core.errors import TransportError
from p2pfl.network.transport.channel import Payload

MAGIC = b"p2f1"
"""First bytes of a file; its digest and the payload follow."""

HEAD = len(MAGIC) + 32
"""Bytes before the payload."""

MAX_NAME = 200
"""Longest encoded name of a client or of one level of a topic, in characters."""

WILL = "w"
"""Text in place of a number in the name of a will."""

DRAFT = ".draft"
"""Ending of a file that is being written."""

MAX_CLOCK = 10**12
"""Largest clock; whoever may write to the folder could name any."""

CACHED_NAMES = 4096
"""Names whose parts are kept, as a channel reads the names of all files again at each look."""

GAP, TORN = 0.5, 1.0
"""Seconds to wait for a missing file, and for the rest of one, beside twice the delay."""


class FileName(NamedTuple):
    """Name of the file of a message.

    Attributes
    ----------
    client
        Publisher.
    session
        Its session, a number that grows with each and a random text; sessions sort by age.
    number
        Number of the message among those of the session on this topic, from 1; 0 for the will.
    clock
        Lamport's clock of a retained message; 0 for others.

    Examples
    --------
    >>> str(FileName("Ada", "00000001-6f2c", 3, 0))
    '%41da,00000001-6f2c,3,0.m'
    >>> FileName.parse("%41da,00000001-6f2c,w,7.m")
    FileName(client='Ada', session='00000001-6f2c', number=0, clock=7)
    >>> FileName.parse("%41da,00000001-6f2c,3,0 (conflicted copy).m") is None
    True
    """

    client: str
    session: str
    number: int
    clock: int

    def __str__(self) -> str:
        """Return the name."""
        return f"{encode_level(self.client)},{self.session},{self.number or WILL},{self.clock}.m"

    @classmethod
    @functools.lru_cache(maxsize=CACHED_NAMES)
    def parse(cls, name: str) -> FileName | None:
        """Return the parts of a name, or ``None`` if it is not one of ours."""
        parts = _NAME.fullmatch(name)
        if parts is None:
            return None
        client, session, number, clock = parts.groups()
        made = cls(unquote(client), session, 0 if number == WILL else int(number), int(clock))
        return made if made.clock <= MAX_CLOCK and is_encoded(client) else None


_SESSION = r"[0-9]{8}-[0-9a-f]{4,32}"
_NAME = re.compile(
    rf"([a-z0-9_%-]+|%[0-9A-F%a-z0-9_-]*),({_SESSION}),([1-9][0-9]{{0,17}}|w),([0-9]{{1,18}})\.m", re.ASCII
)
_BEAT = re.compile(rf"([a-zA-Z0-9_%-]+),({_SESSION})\.b", re.ASCII)


def encode_level(level: str) -> str:
    """Return one level of a topic as the name of a folder on any file system, also where case does not count.

    Examples
    --------
    >>> encode_level("ward-3"), encode_level("Ada"), encode_level(".."), encode_level("")
    ('ward-3', '%41da', '%2E%2E', '%')

    Raises
    ------
    TransportError
        It is too long for a file name.
    """
    kept = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
    name = "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in level.encode()) or "%"
    if len(name) > MAX_NAME:
        raise TransportError(f"{level[:40]!r}... is too long for the name of a file; shorten the name of the peer")
    return name


def decode_level(name: str) -> str:
    """Return the level that a folder stands for.

    Examples
    --------
    >>> decode_level("%41da"), decode_level("%")
    ('Ada', '')
    """
    return "" if name == "%" else unquote(name)


@functools.lru_cache(maxsize=CACHED_NAMES)
def is_encoded(name: str) -> bool:
    """Return whether a name is that of a level; others may lie in the folder, too.

    Examples
    --------
    >>> is_encoded("%41da"), is_encoded("%61da"), is_encoded("Ada")
    (True, False, False)
    """
    try:
        return encode_level(decode_level(name)) == name
    except TransportError:
        return False


def pack(payload: Payload) -> bytes:
    """Return the contents of a file.

    Examples
    --------
    >>> unpack(pack(b"hello")), unpack(pack(b"hello")[:-1]), unpack(b"")
    (b'hello', None, None)
    """
    data = bytes(payload)
    return MAGIC + hashlib.sha256(data).digest() + data


def unpack(content: bytes) -> bytes | None:
    """Return the payload, or ``None`` if the file is not whole."""
    data = content[HEAD:]
    whole = content[: len(MAGIC)] == MAGIC and hashlib.sha256(data).digest() == content[len(MAGIC) : HEAD]
    return data if whole else None


@dataclass
class TopicReader:
    """Order in which a channel delivers the files of one topic.

    Parameters
    ----------
    delay
        Seconds that a file may need to appear; what is missing or torn is given up after twice as long.
    """

    delay: float
    _next: dict[tuple[str, str], int] = field(default_factory=dict)  # number that each session publishes next
    _wills: set[FileName] = field(default_factory=set)
    _waits: dict[tuple[str, str], float] = field(default_factory=dict)  # since when a session's next file is missing

    def skip(self, names: Iterable[FileName]) -> FileName | None:
        """Take the files that lie there as published before; return the last retained one."""
        listed = [*names]
        for name in listed:
            source = name.client, name.session
            if name.number:
                self._next[source] = max(self._next.get(source, 1), name.number + 1)
            else:
                self._wills.add(name)
        return last_retained(listed)

    def repeat(self, name: FileName) -> None:
        """Deliver a file after all that :meth:`skip` took and that is not whole yet."""
        if name.number:
            self._next[name.client, name.session] = name.number
        else:
            self._wills.discard(name)

    def due(self, names: Iterable[FileName]) -> list[FileName]:
        """Return the files that may be delivered now, if they are whole, in this order."""
        listed = [*names]
        present = {(name.client, name.session) for name in listed}
        for source in [source for source in self._waits if source not in present]:
            del self._waits[source]
        self._wills &= {*listed}
        fresh = [name for name in listed if name.number >= self._next.get((name.client, name.session), 1)]
        wills = [name for name in listed if not name.number and name not in self._wills]
        return sorted(fresh, key=lambda name: (name.client, name.session, name.number)) + wills

    def awaits(self, name: FileName, *, now: float) -> bool:
        """Return whether an earlier message of the same session is still to come."""
        source = name.client, name.session
        if not name.number or name.number == self._next.get(source, 1):
            return False
        return now < self._waits.setdefault(source, now) + 2 * self.delay + GAP

    def torn(self, name: FileName, *, now: float) -> bool:
        """Return whether to wait for the rest of a file that is not whole."""
        return now < self._waits.setdefault((name.client, name.session), now) + 2 * self.delay + TORN

    def take(self, name: FileName) -> None:
        """Take a file as delivered, or as given up."""
        source = name.client, name.session
        self._waits.pop(source, None)
        if name.number:
            self._next[source] = name.number + 1
        else:
            self._wills.add(name)


def last_retained(names: Iterable[FileName]) -> FileName | None:
    """Return the retained message that a late subscriber receives, if there is one."""
    return max((name for name in names if name.clock), key=_order, default=None)


def _order(name: FileName) -> tuple[int, str, int]:
    """Return what decides which of two retained messages is the later one; a will comes after its session's."""
    return name.clock, name.session, name.number or MAX_CLOCK


def find_topics(folder: Path, levels: list[str], above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Return the topics below a folder that match the levels of a filter."""
    if not levels or levels == ["#"]:
        if above:
            yield "/".join(above), folder
        if not levels:
            return
    level, *rest = levels
    wild = level in ("+", "#")
    for child in _list_folders(folder) if wild else [folder / encode_level(level)]:
        if not is_encoded(child.name):
            continue
        name = decode_level(child.name)
        if child.is_dir() and not (wild and not above and name.startswith("$")):
            yield from find_topics(child, levels if level == "#" else rest, (*above, name))


def _list_folders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(Path(each.path) for each in entries if each.is_dir(follow_symlinks=False))


def list_messages(folder: Path) -> list[FileName]:
    """Return the names of the messages in a folder, if it exists."""
    try:
        with os.scandir(folder) as entries:
            names = [FileName.parse(each.name) for each in entries]
    except FileNotFoundError:
        return []
    return [name for name in names if name is not None]


def list_beats(folder: Path) -> list[tuple[str, tuple[str, str]]]:
    """Return the name of each beat, with the encoded client and the session that it names."""
    with os.scandir(folder) as entries:
        beats = [_BEAT.fullmatch(each.name) for each in entries]
    return [(parts[0], (parts[1], parts[2])) for parts in beats if parts is not None]


def read_payload(path: Path, *, limit: int) -> bytes | None:
    """Return the payload of a file, or ``None`` if it is gone, too long or not whole.

    Whoever may write to the folder may also put there a link, a pipe or a file that is not readable.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EACCES, errno.ENXIO):
            return None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with os.fdopen(file, "rb") as opened:
        content = opened.read(HEAD + limit + 1)
    return unpack(content) if len(content) <= HEAD + limit else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that has its name once it is whole, and not through links.

    Raises
    ------
    OSError
        It cannot be written, or its folder is a link.
    """
    if path.parent.resolve() != path.parent:
        raise OSError(errno.ELOOP, f"{path.parent} is a link")
    draft = path.with_name(f".{os.urandom(8).hex()}{DRAFT}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
    draft.replace(path)
