"""Between two peers at the end: what was exchanged is compared, who is gone is found, and a goodbye comes last."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from p2pfl.protocol.session.effects import Clear, Flush, Left, Settled, Vanished
from p2pfl.protocol.session.events import Compare, Finish, Leave, Stop
from p2pfl.protocol.session.presence import Presence
from p2pfl.protocol.session.sending import Sending
from p2pfl.protocol.session.shared import PULSE, Shared
from p2pfl.protocol.session.streams import Streams
from p2pfl.protocol.session.waiting import Waiting


@dataclass
class Settling:
    """Send accounts again and again, until no partner is silent but those that are gone or hang.

    Attributes
    ----------
    about
        In which ledger partners are to have finished, or ``"accounts"``; ``None`` while nothing is settled.
    """

    shared: Shared
    sending: Sending
    waiting: Waiting
    about: Literal["masks", "flows", "accounts"] | None = None
    _partners: frozenset[str] = frozenset()  # whose accounts are wanted
    _since: float = 0.0
    _told: float = 0.0

    def begin(self, asked: Finish | Compare | Stop) -> None:
        """Promise what is asked for, and send the first account."""
        books = self.shared.books
        match asked:
            case Finish(ledger):
                (books.masks if ledger == "masks" else books.flows).finish()
                self.about = ledger
            case Compare(partners):
                self.about, self._partners = "accounts", partners
            case Stop():
                books.masks.finish()
                books.flows.finish()
                self.about, self._partners = "accounts", frozenset()
        self._since = self._told = self.shared.now
        self.sending.tell()

    @property
    def active(self) -> bool:
        """Whether partners are waited for, and an account is not about to be sent."""
        return self.about is not None and not self.sending.pending

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        return self._told + PULSE

    def decide(self) -> None:
        """Answer, if nobody is to be waited for; else send the account again from time to time."""
        now = self.shared.now
        silent = self.shared.membership.present & self._silent()
        if not any(now < self.waiting.deadline(partner, since=self._since) for partner in silent):
            self.about = None
            self.shared.do(Settled())
        elif now >= self._told + PULSE:  # somebody may not have heard
            self._told = now
            self.sending.tell()

    def _silent(self) -> frozenset[str]:
        books = self.shared.books
        if self.about == "masks":
            return books.masks.partners - books.masks.finished
        if self.about == "flows":
            return books.flows.partners - books.flows.finished
        return self._partners - books.told


@dataclass
class Search:
    """Find the neighbours that are gone without a goodbye, or were missed at last and give no sign of life.

    Attributes
    ----------
    missed
        Who was; ``None`` while nobody is searched for.
    """

    shared: Shared
    missed: frozenset[str] | None = None
    _since: float = 0.0

    def begin(self, missed: frozenset[str]) -> None:
        """Listen for those who were missed."""
        self.missed, self._since = missed, self.shared.now

    @property
    def active(self) -> bool:
        """Whether anybody is searched for."""
        return self.missed is not None

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        return min(self.shared.now + PULSE, self._since + self.shared.patience)

    def decide(self) -> None:
        """Answer, once each has given a sign of life or been silent for long enough."""
        assert self.missed is not None  # noqa: S101 (somebody is searched for while this is active)
        shared = self.shared
        detector, now = shared.timeouts.detector, shared.now
        missing = shared.membership.greeted & self.missed
        silent = {peer for peer in missing if detector.silent(peer, since=self._since)}
        if silent - detector.suspected(now=now) and now < self._since + shared.patience:
            return
        self.missed = None
        shared.do(Vanished(shared.membership.vanished | silent))


@dataclass
class Leaving:
    """Wait until what was sent has arrived; then all that is to be published is, and a goodbye is the last of it.

    Attributes
    ----------
    asked
        How the peer leaves; ``None`` until it does.
    """

    shared: Shared
    streams: Streams
    sending: Sending
    presence: Presence
    asked: Leave | None = None
    _stage: Literal["waiting", "flushing", "goodbye", "clearing", "gone"] = "waiting"

    @property
    def active(self) -> bool:
        """Whether the peer leaves, and waits until what it sent has arrived."""
        return self.asked is not None and self._stage == "waiting" and not self.sending.pending

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        return math.inf if self.asked is None else self.asked.until

    def decide(self) -> None:
        """Go on once all has arrived, or at the deadline."""
        if self.streams.idle or self.shared.now >= self.wake:
            self._stage = "flushing"
            self.shared.do(Flush())

    def flushed(self) -> None:
        """Say goodbye."""
        if self.asked is not None and self._stage == "flushing":
            self._stage = "goodbye"
            self.presence.say_goodbye(done=self.asked.done, receipt="goodbye")

    def confirmed(self, receipt: str) -> None:
        """Clear the goodbye, unless it is kept for those who go around this peer."""
        if receipt == "goodbye" and self.asked is not None:
            kept = not self.asked.done and bool(self.shared.membership.names)
            self._stage = "gone" if kept else "clearing"
            self.shared.do(Left() if kept else Clear("cleared"))
        elif receipt == "cleared":
            self._stage = "gone"
            self.shared.do(Left())
