"""Publish what a peer does for the observers that its owner lists, while one of them looks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from p2pfl.core.errors import InputError, RefusedError, TransportError
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.launch.event_log import Changes
from p2pfl.network.protocol.membership.audience import MAX_OBSERVERS, PERIOD, Audience
from p2pfl.network.protocol.wire.message_codec import inbox, outlet
from p2pfl.network.transport import Message
from p2pfl.privacy.keys import Roster, Source
from p2pfl.results.notices.kinds import Notice, TelemetryStopped
from p2pfl.results.records import Record
from p2pfl.results.swarm.telemetry import Level, Recent, encode_entry

ROSTER_INTERVAL = 5.0
"""Seconds between two looks at the file of observers."""


def observer_keys(path: Path) -> dict[str, bytes]:
    """Return the public key of each observer by name from a roster, without those that it revokes.

    Raises
    ------
    InputError
        The file is no roster.
    """
    roster = Roster.read(path)
    return {name: key for name, key in roster.peers.items() if key not in roster.revoked}


class Telemetry:
    """Telemetry of one peer.

    Parameters
    ----------
    peer
        Name of the peer.
    level
        Level of what its owner shares.
    observers
        File with the public keys of those who may look, which may change.
    notify
        Called with a notice if nobody can look any more.

    Raises
    ------
    InputError
        The file of observers cannot be read.
    """

    def __init__(self, peer: str, *, level: Level, observers: Path, notify: Callable[[Notice], None]) -> None:
        self._peer, self._level, self._observers, self._notify = peer, level, observers, notify
        self._keys = observer_keys(observers)
        self._recent, self._changes = Recent(peer), Changes()
        self._answers: deque[tuple[str, bytes]] = deque(maxlen=MAX_OBSERVERS)
        self._asked = asyncio.Event()
        self._read = 0.0
        self._unreadable = False

    def observe(self, event: object) -> None:
        """Take a record, a notice, or what the peer reports of itself."""
        now = asyncio.get_running_loop().time()
        entries = [event] if isinstance(event, Record) else self._changes.notices(event, now=now)
        for entry in entries:
            self._recent.take(now, entry)

    async def publish(self, connection: Connection, *, source: Source) -> None:
        """Answer observers and publish frames for them, until this is cancelled.

        Nothing is published, and no timer runs, while nobody looks.

        Parameters
        ----------
        connection
            Connection of the peer.
        source
            Source of challenges.
        """
        codec = connection.session.shared.codec
        assert codec.envelope is not None  # noqa: S101 (every peer with a connection has one)
        swarm = codec.swarm
        audience = Audience(swarm, envelope=codec.envelope, source=source, observers=self._keys, past=self._past)
        connection.diverts.append(lambda message: self._take_request(message, audience, swarm=swarm))
        try:
            await connection.channel.subscribe(inbox(swarm, peer=self._peer))
            while True:
                await self._asked.wait()
                if not await self._turn(connection, audience, swarm=swarm):
                    self._asked.clear()
                    self._recent.news()
                else:
                    await asyncio.sleep(PERIOD)
        except RefusedError as error:
            self._notify(TelemetryStopped(peer=self._peer, message=str(error)))
        except TransportError:  # the connection ends, which the peer itself reports
            return
        except Exception as error:  # noqa: BLE001 (a defect here must not end the run)
            self._notify(TelemetryStopped(peer=self._peer, message=f"{type(error).__name__}: {error}"))

    async def _turn(self, connection: Connection, audience: Audience, *, swarm: str) -> bool:
        """Publish what is due; return whether anybody looks."""
        now = asyncio.get_running_loop().time()
        self._reread(audience, now=now)
        for at, entry in self._recent.news():
            if (data := encode_entry(entry, level=self._level)) is not None:
                audience.add(at, data)
        due = [*self._answers, *audience.frames(now)]
        self._answers.clear()
        for observer, payload in due:
            await connection.channel.publish(outlet(swarm, peer=self._peer, observer=observer), payload)
        return audience.is_watched(now) or bool(self._answers)

    def _take_request(self, message: Message, audience: Audience, *, swarm: str) -> bool:
        """Take a request; return whether the message is one."""
        before, _, after = inbox(swarm, peer=self._peer).partition("+")
        if not message.topic.startswith(before) or not message.topic.endswith(after):
            return False
        now = asyncio.get_running_loop().time()
        self._reread(audience, now=now)
        observer = message.topic[len(before) : -len(after)]
        answer = None if message.retained else audience.receive(observer, message.data, now=now)
        if answer is not None:
            self._answers.append((observer, answer))
        if answer is not None or audience.is_watched(now):
            self._asked.set()
        return True

    def _reread(self, audience: Audience, *, now: float) -> None:
        """Notice changes of who may look."""
        if now - self._read < ROSTER_INTERVAL:
            return
        self._read = now
        try:
            self._keys, self._unreadable = observer_keys(self._observers), False
        except InputError as error:
            if not self._unreadable:
                self._notify(TelemetryStopped(peer=self._peer, message=str(error)))
            self._keys, self._unreadable = {}, True
        audience.observers = self._keys

    def _past(self) -> list[tuple[float, bytes]]:
        now = asyncio.get_running_loop().time()
        entries = ((at, encode_entry(entry, level=self._level)) for at, entry in self._recent.past(now))
        return [(at, data) for at, data in entries if data is not None]
