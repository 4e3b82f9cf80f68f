"""What a live peer hears and draws, written down for ``scripts/worlds --replay``, which plays it again.

A line of JSON each: who it is and what it runs, the secrets that it drew, when it joined, what came and when, when
each round ended, and a checksum of its last row. Whoever can read it can read whatever the peer's neighbours told it,
so it is for the owner of the peer alone, as its key is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Self

import msgspec
import torch

from p2pfl.errors import StorageError
from p2pfl.experiment import write
from p2pfl.identity import Roster, Source, Trust
from p2pfl.peer.peer import Peer
from p2pfl.report import Record
from p2pfl.rows import Rows, raw
from p2pfl.transport import Channel, Transport, Will
from p2pfl.transport.channel import Message, Payload


class About(msgspec.Struct, frozen=True, tag_field="is", tag="about"):
    """Who was recorded."""

    peer: str
    incarnation: int
    experiment: str  # TOML
    roster: dict[str, bytes] | None
    threads: int


class Drawn(msgspec.Struct, frozen=True, tag_field="is", tag="drawn"):
    """Secret bytes, and for what."""

    purpose: str
    peer: str
    round: int
    data: bytes


class Joined(msgspec.Struct, frozen=True, tag_field="is", tag="joined"):
    """A channel was open: when, in seconds since the beginning, and for how large payloads."""

    at: float
    limit: int


class Came(msgspec.Struct, frozen=True, tag_field="is", tag="came"):
    """A message, when it was read, and how long there had been no connection."""

    at: float
    topic: str
    data: bytes
    retained: bool
    away: float
    grace: float


class Ended(msgspec.Struct, frozen=True, tag_field="is", tag="ended"):
    """Record that a round has ended."""

    at: float
    round: int
    training: float


class Last(msgspec.Struct, frozen=True, tag_field="is", tag="last"):
    """The checksum of the last row."""

    row: str


Line = About | Drawn | Joined | Came | Ended | Last


def checksum(rows: Rows) -> str:
    """Of one row."""
    return blake2b(raw(rows[0]), digest_size=16).hexdigest()


class Recording:
    """The file of one peer's life, which nobody but its owner can read.

    Parameters
    ----------
    path
        A new file; its folder is made.

    Raises
    ------
    StorageError
        It cannot be written, or is there already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        except OSError as error:
            raise StorageError(f"expected to write {path}, got: {error.strerror}: move it away") from None

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self._loop.time() - self._begun

    def note(self, line: Line) -> None:
        """Write a line; threads may."""
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise StorageError(f"expected to write {self.path}, got: {error.strerror}: free some space") from None

    def about(self, peer: Peer, *, trust: Trust) -> None:
        """Say who is recorded."""
        roster = dict(trust.peers) if isinstance(trust, Roster) else None
        told = write(peer.plan.experiment)
        self.note(About(peer.name, peer.me.incarnation, told, roster, torch.get_num_threads()))

    def record(self, record: Record) -> None:
        """Record that a round has ended."""
        self.note(Ended(self.now, record.round, record.seconds_training))

    def end(self, rows: Rows) -> None:
        """Note the last row."""
        self.note(Last(checksum(rows)))
        self._file.close()


class RecordedSource:
    """A source of secrets that writes them down.

    Parameters
    ----------
    source
        Draws.
    recording
        Keeps.
    """

    def __init__(self, source: Source, recording: Recording) -> None:
        self._source, self._recording = source, recording

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that nobody but ``peer`` and whoever reads the recording knows."""
        data = self._source.bytes(size, purpose=purpose, peer=peer, round=round)
        self._recording.note(Drawn(purpose, peer, round, data))
        return data


class RecordedTransport:
    """A transport whose channels write down what comes.

    Parameters
    ----------
    transport
        Reaches a broker.
    recording
        Keeps.
    """

    def __init__(self, transport: Transport, recording: Recording) -> None:
        self._transport, self._recording = transport, recording

    @asynccontextmanager
    async def join(self, client: str, *, will: Will | None = None) -> AsyncIterator[RecordedChannel]:
        """Open a channel."""
        async with self._transport.join(client, will=will) as channel:
            self._recording.note(Joined(self._recording.now, channel.limit))
            yield RecordedChannel(channel, self._recording)


class RecordedChannel:
    """The :class:`~p2pfl.transport.channel.Channel` of :class:`RecordedTransport`."""

    def __init__(self, channel: Channel, recording: Recording) -> None:
        self._channel, self._recording = channel, recording

    @property
    def limit(self) -> int:
        """Largest payload in bytes."""
        return self._channel.limit

    @property
    def away(self) -> float:
        """Seconds without a connection."""
        return self._channel.away

    @property
    def lost(self) -> bool:
        """Whether there is no connection now."""
        return self._channel.lost

    @property
    def grace(self) -> float:
        """Seconds within which others may be back."""
        return self._channel.grace

    async def publish(self, topic: str, data: Payload, *, retain: bool = False) -> None:
        """Publish."""
        await self._channel.publish(topic, data, retain=retain)

    async def subscribe(self, *filters: str) -> None:
        """Subscribe."""
        await self._channel.subscribe(*filters)

    async def unsubscribe(self, *filters: str) -> None:
        """Take filters back."""
        await self._channel.unsubscribe(*filters)

    def abort(self) -> None:
        """Lose the connection."""
        self._channel.abort()

    def __aiter__(self) -> Self:
        """Iterate over what arrives."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message, and write it down."""
        message = await anext(self._channel)
        came = Came(self._recording.now, message.topic, bytes(message.data), message.retained, self.away, self.grace)
        self._recording.note(came)
        return message
