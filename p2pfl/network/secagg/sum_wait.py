"""Decisions of a receiver while it waits for a sum: whose messages are missing, what to repeat, when to give up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from p2pfl.core.errors import BudgetError
from p2pfl.network.protocol.session.shared import PULSE
from p2pfl.network.protocol.wire.messages import ForOne
from p2pfl.network.secagg.receiver import SumReceiver
from p2pfl.privacy.normal_stream import Ints

Phase = Literal["ready", "terms", "given", "withheld"]


@dataclass(frozen=True)
class Deadlines:
    """Times until which neighbours are worth waiting for.

    Parameters
    ----------
    present
        Function that returns the neighbours that are present.
    deadline
        Function that returns the deadline of a neighbour for which this peer waits since a time.
    """

    present: Callable[[], Collection[str]]
    deadline: Callable[[str, float], float]

    def open(self, waiting: Collection[str], *, since: float, now: float, each: bool = False) -> list[float]:
        """Return the deadlines that have not passed; none if the wait is over.

        Parameters
        ----------
        waiting
            Neighbours for which the peer waits.
        each
            True to wait for every neighbour as long as possible, rather than until the first one has exceeded its
            deadline.
        """
        present = self.present()
        times = [self.deadline(peer, since) for peer in waiting if peer in present]
        left = [when for when in times if when > now]
        return left if each or len(left) == len(waiting) else []


@dataclass
class SumWait:
    """The wait for one sum: for senders to be ready, then for the terms of the participant set.

    Parameters
    ----------
    sum_receiver
        Messages of the sum so far.
    senders
        Neighbours whose terms belong to the sum.
    deadlines
        Times until which they are worth waiting for.
    lacking
        Function that is called before anything is published for a sum that lacks a term; it may refuse the cost.
    since
        Time at which the wait begins.

    Attributes
    ----------
    phase
        Messages for which the peer waits; ``given`` or ``withheld`` at the end.
    total
        The sum, once it is ``given``.
    until
        Time of the next decision if no message arrives before it.
    """

    sum_receiver: SumReceiver
    senders: tuple[str, ...]
    deadlines: Deadlines
    lacking: Callable[[], None]
    since: float
    phase: Phase = "ready"
    total: Ints | None = None
    until: float = 0.0
    _sent: float = field(init=False)
    _out: list[tuple[tuple[str, ...], ForOne]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sent = self.since

    @property
    def over(self) -> bool:
        """True if the sum is given or withheld."""
        return self.phase in {"given", "withheld"}

    def due(self, now: float) -> bool:
        """Return whether :meth:`decide` would end the current phase."""
        return self.over or not self._missing_senders() or not self._open(now)

    def decide(self, now: float) -> list[tuple[tuple[str, ...], ForOne]]:
        """Continue as far as the messages allow; return what to publish, with the receivers.

        A refused privacy budget withholds the sum: the next release is refused as well.
        """
        try:
            while not self.over and self.due(now):
                self._end(now)
        except BudgetError:
            self.phase = "withheld"
            self._out.append((self.senders, self.sum_receiver.give_up()))
        if not self.over:
            self._repeat(now)
            self.until = min(*self._open(now), self._sent + PULSE)
        out, self._out = self._out, []
        return out

    def _end(self, now: float) -> None:
        """End a phase, because all of its messages are here or because it is not worth waiting for them."""
        complete, sum_receiver = not self._missing_senders(), self.sum_receiver
        self.since = self._sent = now
        if self.phase == "ready":
            self._call()
        elif not complete or not sum_receiver.called:
            self.phase = "withheld"
            self._out.append((self.senders, sum_receiver.give_up()))
        else:
            self.total, self.phase = sum_receiver.total(), "given"

    def _call(self) -> None:
        """Publish the participant set, once the cost of one that lacks a sender is accepted."""
        self.phase = "terms"
        if len(self.sum_receiver.here) < len(self.senders):
            self.lacking()
        self._out.append((self.senders, self.sum_receiver.close()))

    def _repeat(self, now: float) -> None:
        """Request, after a heartbeat's time, what is missing: terms that have not begun, or the rest of others."""
        sum_receiver = self.sum_receiver
        if now < self._sent + PULSE:
            return
        self._sent = now
        for peer, arrived in sum_receiver.lacking.items():
            again = sum_receiver.missing_pieces(peer) if arrived else sum_receiver.call
            if again is not None:
                self._out.append(((peer,), again))

    def _missing_senders(self) -> list[str]:
        """Return the neighbours whose messages of this phase are missing."""
        sum_receiver = self.sum_receiver
        if self.phase == "ready":
            here = sum_receiver.here
            return [peer for peer in self.senders if peer not in here and not sum_receiver.has_passed(peer)]
        return [*sum_receiver.lacking]

    def _open(self, now: float) -> list[float]:
        """Return the deadlines of the phase; a term whose sender has ended or goes on without it never comes."""
        sum_receiver, missing = self.sum_receiver, self._missing_senders()
        if self.phase == "terms" and (sum_receiver.ended or any(map(sum_receiver.has_passed, missing))):
            return []
        return self.deadlines.open(missing, since=self.since, now=now, each=self.phase == "ready")
