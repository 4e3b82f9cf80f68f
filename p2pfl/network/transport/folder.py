"""Transport over a shared or synchronised folder: messages are files, and no broker runs.

Each file has one writer, is written under another name and then renamed, and never changes. So peers need no locks, and
the folder may be local, on NFS, or copied between machines by a program that delays, doubles, reorders or tears files:

- a file is read once its digest is right; names that are not ours, such as copies of conflicts, are left alone;
- messages of one publisher on one topic have numbers, and are delivered in their order;
- a channel rewrites a small file, its beat. If it stays the same for :attr:`FolderTransport.lost` seconds of a reader's
  own clock, the reader publishes the will of that channel, under a name that is the same whoever writes it. No clocks
  of two machines are compared.

In the folder of each topic lie files named ``client,session,number,clock``. The clock is that of Lamport (CACM 1978):
of the retained messages of a topic the one with the highest clock is the last.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit

from p2pfl.core.errors import BrokerError, TransportError
from p2pfl.network.transport.channel import LIMIT, Message, Payload, Will, check_filters, check_publish, matches
from p2pfl.network.transport.folder_files import (
    DRAFT,
    HEAD,
    MAX_CLOCK,
    FileName,
    TopicReader,
    encode_level,
    find_topics,
    last_retained,
    list_beats,
    list_messages,
    pack,
    read_payload,
    write_whole,
)

CLIENTS = ".clients"
"""Folder of the beats, which no topic has."""

BEAT = 5.0
"""Seconds between two beats of a channel."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
"""Seconds between two looks into the folder, while messages arrive and after a while without any."""

MAX_BEAT = 200_000
"""Longest beat in bytes: a will has at most 65,535, and its topic is encoded."""

MAX_ORDINAL = 99_999_999
"""Largest number of a session."""

ABORTED = "it was aborted"
"""End as in a crash, after which the beat stays."""

T = TypeVar("T")

_WILL = re.compile(rb"[0-9]{1,12}\n([1-9][0-9]{0,11})\n([A-Za-z0-9_.~/%-]+)\n(.*)", re.DOTALL)
_QUERY = re.compile(r"(?:delay=([0-9]{1,6}(?:\.[0-9]{1,3})?))?", re.ASCII)


class FolderTransport:
    """Transport whose broker is a folder.

    Parameters
    ----------
    root
        Folder that exists and that all peers may write to.
    delay
        Seconds within which a file that one machine writes is there for all others; 0 for one machine or NFS.
    limit
        Largest payload in bytes.
    beat
        Seconds between two beats.

    Attributes
    ----------
    lost
        Seconds without a new beat after which a channel counts as lost: three beats and twice the delay.
    kept
        Seconds for which a publisher leaves a message there.

    Examples
    --------
    >>> import tempfile
    >>> async def hello(folder):
    ...     transport = FolderTransport(Path(folder))
    ...     async with transport.join("ada") as ada, transport.join("bob") as bob:
    ...         await bob.subscribe("+/news")
    ...         await ada.publish("ada/news", b"hello")
    ...         return await anext(bob)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     asyncio.run(hello(folder))
    Message(topic='ada/news', data=b'hello', retained=False)
    """

    def __init__(self, root: Path, *, delay: float = 0.0, limit: int = LIMIT, beat: float = BEAT) -> None:
        self.root, self.delay, self.limit, self.beat = root, delay, limit, beat
        self.lost = 3 * beat + 2 * delay
        self.kept = 60.0 + 4 * delay

    def __repr__(self) -> str:
        """Return the folder."""
        return f"FolderTransport({str(self.root)!r})"

    @classmethod
    def open(cls, url: str, *, limit: int | None = None) -> FolderTransport:
        """Return the transport of a URL such as ``file:///mnt/shared/ward?delay=60``.

        Raises
        ------
        BrokerError
            It is not such a URL.

        Examples
        --------
        >>> FolderTransport.open("file:///mnt/ward?delay=60").lost
        135.0
        >>> FolderTransport.open("file://mnt/ward")
        Traceback (most recent call last):
        p2pfl.core.errors.BrokerError: 'file://mnt/ward' is not a folder; use one such as file:///mnt/shared/ward, or \
file:///mnt/shared/ward?delay=60 where files need up to 60 seconds to the other machines
        """
        parts = urlsplit(url)
        query = _QUERY.fullmatch(parts.query)
        if parts.netloc not in ("", "localhost") or len(parts.path) < 2 or parts.fragment or query is None:
            raise BrokerError(
                f"{url!r} is not a folder; use one such as file:///mnt/shared/ward, or "
                "file:///mnt/shared/ward?delay=60 where files need up to 60 seconds to the other machines"
            )
        return cls(Path(unquote(parts.path)), delay=float(query[1] or 0), limit=LIMIT if limit is None else limit)

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[FolderChannel]:
        """Open a channel under the name ``client``; an older one of that name is lost.

        Raises
        ------
        BrokerError
            The folder cannot be used.
        """
        channel = FolderChannel(self, client, will)
        try:
            await channel.open()
            yield channel
        finally:
            await channel.leave()


class Stamp(NamedTuple):
    """Size, time and number of a file, one of which changes whenever it is written anew."""

    size: int
    time: int
    inode: int


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


class FolderChannel:
    """:class:`~p2pfl.network.transport.channel.Channel` of :class:`FolderTransport`."""

    away = 0.0

    def __init__(self, transport: FolderTransport, client: str, will: Will | None) -> None:
        self.client, self.limit, self.grace = client, transport.limit, transport.beat + 2 * transport.delay
        self._will, self._transport, self._root = will, transport, transport.root
        self._now = asyncio.get_running_loop().time
        self._joined = self._now()
        self._arrived: asyncio.Queue[Message | None] = asyncio.Queue()  # None marks the end
        self._ended = ""  # the reason, once it has ended
        self._session = ""
        self._beats = 0
        self._will_clock = 1  # that of its last retained message on the topic of the will
        self._met: dict[Path, Stamp | None] = {}  # files that lay there when this channel joined
        self._filters: dict[str, None] = {}
        self._readers: dict[str, TopicReader] = {}
        self._numbers: dict[str, int] = {}  # of the last message on each topic
        self._publishing = asyncio.Lock()  # files of a topic appear in the order of their numbers
        self._looking = asyncio.Lock()
        self._expiring: deque[tuple[float, Path]] = deque()
        self._retained: dict[str, list[Path]] = {}  # own files, which the next retained message of the topic replaces
        self._others: dict[str, tuple[bytes | None, float]] = {}  # by name of a beat: its content, and since when
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """True once the channel has ended."""
        return bool(self._ended)

    async def open(self) -> None:
        """Begin a session, which ends older ones of the same client.

        Raises
        ------
        BrokerError
            The folder cannot be used.
        """
        try:
            await _finish(self._begin)
        except OSError as error:
            raise BrokerError(
                f"the folder {self._root} cannot be used ({error.strerror}); create or mount it, and let all peers "
                "write to it"
            ) from None
        self._task = asyncio.create_task(self._run())

    def _begin(self) -> None:
        if not self._root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder")
        self._root = self._root.resolve()
        clients = self._root / CLIENTS
        clients.mkdir(exist_ok=True)
        beats = list_beats(clients)
        own = [(name, session) for name, (client, session) in beats if client == encode_level(self.client)]
        ordinal = min(MAX_ORDINAL, 1 + max((int(session[:8]) for _, session in own), default=0))
        self._session = f"{ordinal:08}-{os.urandom(4).hex()}"
        self._write_beat()
        for name, _ in own:
            (clients / name).unlink(missing_ok=True)
        self._met = {path: _stamp(path) for path in self._root.rglob("*") if path.suffix in (".m", ".b", DRAFT)}

    def _sweep(self) -> None:
        """Remove what lay there as this channel joined, if it is of no more use; no clocks of machines are compared."""
        for path, stamp in self._met.items():
            name = FileName.parse(path.name)
            of_use = name is not None and name.clock and name == last_retained(list_messages(path.parent))
            if stamp is not None and stamp == _stamp(path) and not (of_use and stamp.size > HEAD):
                path.unlink(missing_ok=True)
        self._met = {}

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_publish(topic, data, limit=self.limit)
        self._check()
        async with self._publishing:
            self._check()
            await self._act(self._write, topic, pack(data), retain)
            self._check()
        self._awake.set()

    def _write(self, topic: str, content: bytes, retain: bool) -> None:  # noqa: FBT001
        folder = self._folder(topic)
        folder.mkdir(parents=True, exist_ok=True)
        number = self._numbers[topic] = self._numbers.get(topic, 0) + 1
        clock = min(MAX_CLOCK, 1 + max((name.clock for name in list_messages(folder)), default=0)) if retain else 0
        if self._will is not None and topic == self._will.topic:
            self._will_clock = max(clock, self._will_clock)
        name = FileName(self.client, self._session, number, clock)
        path = folder / str(name)
        write_whole(path, content)
        end = self._now() + self._transport.kept
        expired = [path] if not retain else self._retained.pop(topic, [])
        if retain and len(content) > HEAD:
            self._retained[topic] = [path]
        elif retain:
            expired.append(path)  # after those that it clears
        self._expiring.extend((end, each) for each in expired)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe; see :class:`~p2pfl.network.transport.channel.Channel`."""
        check_filters(filters)
        self._check()
        async with self._looking:
            await self._look()  # before, so that what is there already is delivered in its order
            self._filters = self._filters | dict.fromkeys(filters)  # a thread may go through the one before
            repeated = [topic for topic in self._readers if any(matches(each, topic) for each in filters)]
            self._deliver(await self._act(self._meet, repeated))
        self._awake.set()

    def abort(self) -> None:
        """Lose the connection as in a crash."""
        self._end(ABORTED)

    async def leave(self) -> None:
        """End with a goodbye: the will is discarded."""
        if not self._ended:
            self._end("it was left")
        if self._session and self._ended != ABORTED:
            with suppress(OSError):  # the folder is gone, and with it the beat
                await _finish(partial(self._beat_path().unlink, missing_ok=True))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def __aiter__(self) -> Self:
        """Iterate over arriving messages."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; wait for it if necessary."""
        message = await self._arrived.get()
        if message is None:
            self._arrived.put_nowait(None)  # for the next caller
            raise self._end_error()
        return message

    async def _run(self) -> None:
        """Look for messages and give signs of life until the channel ends, as it does with any error."""
        try:
            await self._attend()
        except Exception as error:
            self._end(f"of an error: {error!r}")
            raise

    async def _attend(self) -> None:
        pause, beat = SHORTEST_PAUSE, self._now() + self._transport.beat
        longest = max(LONGEST_PAUSE, self._transport.delay / 20)  # what comes so slowly need not be seen at once
        while not self._ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, max(0.0, beat - self._now()))):
                    await self._awake.wait()
            self._awake.clear()
            async with self._looking:
                arrived = await self._look()
            pause = SHORTEST_PAUSE if arrived else min(longest, 1.5 * pause)
            if self._now() >= beat and not self._ended:
                reason = await self._act(self._give_sign)
                beat = self._now() + self._transport.beat
                if reason:
                    self._end(reason)

    async def _look(self) -> int:
        """Deliver what has come; return how many messages."""
        return self._deliver(await self._act(self._read_new))

    def _deliver(self, messages: list[Message] | None) -> int:
        for message in messages or ():
            if not self._ended:
                self._arrived.put_nowait(message)
        return len(messages or ())

    async def _act(self, act: Callable[..., T], *given: object) -> T | None:
        """Return what a function returns that uses the disk, in a thread; ``None`` if that ends the channel."""
        if self._ended:
            return None
        try:
            return await _finish(act, *given)
        except OSError as error:
            self._end(f"the folder cannot be used any more ({error.strerror})")
            return None

    def _meet(self, repeated: list[str]) -> list[Message]:
        """Begin to read the topics that the filters match now; return the retained messages."""
        retained = []
        for topic, folder in self._topics():
            if topic in self._readers and topic not in repeated:
                continue
            reader = TopicReader(self._transport.delay)
            name = reader.skip(list_messages(folder))
            if topic not in self._readers:
                self._readers[topic] = reader
            payload = None if name is None else read_payload(folder / str(name), limit=self.limit)
            if name is not None and payload is None:
                reader.repeat(name)
            if payload:
                retained.append(Message(topic, payload, retained=True))
        return retained

    def _read_new(self) -> list[Message]:
        now, messages = self._now(), list[Message]()
        for topic, folder in self._topics():
            reader = self._readers.setdefault(topic, TopicReader(self._transport.delay))
            stopped = set[tuple[str, str]]()
            for name in reader.due(list_messages(folder)):
                source = name.client, name.session
                if source in stopped or reader.awaits(name, now=now):
                    stopped.add(source)
                    continue
                payload = read_payload(folder / str(name), limit=self.limit)
                if payload is None and reader.torn(name, now=now):
                    stopped.add(source)
                    continue
                reader.take(name)
                if payload is not None:
                    messages.append(Message(topic, payload, retained=False))
        return messages

    def _topics(self) -> Iterator[tuple[str, Path]]:
        """Return the topics that have messages and that a filter matches, with their folders."""
        done = set[str]()
        for pattern in self._filters:
            for topic, folder in find_topics(self._root, pattern.split("/"), ()):
                if topic not in done:
                    done.add(topic)
                    yield topic, folder

    def _give_sign(self) -> str:
        """Write a beat, look after those of others, and remove what has been there long enough.

        Returns
        -------
        str
            Reason for which this channel has ended; empty if it has not.
        """
        now, clients = self._now(), self._root / CLIENTS
        if self._met and now >= self._joined + self._transport.kept:
            self._sweep()
        while self._expiring and self._expiring[0][0] <= now:
            self._expiring.popleft()[1].unlink(missing_ok=True)
        beats = dict(list_beats(clients))
        if any(client == encode_level(self.client) and session > self._session for client, session in beats.values()):
            return "another channel joined with its name"
        if self._will is not None and self._has_will(self._will.topic, self.client, self._session):
            return f"no sign of it reached another peer for {self._transport.lost:g} seconds"
        self._write_beat()
        self._others = {name: seen for name, seen in self._others.items() if name in beats}
        for name, (client, session) in beats.items():
            content = read_payload(clients / name, limit=MAX_BEAT)
            before, since = self._others.get(name, (None, now))
            if content != before:
                self._others[name] = (content, now)
            elif content is not None and now >= since + self._transport.lost and session != self._session:
                self._publish_will(content, unquote(client), session)
                self._others[name] = (content, float("inf"))
        return ""

    def _publish_will(self, beat: bytes, client: str, session: str) -> None:
        """Publish the will of a channel that is lost, if this one has subscribed to it and nobody else was faster."""
        parts = _WILL.fullmatch(beat)
        if parts is None:  # whoever may write to the folder can write anything
            return
        clock, topic, data = int(parts[1]), unquote(parts[2].decode()), parts[3]
        if not any(matches(each, topic) for each in self._filters):
            return
        try:
            folder = self._folder(topic)
            check_publish(topic, data, limit=self.limit)
        except TransportError:
            return
        others = [name for name in list_messages(folder) if name.session != session]
        if not self._has_will(topic, client, session) and all(name.clock <= clock for name in others):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / str(FileName(client, session, 0, clock)), pack(data))

    def _has_will(self, topic: str, client: str, session: str) -> bool:
        names = list_messages(self._folder(topic))
        return any((each.client, each.session, each.number) == (client, session, 0) for each in names)

    def _write_beat(self) -> None:
        self._beats += 1
        topic, data = ("", b"") if self._will is None else (quote(self._will.topic), self._will.data)
        content = b"%d\n%d\n%s\n%s" % (self._beats, self._will_clock, topic.encode(), data)
        write_whole(self._beat_path(), pack(content))

    def _beat_path(self) -> Path:
        return self._root / CLIENTS / f"{encode_level(self.client)},{self._session}.b"

    def _folder(self, topic: str) -> Path:
        return self._root.joinpath(*map(encode_level, topic.split("/")))

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = reason
            self._awake.set()
            self._arrived.put_nowait(None)

    def _check(self) -> None:
        if self._ended:
            raise self._end_error()

    def _end_error(self) -> TransportError:
        return TransportError(f"channel {self.client} is closed because {self._ended}; join again")


async def _finish(act: Callable[..., T], *given: object) -> T:
    """Return what a function returns that runs in a thread, which nobody leaves before its end."""
    acting = asyncio.ensure_future(asyncio.to_thread(act, *given))
    try:
        return await asyncio.shield(acting)
    except asyncio.CancelledError:
        while not acting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([acting])
        raise
