"""An observer of a swarm: which peers it asks, and what it believes of what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from p2pfl.core.errors import DecodeError, PeerError
from p2pfl.network.protocol.telemetry.audience import RENEW
from p2pfl.network.protocol.telemetry.observer_messages import (
    FRAME,
    Body,
    Grant,
    Request,
    UnusedError,
    decode,
    encode,
    key_between,
    open_frame,
)
from p2pfl.network.protocol.wire import wire_codec
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.privacy.keys import ExchangeKey, FirstUse, Identity, SenderKey, Source, Trust

RETRY = 4.0
"""Seconds after which an observer asks a peer again that has not answered."""


@dataclass
class PeerLink:
    """Knowledge of an observer about one peer.

    Attributes
    ----------
    announcement
        Last announcement.
    number
        Number of the last request.
    request
        Last request; ``None`` before the first.
    asked
        Time at which it was sent.
    challenge
        Last challenge of the peer.
    key
        Key of the frames; ``None`` before a grant.
    theirs, granted
        Public X25519 key of the peer, and number of the request that the last grant answers.
    frames
        Number of the last frame.
    arrived
        Time of its arrival; ``None`` before the first.
    dropped
        Number of entries that the peer could not send.
    """

    announcement: Announcement
    number: int = 0
    request: Request | None = None
    asked: float = 0.0
    challenge: bytes = b""
    key: SenderKey | None = None
    theirs: bytes = b""
    granted: int = 0
    frames: int = 0
    arrived: float | None = None
    dropped: int = 0


class ObserverClient:
    """One observer of a swarm.

    Parameters
    ----------
    swarm
        Name of the swarm.
    name, identity
        Name and identity of the observer.
    source
        Source of its key of this start.
    trust
        Policy that decides which key belongs to which peer.
    peers
        Names of the peers of the experiment; others are ignored.

    Attributes
    ----------
    links
        State by peer.
    refused
        Number of messages that were not used, by reason.
    """

    def __init__(
        self, swarm: str, *, name: str, identity: Identity, source: Source, trust: Trust, peers: Collection[str]
    ) -> None:
        self.links: dict[str, PeerLink] = {}
        self.refused: Counter[str] = Counter()
        self._swarm, self._name, self._identity = swarm, name, identity
        self._trust, self._peers = trust, frozenset(peers)
        self._key = ExchangeKey.from_source(source, peer=name)

    def announced(self, peer: str, payload: bytes | memoryview) -> Announcement | None:
        """Take an announcement from the topic of a peer; return it if it is authentic and new."""
        try:
            return self._announced(peer, payload)
        except UnusedError as error:
            self.refused[str(error)] += 1
            return None

    def _announced(self, peer: str, payload: bytes | memoryview) -> Announcement | None:
        if peer not in self._peers:
            raise UnusedError("not of the experiment")
        try:
            announcement = wire_codec.decode(payload, plain=True)
        except DecodeError:
            raise UnusedError("no announcement") from None
        if (
            not isinstance(announcement, Announcement)
            or announcement.peer != peer
            or not announcement.authentic(swarm=self._swarm)
        ):
            raise UnusedError("no announcement")
        try:
            self._trust.check(peer, announcement.identity)
        except PeerError:
            raise UnusedError("another identity") from None
        link = self.links.get(peer)
        if link is not None and announcement.incarnation < link.announcement.incarnation:
            raise UnusedError("old announcement")
        if link is None or announcement.announced != link.announcement.announced:
            self.links[peer] = PeerLink(announcement)
        elif announcement.status == link.announcement.status:
            return None
        else:
            link.announcement = announcement
        return announcement

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Return the requests that are due, each with the name of its peer."""
        found = []
        for peer, link in self.links.items():
            wait = RENEW if link.arrived is not None and now - link.arrived < RENEW else RETRY
            if link.announcement.status == "up" and (link.request is None or now - link.asked >= wait):
                found.append((peer, self._ask(peer, link, now=now)))
        return found

    def receive(self, peer: str, payload: bytes | memoryview, *, now: float) -> tuple[Body | None, bytes | None]:
        """Take what a peer has published for this observer.

        Returns
        -------
        Body or None
            Plaintext of a frame, if it is one that is new.
        bytes or None
            Request to publish at once, if it is a grant.
        """
        link = self.links.get(peer)
        if link is None:
            self.refused["not asked"] += 1
            return None, None
        try:
            if memoryview(payload)[:1] == bytes([FRAME]):
                return self._frame(link, payload, now=now), None
            return None, self._granted(peer, link, decode(payload, Grant), now=now)
        except (DecodeError, UnusedError) as error:
            self.refused[str(error) if isinstance(error, UnusedError) else "no frame"] += 1
            return None, None

    def _frame(self, link: PeerLink, payload: bytes | memoryview, *, now: float) -> Body:
        if link.key is None:
            raise UnusedError("no key")
        number, body = open_frame(payload, key=link.key)
        if number <= link.frames:
            raise UnusedError("repeated")
        link.frames, link.arrived, link.challenge, link.dropped = number, now, body.challenge, body.dropped
        return body

    def _granted(self, peer: str, link: PeerLink, grant: Grant, *, now: float) -> bytes:
        if link.request is None or not grant.answers(link.request):
            raise UnusedError("not asked")
        if not grant.authentic(link.announcement.identity, swarm=self._swarm):
            raise UnusedError("not signed")
        if grant.number <= link.granted:  # else an old key would return, and the frames under it
            raise UnusedError("repeated")
        link.granted = grant.number
        if grant.key != link.theirs:
            key = key_between(self._key, grant.key, grant=grant, peer=link.announcement.identity, swarm=self._swarm)
            link.key, link.theirs, link.frames = key, grant.key, 0
        link.challenge = grant.challenge
        if isinstance(self._trust, FirstUse):
            self._trust.remember(peer, link.announcement.identity)  # it has signed our key, so it is present
        return self._ask(peer, link, now=now)

    def _ask(self, peer: str, link: PeerLink, *, now: float) -> bytes:
        link.number, link.asked = link.number + 1, now
        announcement = link.announcement
        link.request = Request(
            self._name,
            self._identity.public,
            self._key.public,
            peer,
            announcement.incarnation,
            announcement.nonce,
            link.number,
            link.challenge,
        ).signed(self._identity, swarm=self._swarm)
        return encode(link.request)
