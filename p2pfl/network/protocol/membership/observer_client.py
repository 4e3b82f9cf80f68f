"""An observer of a swarm: which peers it asks, and what it believes of what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from p2pfl.core.errors import DecodeError, PeerError
from p2pfl.network.protocol.membership.audience import RENEW, UnusedError, observer_swarm
from p2pfl.network.protocol.wire.envelope import Envelope
from p2pfl.network.protocol.wire.messages import Announcement, Look, Telemetry
from p2pfl.network.protocol.wire.wire_codec import decode, encode
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
    asked
        Time at which this observer announced itself last; ``None`` before.
    challenge
        Last challenge of the peer.
    arrived
        Time of its last message; ``None`` before the first.
    dropped
        Number of entries that the peer could not send.
    """

    announcement: Announcement
    asked: float | None = None
    challenge: bytes = b""
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
        Source of its keys of this start.
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
        self._swarm, self._trust, self._peers = swarm, trust, frozenset(peers)
        exchange, nonce = ExchangeKey.from_source(source, peer=name), source.bytes(16, purpose="nonce", peer=name)
        me = Announcement(name, 0, "up", key=exchange.public, nonce=nonce)
        self._announcement = encode(me.sign(identity, swarm=observer_swarm(swarm)))
        sender = SenderKey.draw(source, peer=name)  # seals nothing: an observer has no neighbours
        self._envelope = Envelope(name, 0, exchange, sender, observer_swarm(swarm), nonce)

    def take_announcement(self, peer: str, payload: bytes | memoryview) -> Announcement | None:
        """Take an announcement from the topic of a peer; return it if it is authentic and new."""
        try:
            return self._check_announcement(peer, payload)
        except UnusedError as error:
            self.refused[str(error)] += 1
            return None

    def _check_announcement(self, peer: str, payload: bytes | memoryview) -> Announcement | None:
        if peer not in self._peers:
            raise UnusedError("not of the experiment")
        try:
            announcement = decode(payload, plain=True)
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
            try:
                self._envelope.meet(announcement)
            except DecodeError:
                raise UnusedError("weak key") from None
            self.links[peer] = PeerLink(announcement)
        elif announcement.status == link.announcement.status:
            return None
        else:
            link.announcement = announcement
        return announcement

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """Return the announcements that are due at peers that do not answer, each with the name of its peer."""
        due = []
        for peer, link in self.links.items():
            answers = link.arrived is not None and now - link.arrived < RENEW
            asks = link.asked is None or now - link.asked >= RETRY
            if link.announcement.status == "up" and asks and not answers:
                link.asked = now
                due.append((peer, self._announcement))
        return due

    def receive(self, peer: str, payload: bytes | memoryview, *, now: float) -> tuple[Telemetry | None, bytes | None]:
        """Take what a peer has published for this observer.

        Returns
        -------
        Telemetry or None
            The message, if it is one that is new.
        bytes or None
            Request to publish at once, if the peer has drawn a new challenge.
        """
        link = self.links.get(peer)
        if link is None:
            self.refused["not asked"] += 1
            return None, None
        try:
            message = self._envelope.open_from(peer, payload)
        except DecodeError:
            self.refused["no frame"] += 1
            return None, None
        if not isinstance(message, Telemetry):
            self.refused["no frame"] += 1
            return None, None
        if isinstance(self._trust, FirstUse) and link.arrived is None:
            self._trust.remember(peer, link.announcement.identity)  # it has answered under our key, so it is present
        new, link.challenge = message.challenge != link.challenge, message.challenge
        link.arrived, link.dropped = now, message.dropped
        return message, self._envelope.seal_for(peer, Look(message.challenge)) if new else None
