"""How a peer enters: it makes sure that nobody bears its name, and only then announces itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from p2pfl.errors import PeerError, TransportError
from p2pfl.protocol.session.effects import Entered, Fail, Publish, Subscribe
from p2pfl.protocol.session.shared import PULSE, Shared
from p2pfl.protocol.wire.messages import Claim, Hello

ECHO = 30.0
"""Seconds within which the broker must return our own message: more than the keepalive, by which a connection ends."""

PROOF = 2.0
"""Seconds within which a peer of the same name must answer a claim."""

Stage = Literal["outside", "subscribing", "claiming", "proving", "announcing", "inside"]


@dataclass
class Naming:
    """The stages from the first subscription to the announcement.

    A claim to one's own inbox asks whoever bears the name to speak up; that the broker returns it tells that retained
    messages have come and that messages of that size pass. It is repeated: brokers acknowledge and then drop, or
    restart.

    Attributes
    ----------
    stage
        Which it is.
    echoed
        Whether a claim came back.
    namesake
        What the broker retains under this peer's name.
    quarrel
        A neighbour of another experiment; it counts once this peer is announced, so that the other end can tell it.
    due
        When to claim again, or to take the name for free.
    """

    shared: Shared
    stage: Stage = "outside"
    echoed: bool = False
    namesake: Hello | None = None
    quarrel: PeerError | None = None
    due: float = math.inf
    _size: int = 0
    _claimed: float = 0.0
    _pause: float = 0.0
    _waited: float = 0.0

    @property
    def inside(self) -> bool:
        """Whether this peer is announced."""
        return self.stage == "inside"

    def enter(self, places: tuple[str, ...], *, size: int) -> None:
        """Subscribe to what must be heard before a claim of so many bytes."""
        self.stage, self._size = "subscribing", size
        self.shared.do(Subscribe(places, receipt="places"))

    def confirmed(self, receipt: str) -> None:
        """Go on once the broker has confirmed something."""
        if receipt == "places" and self.stage == "subscribing":
            self._claim()
        elif receipt == "claim" and self.stage == "claiming":
            self._pause = min(PULSE + 2 * (self.shared.now - self._claimed), ECHO / 4)
            self.due = self.shared.now + self._pause
        elif receipt == "announced" and self.stage == "announcing":
            self.stage = "inside"
            self.shared.do(Entered() if self.quarrel is None else Fail(self.quarrel))

    def echo(self) -> None:
        """Take this peer's own claim, which came back."""
        self.echoed = True
        if self.stage == "claiming":
            self.stage, self.due = "proving", self.shared.now
            if self.namesake is not None and self.namesake.status == "up":
                self.due += PROOF  # if it lives it answers, and this peer fails

    def tick(self) -> None:
        """Claim again what was not returned in time, or announce this peer once nobody has answered."""
        if self.shared.now < self.due:
            return
        self.due = math.inf
        if self.stage == "proving":
            self.stage = "announcing"
            announcement = self.shared.codec.announcement("up")
            self.shared.do(Publish("state", announcement, retain=True, receipt="announced"))
        elif self.stage == "claiming":
            self._waited += self._pause  # whatever the clock says: we may have stood still
            self._claim()

    def _claim(self) -> None:
        me, size = self.shared.me, self._size
        if self._waited >= ECHO:
            self.shared.do(Fail(_mute(me.peer, size=size)))
            return
        self.stage, self.due, self._claimed = "claiming", math.inf, self.shared.now
        claim = Claim(me.incarnation, me.key)
        self.shared.do(Publish(f"in/{me.peer}", claim, receipt="claim", size=size))


def _mute(peer: str, *, size: int) -> TransportError:
    return TransportError(
        f"expected the broker to return our own message of {size} bytes within {ECHO:g} s, got nothing:"
        " lower transport.chunk, raise what it takes (message_size_limit of mosquitto), or see whether it "
        f'lets "{peer}" speak in its own name, as which transport.credentials or '
        "transport.certificate must show it (with transport.version = 5 it says so)"
    )
