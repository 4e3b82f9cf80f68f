"""The state of a swarm at any time of its run, without applying all events again."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from operator import itemgetter

from p2pfl.results.swarm.state import Entry, Setting, Swarm

MOST = 16
"""Largest number of states that are kept on the way; beyond it, every second one is dropped."""

APART = 1000
"""Number of events from one kept state to the next, at first."""

when = itemgetter(0)


class Timeline:
    """Events in the order of their times, and the states that they lead to.

    A state is found from the nearest kept one before it, so a step back costs no more than some events.

    Parameters
    ----------
    setting
        Facts that the events do not repeat.

    Examples
    --------
    >>> timeline = Timeline(Setting(peers=("ada",)))
    >>> timeline.span, timeline.swarm(3.0).count
    (0.0, 0)
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._events: list[tuple[float, Entry]] = []
        self._kept: dict[int, Swarm] = {}  # by number of events
        self._apart = APART
        self._first = Swarm(setting)
        self._swarm, self._next = self._first.copy(), 0

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._events)

    @property
    def span(self) -> float:
        """Time of the last event in seconds since the start of the run."""
        return self._events[-1][0] if self._events else 0.0

    def extend(self, events: Iterable[tuple[float, Entry]]) -> None:
        """Take events with their times; they may be earlier than some that are here."""
        fresh = sorted(events, key=when)
        if not fresh:
            return
        place = bisect.bisect_right(self._events, fresh[0][0], key=when)
        self._events[place:] = sorted([*self._events[place:], *fresh], key=when)
        if place < self._next:
            self._swarm, self._next = self._first.copy(), 0
        self._kept = {count: swarm for count, swarm in self._kept.items() if count <= place}

    def keep(self, most: int) -> None:
        """Drop the older half of the events if there are more than ``most``; the replay begins where they end."""
        if len(self._events) <= most:
            return
        half = len(self._events) // 2
        first, later = self._first, self._events[half:]
        for event in self._events[:half]:
            first.apply(*event)
        self.clear()
        self._events, self._first = later, first
        self._swarm = first.copy()

    def clear(self) -> None:
        """Forget all events."""
        self._events, self._kept, self._apart = [], {}, APART
        self._first = Swarm(self._setting)
        self._swarm, self._next = self._first.copy(), 0

    def swarm(self, at: float) -> Swarm:
        """Return the state at a time; it is valid until the next call."""
        until = bisect.bisect_right(self._events, at, key=when)
        before = max((count for count in self._kept if count <= until), default=0)
        if not before <= self._next <= until:
            self._swarm = self._kept[before].copy() if before else self._first.copy()
            self._next = before
        for number in range(self._next, until):
            self._swarm.apply(*self._events[number])
            if (number + 1) % self._apart == 0 and number + 1 not in self._kept:
                self._keep(number + 1)
        self._next = until
        return self._swarm

    def _keep(self, count: int) -> None:
        self._kept[count] = self._swarm.copy()
        if len(self._kept) > MOST:
            self._apart *= 2
            self._kept = {number: swarm for number, swarm in self._kept.items() if number % self._apart == 0}
