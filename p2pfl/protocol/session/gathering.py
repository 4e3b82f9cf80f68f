"""How long a peer waits for its neighbours before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from p2pfl.protocol.membership import missing
from p2pfl.protocol.session.effects import Gathered
from p2pfl.protocol.session.presence import Presence
from p2pfl.protocol.session.shared import Shared
from p2pfl.protocol.session.streams import Streams


@dataclass
class Gathering:
    """Wait until all have come whom there is reason to wait for, or the time is over.

    Attributes
    ----------
    deadline
        When the time is over; infinite while nobody gathers.
    """

    shared: Shared
    streams: Streams
    presence: Presence
    deadline: float = math.inf
    _quorum: float = 1.0
    _within: float = 0.0

    def begin(self, *, quorum: float, within: float) -> None:
        """Wait from now on, for so many seconds."""
        self._quorum, self._within, self.deadline = quorum, within, self.shared.now + within

    @property
    def active(self) -> bool:
        """Whether the peer gathers."""
        return self.deadline < math.inf

    @property
    def wake(self) -> float:
        """When to decide again although nothing came."""
        # Those that go on from a checkpoint begin at their deadline, and then say where.
        return self.deadline if self.shared.now < self.deadline else self.deadline + self._within

    def decide(self) -> None:
        """Answer, if nobody is to be waited for any more."""
        now, membership = self.shared.now, self.shared.membership
        complete = membership.complete(quorum=self._quorum)
        if not self._gathered():
            if now < self.deadline or (self._untold() and complete and now < self.deadline + self._within):
                return
            if not (self.shared.progress.running or complete):
                self._answer(Gathered(missing(membership, within=self._within)))
                return
        self._answer(Gathered())

    def _answer(self, answer: Gathered) -> None:
        self.deadline = math.inf
        self.shared.do(answer)

    def _gathered(self) -> bool:
        """Return whether all have come whom there is reason to wait for."""
        membership, progress = self.shared.membership, self.shared.progress
        if any(self.shared.me.rounds) and membership.over:
            return True
        if not self.presence.acquainted or membership.greeted & membership.neighbours > membership.present:
            return False
        if progress.running:  # who is not there now comes late, too, as do those who gather like us
            here = self.streams.senders & membership.present
            return here <= progress.places.keys() | progress.gathering
        return not (membership.absent or membership.silent or self._untold())

    def _untold(self) -> set[str]:
        """Return neighbours that resumed from a checkpoint and have not reported their round yet.

        They may be ahead of a peer that has nothing to go on from.
        """
        here = self.streams.senders & self.shared.membership.present
        resumed = {peer for peer in here if any(self.shared.membership.up[peer].rounds)}  # more than the common start
        return set() if self.shared.me.rounds else resumed - self.shared.progress.places.keys()
