"""Log of the events of a live peer's session, which ``scripts/worlds --replay`` replays.

Each line is a JSON object: the peer and its experiment, a secret that it drew, an event of its session, the end of a
round, or the checksum of its final parameters. Whoever can read the log can read what the neighbours sent to the peer.
The file is therefore readable by the owner of the peer alone, like its private key.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import blake2b
from pathlib import Path

import msgspec
import torch

from p2pfl.core.errors import StorageError
from p2pfl.core.rows import Rows, raw
from p2pfl.experiment import write
from p2pfl.network.peer.peer import Peer
from p2pfl.network.protocol.interface import events, requests
from p2pfl.network.transport import Channel
from p2pfl.privacy.keys import Roster, Source
from p2pfl.results import Record


class LoggedPeer(msgspec.Struct, frozen=True, tag_field="is", tag="about"):
    """Description of the peer, with its experiment as TOML."""

    peer: str
    incarnation: int
    experiment: str
    roster: dict[str, bytes] | None
    threads: int


class LoggedDraw(msgspec.Struct, frozen=True, tag_field="is", tag="drawn"):
    """Secret bytes, and their purpose."""

    purpose: str
    peer: str
    round: int
    data: bytes


class LoggedEnter(msgspec.Struct, frozen=True, tag_field="is", tag="entered"):
    """Event ``Enter``, in seconds since the start of the log."""

    at: float
    limit: int


class LoggedReceived(msgspec.Struct, frozen=True, tag_field="is", tag="received"):
    """Event ``LoggedReceived``, with the seconds that the channel had been offline, and its grace, at that time."""

    at: float
    away: float
    grace: float
    topic: str
    data: bytes


class Ended(msgspec.Struct, frozen=True, tag_field="is", tag="ended"):
    """End of a round, and the seconds of its training."""

    at: float
    round: int
    training: float


class LoggedEnd(msgspec.Struct, frozen=True, tag_field="is", tag="last"):
    """Checksum of the final parameters."""

    row: str


Line = LoggedPeer | LoggedDraw | LoggedEnter | LoggedReceived | Ended | LoggedEnd


def checksum(rows: Rows) -> str:
    """Return the checksum of one row, ``[1, P]``."""
    return blake2b(raw(rows[0]), digest_size=16).hexdigest()


class SessionLog:
    """File with the events of one peer's session, readable by its owner alone.

    Parameters
    ----------
    path
        New file; its folder is created.

    Raises
    ------
    StorageError
        The file cannot be written, or exists already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = asyncio.get_running_loop().time
        self._begun = self._clock()
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        except OSError as error:
            raise StorageError(f"{path} cannot be created ({error.strerror}); choose another run directory") from None

    def attach(self, peer: Peer) -> None:
        """Write down the events of the session of a peer that has joined."""
        roster = dict(peer.trust.peers) if isinstance(peer.trust, Roster) else None
        experiment = write(peer.plan.experiment)
        self._write(LoggedPeer(peer.name, peer.me.incarnation, experiment, roster, torch.get_num_threads()))
        connection = peer.connection
        connection.observe = lambda event: self._event(event, connection.channel)

    def drawn(self, data: bytes, *, purpose: str, peer: str, round: int) -> None:
        """Write down a secret; any thread may call it."""
        self._write(LoggedDraw(purpose, peer, round, data))

    def ended(self, record: Record) -> None:
        """Write down the end of a round."""
        self._write(Ended(self._now, record.round, record.seconds_training))

    def close(self, rows: Rows) -> None:
        """Write down the checksum of the final parameters, and close the file."""
        self._write(LoggedEnd(checksum(rows)))
        self._file.close()

    @property
    def _now(self) -> float:
        """Seconds since the start of the log."""
        return self._clock() - self._begun

    def _event(self, event: events.Event, channel: Channel) -> None:
        """Write down an event, unless it follows from the others."""
        match event:
            case requests.Enter():
                self._write(LoggedEnter(self._now, event.limit))
            case events.Received():
                self._write(LoggedReceived(self._now, channel.away, channel.grace, event.topic, bytes(event.data)))
            case _:
                pass

    def _write(self, line: Line) -> None:
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written ({error.strerror}); free some space") from None


class LoggedSource:
    """Source of secrets that are written to a log.

    Parameters
    ----------
    source
        Source that draws.
    log
        Log of the peer.
    """

    def __init__(self, source: Source, log: SessionLog) -> None:
        self._source, self._log = source, log

    @property
    def secret(self) -> bool:
        """True if the source that draws is secret; only the peer's owner may read its log."""
        return self._source.secret

    def bytes(self, size: int, *, purpose: str, peer: str, round: int = 0) -> bytes:
        """Return ``size`` bytes that nobody knows but ``peer`` and the readers of its log."""
        data = self._source.bytes(size, purpose=purpose, peer=peer, round=round)
        self._log.drawn(data, purpose=purpose, peer=peer, round=round)
        return data
