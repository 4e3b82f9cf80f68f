"""Conversion between messages and payloads on topics: topics, signatures and seals, without a channel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from p2pfl.network.protocol.wire.envelope import MAX_SEAL_BYTES, PRIVATE, SEALED, Envelope
from p2pfl.network.protocol.wire.messages import Announcement, ForOne, Message, Plain, Status
from p2pfl.network.protocol.wire.trailer import CHECKSUM, Signature, Trailer
from p2pfl.network.protocol.wire.wire_codec import HEAD, decode, encode
from p2pfl.privacy.keys import Identity

_SEALS = bytes([SEALED]), bytes([PRIVATE])

UNBOUNDED = 2**63
"""Maximum size of a payload in bytes if no bound is set."""


class Origin(NamedTuple):
    """Origin of a payload.

    Attributes
    ----------
    owner, place
        Peer to which the topic belongs, and place below the topic of that peer.
    sender
        Peer that publishes on the topic.
    state
        True if the payload is a peer's retained announcement.
    """

    owner: str
    place: str
    sender: str
    state: bool


def rights(swarm: str, *, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Return the permissions that peers and observers need on the broker, as topic filters with ``%u`` for their name.

    All topics of a run begin with ``transport.prefix``, which its transport adds.

    Examples
    --------
    >>> rights("clinic")["write"][0]
    'p2pfl/v1/clinic/peer/%u/state'
    """
    root, watch, change = (f"{prefix}p2pfl/v1/{swarm}/{place}" for place in ("peer", "watch", "change"))
    public = ("state", "account", "pub/#")
    return {
        "write": (
            *(f"{root}/%u/{path}" for path in public),
            f"{root}/+/in/%u",
            f"{root}/%u/telemetry/+",
            f"{watch}/%u/to/+",
            f"{change}/%u",
        ),
        "read": (
            *(f"{root}/+/{path}" for path in public),
            f"{root}/%u/in/#",
            f"{watch}/+/to/%u",
            f"{root}/+/telemetry/%u",
            f"{change}/{OPERATOR}",
        ),
    }


def inbox(swarm: str, *, peer: str, observer: str = "+") -> str:
    """Return the topic of what an observer publishes for a peer.

    Examples
    --------
    >>> inbox("clinic", peer="ada")
    'p2pfl/v1/clinic/watch/+/to/ada'
    """
    return f"p2pfl/v1/{swarm}/watch/{observer}/to/{peer}"


def outlet(swarm: str, *, observer: str, peer: str = "+") -> str:
    """Return the topic of what a peer publishes for an observer.

    Examples
    --------
    >>> outlet("clinic", observer="ops")
    'p2pfl/v1/clinic/peer/+/telemetry/ops'
    """
    return f"{root_of(swarm)}/{peer}/telemetry/{observer}"


OPERATOR = "fleet-operator"
"""Name under which the operator of a fleet connects to its broker."""


def change_topic(swarm: str) -> str:
    """Return the topic on which the operator of a swarm publishes its change, retained.

    Examples
    --------
    >>> change_topic("clinic")
    'p2pfl/v1/clinic/change/fleet-operator'
    """
    return f"p2pfl/v1/{swarm}/change/{OPERATOR}"


def answer_topic(swarm: str, *, peer: str = "+") -> str:
    """Return the topic on which a peer answers to a change, retained.

    Examples
    --------
    >>> answer_topic("clinic", peer="ada")
    'p2pfl/v1/clinic/peer/ada/pub/change'
    """
    return f"{root_of(swarm)}/{peer}/pub/change"


def order_topic(swarm: str, *, peer: str) -> str:
    """Return the topic on which a peer hands over the order by which its run began, retained.

    Examples
    --------
    >>> order_topic("clinic", peer="ada")
    'p2pfl/v1/clinic/peer/ada/pub/order'
    """
    return f"{root_of(swarm)}/{peer}/pub/order"


def root_of(swarm: str) -> str:
    """Return the topic above all topics of a run."""
    return f"p2pfl/v1/{swarm}/peer"


@dataclass
class MessageCodec:
    """Codec between the messages of one peer and the payloads on the broker.

    Parameters
    ----------
    swarm
        Name of the run: topics are ``p2pfl/v1/{swarm}/peer/{name}/...``.
    me
        Announcement of this incarnation.
    identity
        Identity that signs announcements and models; without it, models end in a checksum.
    envelope
        Envelope that seals messages to neighbours; without it, the broker can read them.
    largest
        Size in bytes of the largest payload that the codec opens.
    """

    swarm: str
    me: Announcement
    identity: Identity | None = None
    envelope: Envelope | None = None
    largest: int = UNBOUNDED

    @cached_property
    def root(self) -> str:
        """Topic above all topics of the run."""
        return root_of(self.swarm)

    # ------------------------------------------------------------------ outgoing

    def topic(self, path: str) -> str:
        """Return the topic of a place: one of this peer's own, or ``in/{neighbour}``, the inbox of a neighbour."""
        me = self.me.peer
        return f"{self.root}/{path[3:]}/in/{me}" if path.startswith("in/") else f"{self.root}/{me}/{path}"

    def filters(self, paths: tuple[str, ...]) -> list[str]:
        """Return the topic filters of places below the root."""
        return [f"{self.root}/{path}" for path in paths]

    def seal(self, path: str, message: Message, *, size: int = 0) -> bytes:
        """Return the payload of a message; an unsealed one is padded to ``size`` bytes."""
        if self.envelope is None or isinstance(message, Plain):
            return encode(message).ljust(size, b"\0")
        if isinstance(message, ForOne):
            return self.envelope.seal_for(path.removeprefix("in/"), message)
        return self.envelope.seal(message, to=[path[3:]] if path.startswith("in/") else None)

    def announcement(self, status: Status, *, answers: bytes = b"", turn: int = 0, done: bool = False) -> Announcement:
        """Return the announcement with a status, signed if there is an identity."""
        me, up = self.me, status == "up"
        announcement = Announcement(
            me.peer,
            me.incarnation,
            status,
            me.facts if up else {},
            me.key,
            answers=answers,
            rounds=me.rounds,
            attempt=me.attempt,
            turn=turn,
            done=done,
            version=me.version if up else "",
            nonce=me.nonce,
        )
        return announcement if self.identity is None else announcement.sign(self.identity, swarm=self.swarm)

    # ------------------------------------------------------------------ incoming

    def address(self, topic: str) -> Origin:
        """Return the origin of a payload."""
        owner, _, path = topic.removeprefix(f"{self.root}/").partition("/")
        return Origin(owner, path, path[3:] if path.startswith("in/") else owner, path == "state")

    def bound(self, data: int) -> None:
        """Limit the size of payloads to open to that of one with ``data`` bytes of data."""
        self.largest = max(data, HEAD) + HEAD + MAX_SEAL_BYTES

    def is_sealed(self, payload: bytes | memoryview) -> bool:
        """Return whether a payload is marked as sealed, so that it proves its sender once it is opened."""
        return self.envelope is not None and payload[:1] in _SEALS

    def open(self, sender: str, payload: bytes | memoryview) -> Message:
        """Decode a message, and refuse an unsealed one of a kind that must be sealed.

        Raises
        ------
        AuthenticityError
            The sender has not sealed the message for this peer.
        DecodeError
            The payload is not a message.
        """
        if self.envelope is None:
            return decode(payload)
        if payload[:1] == _SEALS[0]:
            return self.envelope.open(sender, payload)
        if payload[:1] == _SEALS[1]:
            return self.envelope.open_from(sender, payload)
        return decode(payload, plain=True)

    def trailer(self, announcement: Announcement) -> Trailer:
        """Return the trailer of the models of a peer's incarnation."""
        if self.identity is None:
            return CHECKSUM
        own = self.identity if announcement.peer == self.me.peer else None
        return Signature.of(
            self.swarm, announcement.peer, announcement.incarnation, public=announcement.identity, identity=own
        )
