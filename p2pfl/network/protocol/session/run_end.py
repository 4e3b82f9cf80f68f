"""End of a run between peers: comparison of ledgers, and the goodbye."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from p2pfl.network.protocol.interface.effects import Clear, Flush, Left, Settled
from p2pfl.network.protocol.interface.requests import Finish, Leave, Stop
from p2pfl.network.protocol.session.model_sender import ModelSender
from p2pfl.network.protocol.session.model_wait import ModelWait
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.session.streams import Streams


@dataclass
class AccountSettlement:
    """Repeated accounts to partners, until each partner has answered, is gone or hangs.

    Attributes
    ----------
    about
        What partners must have promised, or ``"accounts"``; ``None`` while no request to settle is pending.
    """

    shared: Shared
    sending: ModelSender
    waiting: ModelWait
    about: Literal["releases", "flows", "accounts"] | None = None
    _since: float = 0.0
    _reported: float = 0.0

    def begin(self, asked: Finish | Stop) -> None:
        """Make the requested promise, and send the first account."""
        ledgers = self.shared.ledgers
        match asked:
            case Finish(about):
                (ledgers.masks if about == "releases" else ledgers.flows).finish()
                self.about = about
            case Stop():
                ledgers.masks.finish()
                ledgers.flows.finish()
                self.about = "accounts"
        self._since = self._reported = self.shared.now
        self.shared.active.add("settling")
        self.sending.report()

    @property
    def active(self) -> bool:
        """True if this peer waits for partners."""
        return self.about is not None

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return math.inf if self.sending.pending else self._reported + PULSE

    def decide(self) -> None:
        """Answer if there is no partner left to wait for; otherwise send the account every ``PULSE`` seconds."""
        if self.sending.pending:
            return  # an account is about to be sent
        now = self.shared.now
        silent = self.shared.membership.present & self._silent()
        if not any(now < self.waiting.deadline(partner, since=self._since) for partner in silent):
            self.about = None
            self.shared.do(Settled())
        elif now >= self._reported + PULSE:  # a partner may have missed it
            self._reported = now
            self.sending.report()

    def _silent(self) -> frozenset[str]:
        ledgers = self.shared.ledgers
        if self.about == "releases":
            return ledgers.masks.partners - ledgers.over
        if self.about == "flows":
            return ledgers.flows.partners - ledgers.flows.finished
        return frozenset()


@dataclass
class Departure:
    """Departure of this peer: sent messages arrive, the queue is published, and the goodbye comes last.

    Attributes
    ----------
    asked
        Request to leave; ``None`` before it.
    """

    shared: Shared
    streams: Streams
    sending: ModelSender
    presence: Presence
    asked: Leave | None = None
    _stage: Literal["waiting", "flushing", "goodbye", "clearing", "gone"] = "waiting"

    def begin(self, asked: Leave) -> None:
        """Begin to leave."""
        self.asked = asked
        self.shared.active.add("leaving")

    @property
    def active(self) -> bool:
        """True if the peer leaves and waits until its messages have arrived."""
        return self.asked is not None and self._stage == "waiting"

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return math.inf if self.asked is None or self.sending.pending else self.asked.until

    def decide(self) -> None:
        """Continue once all messages have arrived, or at the deadline."""
        if not self.sending.pending and (self.streams.idle or self.shared.now >= self.wake):
            self._stage = "flushing"
            self.shared.do(Flush())

    def send_goodbye(self) -> None:
        """Send the goodbye."""
        if self.asked is not None and self._stage == "flushing":
            self._stage = "goodbye"
            self.presence.say_goodbye(done=self.asked.done, receipt="goodbye")

    def confirm(self, receipt: str) -> None:
        """Clear the goodbye."""
        if receipt == "goodbye" and self.asked is not None:
            self._stage = "clearing"
            self.shared.do(Clear("cleared"))
        elif receipt == "cleared":
            self._stage = "gone"
            self.shared.do(Left())
