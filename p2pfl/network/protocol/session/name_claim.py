"""Entry of a peer: it checks that its name is not in use before it announces itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from p2pfl.core.errors import PeerError, TransportError
from p2pfl.network.protocol.interface.effects import Entered, Fail, Publish, Subscribe
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.messages import Announcement, Claim

ECHO = 30.0
"""Seconds within which the broker must return this peer's own message.

It is longer than the keepalive, after which a dead connection ends.
"""

PROOF = 2.0
"""Seconds within which a peer of the same name must answer a claim."""

Stage = Literal["outside", "subscribing", "claiming", "proving", "announcing", "inside"]


@dataclass
class NameClaim:
    """Stages from the first subscription to the announcement.

    The peer publishes a claim to its own inbox, and a peer of the same name answers it. Once the broker returns the
    claim, all retained messages have arrived, and messages of that size pass. The peer repeats the claim, because
    brokers restart, or acknowledge messages and then drop them.

    Attributes
    ----------
    stage
        Current stage.
    echoed
        True if the broker has returned a claim.
    namesake
        Announcement that the broker retains under this peer's name.
    quarrel
        Error about a neighbour that runs another experiment; it is raised only once this peer is announced, so that
        the neighbour can detect the difference as well.
    due
        Time at which to claim again, or to consider the name free.
    """

    shared: Shared
    stage: Stage = "outside"
    echoed: bool = False
    namesake: Announcement | None = None
    quarrel: PeerError | None = None
    due: float = math.inf
    _size: int = 0
    _claimed: float = 0.0
    _pause: float = 0.0
    _waited: float = 0.0

    @property
    def inside(self) -> bool:
        """True if this peer is announced."""
        return self.stage == "inside"

    def enter(self, paths: tuple[str, ...], *, size: int) -> None:
        """Subscribe to the topics that this peer must receive before it publishes a claim of ``size`` bytes."""
        self.stage, self._size = "subscribing", size
        self.shared.do(Subscribe(paths, receipt="places"))

    def confirm(self, receipt: str) -> None:
        """Continue once the broker has confirmed a subscription or a message."""
        if receipt == "places" and self.stage == "subscribing":
            self._claim()
        elif receipt == "claim" and self.stage == "claiming":
            self._pause = min(PULSE + 2 * (self.shared.now - self._claimed), ECHO / 4)
            self.due = self.shared.now + self._pause
        elif receipt == "announced" and self.stage == "announcing":
            self.stage = "inside"
            self.shared.do(Entered() if self.quarrel is None else Fail(self.quarrel))

    def echo(self) -> None:
        """Handle this peer's own claim, which the broker has returned."""
        self.echoed = True
        if self.stage == "claiming":
            self.stage, self.due = "proving", self.shared.now
            if self.namesake is not None and self.namesake.status == "up":
                self.due += PROOF  # if it is alive, it answers, and this peer fails

    def tick(self) -> None:
        """Repeat a claim that was not returned in time, or announce this peer if no other peer has answered."""
        if self.shared.now < self.due:
            return
        self.due = math.inf
        if self.stage == "proving":
            self.stage = "announcing"
            announcement = self.shared.codec.announcement("up")
            self.shared.do(Publish("state", announcement, retain=True, receipt="announced"))
        elif self.stage == "claiming":
            self._waited += self._pause  # not measured by the clock, because this process may have been suspended
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
        f"the broker did not return this peer's own message of {size} bytes within {ECHO:g} s; lower transport.chunk, "
        "raise the broker's limit (message_size_limit of mosquitto), or check that the broker lets the client that "
        f'transport.credentials or transport.certificate names publish as "{peer}" (with transport.mqtt.version = 5 '
        "the broker reports a refusal)"
    )
