"""The state of a live swarm, from what its peers send an observer over the broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from p2pfl.core.errors import DecodeError, foremost
from p2pfl.experiment.schema import ENDLESS
from p2pfl.experiment.swarm_change import stated_rounds
from p2pfl.network.protocol.membership.observer_client import ObserverClient, PeerLink
from p2pfl.network.protocol.wire.message_codec import inbox, outlet, root_of
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.transport import Channel, Message, Transport
from p2pfl.plugins.watch.feed import Places, Stage
from p2pfl.results.notices.kinds import PeerAnnounced, PeerResponded, PeerSilent
from p2pfl.results.swarm.state import Entry, Setting, Swarm
from p2pfl.results.swarm.telemetry import decode_entry

TURN_SECONDS = 0.5
"""Seconds between two looks at which requests are due and which peers are silent."""

SILENT_SECONDS = 5.0
"""Seconds without a frame after which a peer that shares its state counts as silent; one is due each second."""


class LiveFeed:
    """State of a live swarm; it has what :class:`p2pfl.plugins.watch.feed.Feed` has of a run directory.

    One thread may call :meth:`put` while another one reads.

    Parameters
    ----------
    setting, places
        Facts that the events do not repeat, and places of the peers.
    now
        Returns the time in UTC.
    sink
        Called with each record and notice that is new.

    Attributes
    ----------
    setting, places, sink
        As given.
    swarm
        State after all events that were read.
    timed
        True if events have times, which they always have.
    observed
        True because times count from when the observer began to look.
    unread
        Number of entries of peers that could not be read.
    began
        Start of the observation, in UTC.
    """

    timed = observed = True

    def __init__(
        self,
        setting: Setting,
        coordinates: Places,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sink: Callable[[Entry], None] | None = None,
    ) -> None:
        self.setting, self.places, self.sink = setting, coordinates, sink
        self.swarm = Swarm(setting)
        self._now = now
        self.began = now()
        self.unread = 0
        self._fresh: deque[tuple[float, Entry]] = deque()

    @property
    def elapsed(self) -> float:
        """Seconds since the observer began to look."""
        return (self._now() - self.began).total_seconds()

    @property
    def at(self) -> float:
        """Present time in seconds since the observer began to look."""
        return max(self.swarm.at, self.elapsed)

    @property
    def stage(self) -> Stage:
        """State of the run: it has ended once all peers that were seen have left."""
        seen = [peer.announced for peer in self.swarm.peers.values() if peer.announced is not None]
        return "ended" if seen and all(status == "left" for status in seen) else "running"

    def put(self, at: float, entry: Entry) -> None:
        """Take an event with its time in seconds since the observer began to look."""
        self._fresh.append((at, entry))

    def refresh(self) -> None:
        """Apply what is new."""
        for _ in range(len(self._fresh)):
            at, entry = self._fresh.popleft()
            self.swarm.apply(at, entry)
            if self.sink is not None:
                self.sink(entry)

    def replay(self) -> None:
        """Return nothing: a live swarm has no replay, the run directory of a peer has."""


class SwarmObserver:
    """Connection of an observer to a swarm.

    Parameters
    ----------
    client
        Decides which peers are asked, and which answers are accepted.
    swarm, name
        Names of the swarm and of the observer.
    feed
        Takes the events.
    """

    def __init__(self, client: ObserverClient, *, swarm: str, name: str, feed: LiveFeed) -> None:
        self._client, self._swarm, self._name, self._feed = client, swarm, name, feed
        self._silent: set[str] = set()
        self._root, _, self._state = f"{root_of(swarm)}/+/state".partition("+")
        self._outlet = outlet(swarm, observer=name).partition("+")[2]

    async def look(self, transport: Transport, *, client: str) -> None:
        """Look at the swarm until this is cancelled.

        Parameters
        ----------
        transport
            Transport to the broker.
        client
            Name of the connection.

        Raises
        ------
        AccessError, BrokerError, RefusedError, TransportError
            The broker cannot be reached, or does not let the observer read.
        """
        try:
            async with transport.join(client) as channel, asyncio.TaskGroup() as tasks:
                await channel.subscribe(f"{root_of(self._swarm)}/+/state", outlet(self._swarm, observer=self._name))
                tasks.create_task(self._ask(channel))
                async for message in channel:
                    await self._take(channel, message)
        except BaseExceptionGroup as group:
            raise foremost(group) from None

    async def _ask(self, channel: Channel) -> None:
        """Send the requests that are due, and notice which peers are silent."""
        while True:
            now = self._feed.elapsed
            for peer, request in self._client.due(now):
                await self._request(channel, peer, request)
            for peer, link in self._client.links.items():
                self._listen(peer, link, now=now)
            await asyncio.sleep(TURN_SECONDS)

    async def _request(self, channel: Channel, peer: str, request: bytes) -> None:
        await channel.publish(inbox(self._swarm, observer=self._name, peer=peer), request)

    async def _take(self, channel: Channel, message: Message) -> None:
        if not message.topic.startswith(self._root):
            return
        peer, _, _ = message.topic[len(self._root) :].partition("/")
        if message.topic == f"{self._root}{peer}{self._state}":
            announcement = self._client.take_announcement(peer, message.data)
            if announcement is not None:
                self._apply_announcement(announcement)
        elif message.topic == f"{self._root}{peer}{self._outlet}":
            await self._report(channel, peer, message)

    async def _report(self, channel: Channel, peer: str, message: Message) -> None:
        now = self._feed.elapsed
        body, request = self._client.receive(peer, message.data, now=now)
        if request is not None:
            await self._request(channel, peer, request)
        if body is None:
            return
        if peer in self._silent:
            self._silent.discard(peer)
            self._feed.put(now, PeerResponded(peer=peer))
        for age, data in body.entries:
            try:
                entry = decode_entry(data, peer=peer, names=self._feed.setting.peers)
            except DecodeError:
                self._feed.unread += 1
            else:
                self._feed.put(max(0.0, now - age), entry)

    def _apply_announcement(self, announcement: Announcement) -> None:
        if announcement.status != "up":
            self._silent.discard(announcement.peer)
        rounds = stated_rounds(announcement.facts)
        self._feed.put(
            self._feed.elapsed,
            PeerAnnounced(
                peer=announcement.peer,
                status=announcement.status,
                done=announcement.done,
                rounds=(0 if rounds == ENDLESS else rounds) if announcement.status == "up" else None,
            ),
        )

    def _listen(self, peer: str, link: PeerLink, *, now: float) -> None:
        """Report a peer that shared its state and is silent although the broker has its connection."""
        quiet = 0.0 if link.arrived is None else now - link.arrived
        if link.announcement.status == "up" and quiet > SILENT_SECONDS and peer not in self._silent:
            self._silent.add(peer)
            self._feed.put(now, PeerSilent(peer=peer, seconds=quiet))
