"""Wait of a peer for its neighbours before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass

from p2pfl.network.protocol.interface.effects import Gathered
from p2pfl.network.protocol.interface.requests import Gather
from p2pfl.network.protocol.membership.membership import absence_error
from p2pfl.network.protocol.session.presence import Presence
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.session.streams import Streams
from p2pfl.network.protocol.timing.timeouts import WAIT_PULSE

QUICK_BEATS = 4
"""Number of heartbeats, a period apart, after anything has changed; then the pauses between them double."""

INTRODUCTION = 60.0
"""Longest time in seconds after which a peer that waits announces itself again.

A neighbour that appears is answered at once: each sees the announcement that the broker retains of the other one, or
that the other one publishes. Repeated announcements are for brokers that drop both.
"""


@dataclass
class StartWait:
    """Wait for all neighbours that are expected to arrive, up to a deadline.

    The longer nothing changes, the less a peer sends that waits: heartbeats up to :data:`WAIT_PULSE` seconds apart, and
    its announcement up to :data:`INTRODUCTION` seconds. Once anything changes, it begins again with short pauses.

    Attributes
    ----------
    deadline
        Time at which the wait ends; infinite without a limit.
    active
        True while the peer waits for its neighbours.
    news
        True if the next heartbeat is due within a period, because something has changed.
    """

    shared: Shared
    streams: Streams
    presence: Presence
    deadline: float = math.inf
    active: bool = False
    news: bool = False
    _beats: int = 0  # since something has changed
    _gap: float = 0.0  # between two introductions
    _introduced: float = 0.0  # time of the last introduction
    _known: object = None  # what has to stay the same for the pauses to grow
    _quorum: float = 1.0
    _within: float = 0.0
    _together: bool = False

    def begin(self, asked: Gather) -> None:
        """Begin to wait."""
        self._quorum, self._within, self._together = asked.quorum, asked.within, asked.together
        self.deadline, self.active = self.shared.now + asked.within, True
        self.shared.active.add("gathering")
        self.note_change()

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        # Peers that resume from a checkpoint begin at their deadline and only then report their round.
        return self.deadline if self.shared.now < self.deadline else self.deadline + self._within

    def note_change(self) -> None:
        """Begin again with short pauses, also where a wait that ends was quiet."""
        self.news, self._beats, self._gap = True, 0, PULSE

    def beat(self) -> float:
        """Return the seconds until the next heartbeat."""
        if not self.active or self.shared.membership.begun:
            return PULSE
        self._beats += 1
        return min(WAIT_PULSE, PULSE * 2.0 ** max(0, self._beats - QUICK_BEATS))

    def introduces(self) -> bool:
        """Return whether this peer repeats its announcement, and keys that were not answered, with this heartbeat."""
        if not self.active or self.shared.membership.begun:
            return True
        if self.shared.now < self._introduced + self._gap:
            return False
        self._introduced, self._gap = self.shared.now, min(INTRODUCTION, 2 * self._gap)
        return True

    def _follow_changes(self) -> None:
        """Note whether a neighbour came, went, restarted, met this peer or reported its round."""
        membership, progress = self.shared.membership, self.shared.progress
        known = (
            membership.present,
            frozenset(membership.proven),
            self.presence.acquainted,
            {peer: (each.incarnation, each.turn) for peer, each in membership.up.items()},
            frozenset(progress.places),
            frozenset(progress.gathering),
        )
        if known != self._known:
            self._known = known
            self.note_change()

    def decide(self) -> None:
        """Answer if there is no neighbour left to wait for."""
        self._follow_changes()
        now, membership = self.shared.now, self.shared.membership
        complete = membership.complete(quorum=self._quorum)
        if not self._all_present():
            if now < self.deadline or (
                self._unreported_neighbours() and complete and now < self.deadline + self._within
            ):
                return
            if not (self.shared.running or complete):
                self._answer(Gathered(absence_error(membership, within=self._within)))
                return
        self._answer(Gathered())

    def _answer(self, answer: Gathered) -> None:
        self.active = False
        self.note_change()
        self.shared.do(answer)

    def _all_present(self) -> bool:
        """Return whether all neighbours that are expected to arrive are present."""
        membership, progress = self.shared.membership, self.shared.progress
        if any(self.shared.me.rounds) and membership.over:
            return True
        if self._together:  # those that run are earlier incarnations, which are about to end
            reported = self.streams.senders <= progress.places.keys() | progress.gathering
            return membership.present >= membership.neighbours and reported and not self.shared.running
        if not self.presence.acquainted or membership.greeted & membership.neighbours > membership.present:
            return False
        if self.shared.running:  # peers still missing are late as well, and so are those that gather
            here = self.streams.senders & membership.present
            return here <= progress.places.keys() | progress.gathering
        return not (membership.absent or self._unreported_neighbours())

    def _unreported_neighbours(self) -> set[str]:
        """Return the neighbours that resumed from a checkpoint and have not reported their round yet.

        They may be ahead of a peer that has no checkpoint.
        """
        here = self.streams.senders & self.shared.membership.present
        resumed = {peer for peer in here if any(self.shared.membership.up[peer].rounds)}  # more than the common start
        return set() if self.shared.me.rounds else resumed - self.shared.progress.places.keys()
