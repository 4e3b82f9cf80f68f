"""A peer's line to the broker: topics, signatures and seals; what is said and heard, not what it means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from p2pfl.errors import DecodeError
from p2pfl.identity import Identity
from p2pfl.protocol.wire.codec import HEAD, decode, encode
from p2pfl.protocol.wire.envelope import LARGEST, PRIVATE, SEALED, Envelope
from p2pfl.protocol.wire.messages import Account, Claim, ForOne, Hello, Message, Plain, Status
from p2pfl.protocol.wire.trailer import CHECKSUM, Signature, Trailer
from p2pfl.transport import Channel


def rights(swarm: str) -> dict[str, tuple[str, ...]]:
    """What a peer has to be let do on the broker, as topic filters in which ``%u`` stands for its name.

    Examples
    --------
    >>> rights("clinic")["write"][0]
    'p2pfl/v1/clinic/peer/%u/state'
    """
    root = f"p2pfl/v1/{swarm}/peer"
    public = ("state", "account", "pub/#")
    return {
        "write": (*(f"{root}/%u/{place}" for place in public), f"{root}/+/in/%u"),
        "read": (*(f"{root}/+/{place}" for place in public), f"{root}/%u/in/#"),
    }


class Heard(NamedTuple):
    """A message that came, or why it is none.

    Attributes
    ----------
    sender
        Whose topic it came by.
    message
        What it says; an error where it cannot be read.
    state
        Whether it is a peer's retained state.
    """

    sender: str
    message: Message | DecodeError
    state: bool


class Line:
    """What one peer says and hears.

    Parameters
    ----------
    channel
        A joined channel.
    swarm
        Names the run on the broker: topics are ``p2pfl/v1/{swarm}/peer/{id}/...``.
    me
        One's own hello.
    identity
        Signs hellos and rows; without it, rows end in a checksum.
    envelope
        Seals what neighbours are told; without it, the broker can read it.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        swarm: str,
        me: Hello,
        identity: Identity | None = None,
        envelope: Envelope | None = None,
    ) -> None:
        self.channel = channel
        self.swarm = swarm
        self.root = f"p2pfl/v1/{swarm}/peer"
        self.me = me
        self.identity = identity
        self.envelope = envelope
        self.turn = 0
        self.admit: Callable[[str, bool], bool] = lambda _sender, _authentic: True
        """Whether one more message under a sender's topic is to be read, and whether it is known to be the sender's."""
        self.largest = 2**63
        """Bytes of the largest payload that is opened."""
        self.bytes_out = 0
        self.bytes_in = 0
        self._publishing = asyncio.Semaphore(16)
        self._saying = asyncio.Lock()  # one state after another: what is retained is what was said last
        self._left = False

    async def listen(self, *places: str) -> None:
        """Subscribe to places below the swarm's root."""
        await self.channel.subscribe(*(f"{self.root}/{place}" for place in places))

    async def ignore(self, *places: str) -> None:
        """Unsubscribe from places below the swarm's root."""
        await self.channel.unsubscribe(*(f"{self.root}/{place}" for place in places))

    async def publish(self, place: str, message: Message, *, retain: bool = False) -> None:
        """Publish under our own name, or into a neighbour's inbox (``in/{neighbour}``)."""
        me = self.me.peer
        topic = f"{place[3:]}/in/{me}" if place.startswith("in/") else f"{me}/{place}"
        async with self._publishing:
            if self.envelope is None or isinstance(message, Plain):
                payload = encode(message)
            elif isinstance(message, ForOne):
                payload = self.envelope.seal_for(place.removeprefix("in/"), message)
            else:
                payload = self.envelope.seal(message, to=[place[3:]] if place.startswith("in/") else None)
            self.bytes_out += len(payload)
            await self.channel.publish(f"{self.root}/{topic}", payload, retain=retain)

    async def claim(self, *, size: int) -> None:
        """Claim our name by a message of so many bytes."""
        payload = encode(Claim(self.me.incarnation, self.me.key)).ljust(size, b"\0")
        await self.channel.publish(f"{self.root}/{self.me.peer}/in/{self.me.peer}", payload)

    async def say(self, status: Status, *, answers: bytes = b"") -> None:
        """Publish one's state, retained; nothing any more after a goodbye, which is the last word."""
        async with self._saying:
            if not self._left:
                said = spoken(self.me, status, self.identity, swarm=self.swarm, answers=answers, turn=self.turn)
                await self.publish("state", said, retain=True)

    async def leave(self, *, done: bool, kept: bool) -> None:
        """Say goodbye, with all rounds played or not, and clear it, unless it is kept for those who miss it."""
        async with self._saying:
            self._left = True
            said = spoken(self.me, "left", self.identity, swarm=self.swarm, turn=self.turn, done=done)
            await self.publish("state", said, retain=True)
            if not kept:
                await self.channel.publish(f"{self.root}/{self.me.peer}/state", b"", retain=True)

    async def come_back(self) -> None:
        """Say that we live after all: the broker has published our will."""
        self.turn += 1
        await self.say("up")

    async def tell(self, account: Account) -> None:
        """Publish an account; the envelope proves to each neighbour whose it is."""
        await self.publish("account", account)

    async def heard(self) -> AsyncGenerator[Heard]:
        """All that comes, as long as the connection lasts."""
        async for message in self.channel:
            _, _, rest = message.topic.partition(f"{self.root}/")
            owner, _, place = rest.partition("/")
            state = place == "state"
            if state and not message.data:
                continue  # cleared after a goodbye
            sender = place.removeprefix("in/") if place.startswith("in/") else owner
            if owner != self.me.peer or sender != owner:  # our claims are no traffic of the run's
                self.bytes_in += len(message.data)
            found = self._found(sender, message.data)
            if found is not None:
                yield Heard(sender, found, state)

    def bound(self, data: int) -> None:
        """Open no payload that is longer than one with so many bytes of data can be."""
        self.largest = max(data, HEAD) + HEAD + LARGEST

    def _found(self, sender: str, payload: bytes | memoryview) -> Message | DecodeError | None:
        """Return what came under a sender's topic, why it cannot be read, or None where there is too much of it.

        Only what is authentic counts against the sender, so that others cannot use up its allowance.
        """
        if len(payload) > self.largest:
            return DecodeError(f"expected a payload of at most {self.largest} bytes, got {len(payload)}")
        sealed = self.envelope is not None and payload[:1] in (bytes([SEALED]), bytes([PRIVATE]))
        if not sealed and not self.admit(sender, False):
            return None
        try:
            message = self._opened(sender, payload)
        except DecodeError as error:
            return error
        return message if not sealed or self.admit(sender, True) else None

    def trailer(self, hello: Hello) -> Trailer:
        """How the rows of a peer's life end."""
        if self.identity is None:
            return CHECKSUM
        own = self.identity if hello.peer == self.me.peer else None
        return Signature.of(self.swarm, hello.peer, hello.incarnation, public=hello.identity, identity=own)

    def _opened(self, sender: str, payload: bytes | memoryview) -> Message:
        """Read a message; what must be sealed counts only if it is."""
        if self.envelope is None:
            return decode(payload)
        if payload[:1] == bytes([SEALED]):
            return self.envelope.open(sender, payload)
        if payload[:1] == bytes([PRIVATE]):
            return self.envelope.open_from(sender, payload)
        return decode(payload, plain=True)


def spoken(
    me: Hello,
    status: Status,
    identity: Identity | None,
    *,
    swarm: str,
    answers: bytes = b"",
    turn: int = 0,
    done: bool = False,
) -> Hello:
    """One's own hello with a status, signed where there is an identity."""
    facts = me.facts if status == "up" else {}
    hello = Hello(
        me.peer,
        me.incarnation,
        status,
        facts,
        me.key,
        answers=answers,
        rounds=me.rounds,
        attempt=me.attempt,
        turn=turn,
        done=done,
        version=me.version if status == "up" else "",
        nonce=me.nonce,
    )
    return hello if identity is None else hello.signed(identity, swarm=swarm)
