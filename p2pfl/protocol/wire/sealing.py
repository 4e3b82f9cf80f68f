"""From a message to a topic and a payload, and back: topics, signatures and seals, without a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from p2pfl.identity import Identity
from p2pfl.protocol.wire.codec import HEAD, decode, encode
from p2pfl.protocol.wire.envelope import LARGEST, PRIVATE, SEALED, Envelope
from p2pfl.protocol.wire.messages import ForOne, Hello, Message, Plain, Status
from p2pfl.protocol.wire.trailer import CHECKSUM, Signature, Trailer

UNBOUNDED = 2**63
"""Bytes of a payload where nobody has said how large one may be."""


class Address(NamedTuple):
    """Where a payload came from.

    Attributes
    ----------
    owner, place
        Whose topic it is, and which below that.
    sender
        Who publishes there.
    """

    owner: str
    place: str
    sender: str

    @property
    def state(self) -> bool:
        """Whether it is a peer's retained announcement."""
        return self.place == "state"


def rights(swarm: str) -> dict[str, tuple[str, ...]]:
    """Return what a peer has to be let do on the broker, as topic filters in which ``%u`` stands for its name.

    Examples
    --------
    >>> rights("clinic")["write"][0]
    'p2pfl/v1/clinic/peer/%u/state'
    """
    root = root_of(swarm)
    public = ("state", "account", "pub/#")
    return {
        "write": (*(f"{root}/%u/{place}" for place in public), f"{root}/+/in/%u"),
        "read": (*(f"{root}/+/{place}" for place in public), f"{root}/%u/in/#"),
    }


def root_of(swarm: str) -> str:
    """Return the topic under which all topics of a run lie."""
    return f"p2pfl/v1/{swarm}/peer"


@dataclass
class Codec:
    """What one peer's messages look like on the broker.

    Parameters
    ----------
    swarm
        Names the run: topics are ``p2pfl/v1/{swarm}/peer/{name}/...``.
    me
        The announcement of this incarnation.
    identity
        Signs announcements and models; without it, models end in a checksum.
    envelope
        Seals what neighbours are sent; without it, the broker can read it.
    largest
        Bytes of the largest payload that is opened.
    """

    swarm: str
    me: Hello
    identity: Identity | None = None
    envelope: Envelope | None = None
    largest: int = UNBOUNDED

    @property
    def root(self) -> str:
        """Under which topic all others lie."""
        return root_of(self.swarm)

    # ------------------------------------------------------------------ outwards

    def topic(self, place: str) -> str:
        """Return the topic of a place: one's own, or ``in/{neighbour}``, the inbox of a neighbour."""
        me = self.me.peer
        return f"{self.root}/{place[3:]}/in/{me}" if place.startswith("in/") else f"{self.root}/{me}/{place}"

    def filters(self, places: tuple[str, ...]) -> list[str]:
        """Return the topic filters of places below the root."""
        return [f"{self.root}/{place}" for place in places]

    def seal(self, place: str, message: Message, *, size: int = 0) -> bytes:
        """Return the payload of a message, padded to a size."""
        if self.envelope is None or isinstance(message, Plain):
            return encode(message).ljust(size, b"\0")
        if isinstance(message, ForOne):
            return self.envelope.seal_for(place.removeprefix("in/"), message)
        return self.envelope.seal(message, to=[place[3:]] if place.startswith("in/") else None)

    def announcement(self, status: Status, *, answers: bytes = b"", turn: int = 0, done: bool = False) -> Hello:
        """Return the announcement with a status, signed where there is an identity."""
        me, up = self.me, status == "up"
        hello = Hello(
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
        return hello if self.identity is None else hello.signed(self.identity, swarm=self.swarm)

    # ------------------------------------------------------------------ inwards

    def address(self, topic: str) -> Address:
        """Return where a payload came from."""
        _, _, rest = topic.partition(f"{self.root}/")
        owner, _, place = rest.partition("/")
        return Address(owner, place, place.removeprefix("in/") if place.startswith("in/") else owner)

    def bound(self, data: int) -> None:
        """Open no payload that is longer than one with so many bytes of data can be."""
        self.largest = max(data, HEAD) + HEAD + LARGEST

    def sealed(self, payload: bytes | memoryview) -> bool:
        """Return whether a payload says that it is sealed, so that it proves who sent it once it is opened."""
        return self.envelope is not None and payload[:1] in (bytes([SEALED]), bytes([PRIVATE]))

    def open(self, sender: str, payload: bytes | memoryview) -> Message:
        """Read a message; what must be sealed counts only if it is.

        Raises
        ------
        AuthenticityError
            The sender has not sealed it for this peer.
        DecodeError
            It is no message.
        """
        if self.envelope is None:
            return decode(payload)
        if payload[:1] == bytes([SEALED]):
            return self.envelope.open(sender, payload)
        if payload[:1] == bytes([PRIVATE]):
            return self.envelope.open_from(sender, payload)
        return decode(payload, plain=True)

    def trailer(self, hello: Hello) -> Trailer:
        """Return how the models of a peer's incarnation end."""
        if self.identity is None:
            return CHECKSUM
        own = self.identity if hello.peer == self.me.peer else None
        return Signature.of(self.swarm, hello.peer, hello.incarnation, public=hello.identity, identity=own)
