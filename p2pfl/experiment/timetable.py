"""Timetable of a live peer: when a round may begin, and when a device of its own hours or bytes takes part.

All peers have the same ``every`` and ``hours``, and pause together. ``awake`` and ``bytes`` belong to one device, which
leaves the others when it sleeps. Hours are those of UTC, which has no summer time and is the same for all peers.
Times are seconds since 1970.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from p2pfl.core.errors import ExperimentError
from p2pfl.experiment.schema import PaceSettings

DAY = 86400.0
"""Seconds of a day."""

SKEW = 60.0
"""Seconds by which clocks of peers may differ: by as much a peer follows others that begin a round before it."""

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": DAY}
"""Seconds of the units of ``every``."""

SIZES = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
"""Bytes of the units of ``bytes``."""

MAX_PAUSE = 31 * DAY
"""Longest ``every``."""

RECENT_ROUNDS = 5
"""Number of last rounds whose bytes say how many the next one takes."""

EXCESSIVE_ROUNDS = 3
"""Rounds in a row above the bytes of a day after which a device gives up: one alone may be a flood by others."""

RECENT_DAYS = 4
"""Number of days whose bytes a device remembers, so that a clock which jumps and comes back loses none."""


@dataclass(frozen=True)
class Window:
    """Hours of every day.

    Parameters
    ----------
    begin, seconds
        Begin in seconds after midnight, and duration.
    """

    begin: float
    seconds: float

    def next(self, now: float) -> float:
        """Return the first time from ``now`` on that lies in the window."""
        passed = (now - self.begin) % DAY
        return now if passed < self.seconds else now + (DAY - passed)

    def left(self, now: float) -> float:
        """Return the seconds from ``now`` to the end of the window; 0 outside of it."""
        return max(0.0, self.seconds - (now - self.begin) % DAY)


def first_in(windows: Sequence[Window], now: float) -> float:
    """Return the first time from ``now`` on that lies in one of the windows; any time does where there are none.

    Examples
    --------
    >>> night = parse_hours("22:00-04:00, 12:00-12:30", key="hours")
    >>> [first_in(night, hour * 3600) / 3600 for hour in (1, 5, 12.25, 13)]
    [1.0, 12.0, 12.25, 22.0]
    """
    return min((window.next(now) for window in windows), default=now)


def left_of(windows: Sequence[Window], now: float) -> float:
    """Return the seconds from ``now`` to the end of the windows; infinite where there are none.

    Examples
    --------
    >>> night = parse_hours("22:00-04:00", key="hours")
    >>> [left_of(night, hour * 3600) / 3600 for hour in (23, 1, 5)], left_of((), 0.0)
    ([5.0, 3.0, 0.0], inf)
    """
    return max((window.left(now) for window in windows), default=math.inf)


@dataclass(frozen=True)
class Timetable:
    """Times at which rounds may begin, and at which one device takes part.

    Parameters
    ----------
    every
        Seconds from the begin of a round to that of the next, at least.
    hours
        Hours in which rounds begin; any time without them.
    awake
        Hours in which this device takes part; always without them.
    bytes
        Bytes that this device sends and receives on a day of UTC, at most; ``None`` without a limit.

    Examples
    --------
    >>> table = Timetable(every=600.0, hours=parse_hours("01:00-05:00", key="hours"))
    >>> table.due(began=None, now=0.0), table.due(began=3600.0, now=3700.0), table.due(began=17900.0, now=17950.0)
    (3600.0, 4200.0, 90000.0)
    """

    every: float = 0.0
    hours: tuple[Window, ...] = ()
    awake: tuple[Window, ...] = ()
    bytes: int | None = None

    @classmethod
    def of(cls, settings: PaceSettings | None) -> Timetable:
        """Return the timetable of settings.

        Raises
        ------
        ExperimentError
            A value is no duration, no hours, or no size; or the device sleeps whenever a round may begin.
        """
        if settings is None:
            return cls()
        table = cls(
            every=0.0 if settings.every is None else parse_duration(settings.every),
            hours=() if settings.hours is None else parse_hours(settings.hours, key="hours"),
            awake=() if settings.awake is None else parse_hours(settings.awake, key="awake"),
            bytes=None if settings.bytes is None else parse_size(settings.bytes),
        )
        begins = [window.begin for window in (*table.hours, *table.awake)]
        if begins and not any(first_in(table.hours, at) == at == first_in(table.awake, at) for at in begins):
            raise ExperimentError(
                f'transport.pace.awake is "{settings.awake}", outside of transport.pace.hours = "{settings.hours}" in '
                "which rounds begin; set it to hours some of which are among those"
            )
        return table

    @property
    def pauses(self) -> bool:
        """True if the peers pause between rounds."""
        return bool(self.every or self.hours)

    @property
    def sleeps(self) -> bool:
        """True if this device leaves the others from time to time."""
        return bool(self.awake) or self.bytes is not None

    @property
    def longest(self) -> float:
        """Seconds of the longest pause."""
        return self.every + (DAY if self.hours else 0.0)

    def due(self, *, began: float | None, now: float) -> float:
        """Return the time from which the next round may begin.

        Parameters
        ----------
        began
            Time at which the last round began; ``None`` before the first. One that is still to come, as after a reset
            of the clock, counts as now.
        now
            Present time.
        """
        earliest = now if began is None else max(now, min(began, now) + self.every)
        return first_in(self.hours, earliest)

    def follows(self, *, began: float | None, now: float) -> bool:
        """Return whether a peer that pauses begins a round because another one has: its own clock may be behind.

        It does at most :data:`SKEW` seconds, or a quarter of ``every``, before its own time or after the end of a
        window, so that a Byzantine neighbour cannot set the pace.
        """
        skew = min(SKEW, self.every / 4) if self.every else SKEW
        if began is not None and now < began + self.every - skew:
            return False
        return first_in(self.hours, now) <= now + skew or first_in(self.hours, now - skew) <= now

    def wakes(self, now: float, *, position: Position, total: int) -> float:
        """Return the first time from ``now`` on at which this device takes part in a round; ``now`` if it does.

        It takes part in the first round of a day whatever the last ones took, so that a flood keeps no device away for
        longer than the day.

        Parameters
        ----------
        now
            Time at which the round may begin.
        position
            Position of the device.
        total
            Bytes that it has sent and received in the run.
        """
        if self.bytes is not None and position.began is not None and _day(position.began) == _day(now):
            fits = position.spent(total, now=now) + max(position.rounds, default=0) <= self.bytes
            now = now if fits else DAY * (_day(now) + 1)
        return first_in(self.awake, now)


class Position(msgspec.Struct, frozen=True):
    """Position of a peer in its timetable, which its checkpoint keeps.

    Attributes
    ----------
    began
        Time at which its last round began; ``None`` before the first.
    days
        Bytes of the run that were sent and received before a day, by day since 1970, for the last few.
    rounds
        Bytes of the last few rounds.
    """

    began: float | None = None
    days: dict[int, int] = {}
    rounds: tuple[int, ...] = ()

    def spent(self, total: int, *, now: float) -> int:
        """Return the bytes of today, of a ``total`` of the run.

        Examples
        --------
        >>> Position(days={1: 100}).spent(250, now=DAY), Position(days={1: 100}).spent(250, now=2 * DAY)
        (150, 0)
        """
        return total - self.days.get(_day(now), total)

    def excess(self, limit: int) -> int | None:
        """Return the bytes of the smallest of the last rounds if they all took more than a limit; ``None`` otherwise.

        Examples
        --------
        >>> [Position(rounds=rounds).excess(5) for rounds in ((9, 9), (9, 8, 7), (9, 4, 9))]
        [None, 7, None]
        """
        last = self.rounds[-EXCESSIVE_ROUNDS:]
        return min(last) if len(last) == EXCESSIVE_ROUNDS and min(last) > limit else None

    def at(self, total: int, *, now: float) -> Position:
        """Return the position at ``now``, whose day begins with a ``total`` of bytes if it is a new one.

        A round that began in the future began now: the clock was ahead then, and is right now.
        """
        days = self.days
        if _day(now) not in days:
            days = dict([*days.items(), (_day(now), total)][-RECENT_DAYS:])
        began = None if self.began is None else min(self.began, now)
        return Position(began, days, self.rounds)

    def after(self, took: int) -> Position:
        """Return the position after a round that took some bytes."""
        return Position(self.began, self.days, (*self.rounds, took)[-RECENT_ROUNDS:])


def _day(now: float) -> int:
    """Return the day since 1970."""
    return math.floor(now / DAY)


_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([A-Za-z]+)\Z")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)\Z")


def parse_duration(text: str) -> float:
    """Return the seconds of a duration.

    Raises
    ------
    ExperimentError
        The text is none, or no pause of a second to 31 days.

    Examples
    --------
    >>> parse_duration("10 min"), parse_duration("1.5h")
    (600.0, 5400.0)
    """
    seconds = _quantity(text, UNITS)
    if not 1.0 <= seconds <= MAX_PAUSE:
        raise ExperimentError(
            f'transport.pace.every is "{text}"; set it to a duration from "1 s" to "31 d", such as "10 min" or "2 h"'
        )
    return seconds


def parse_size(text: str) -> int:
    """Return the bytes of a size.

    Raises
    ------
    ExperimentError
        The text is none.

    Examples
    --------
    >>> parse_size("50 MB"), parse_size("1.5kB")
    (50000000, 1500)
    """
    size = int(_quantity(text, SIZES))
    if size < 1:
        raise ExperimentError(f'transport.pace.bytes is "{text}"; set it to a size in kB, MB or GB, such as "50 MB"')
    return size


def _quantity(text: str, units: Mapping[str, float]) -> float:
    """Return a number times its unit; 0 where the text is none."""
    match = _QUANTITY.match(text)
    return float(match[1]) * units.get(match[2], 0.0) if match else 0.0


def parse_hours(text: str, *, key: str) -> tuple[Window, ...]:
    """Return windows of every day, in UTC, of a text such as ``01:00-05:00`` or ``22:00-04:00, 12:00-12:30``.

    Parameters
    ----------
    text, key
        The text, and its key in ``transport.pace``.

    Raises
    ------
    ExperimentError
        A part of the text is no window.
    """
    windows = []
    for part in text.split(","):
        match = _HOURS.match(part.strip())
        begin, end = (0, 0) if match is None else (_seconds_at(match[1], match[2]), _seconds_at(match[3], match[4]))
        if begin == end or end > DAY:
            raise ExperimentError(
                f'transport.pace.{key} is "{text}"; set it to hours of UTC such as "01:00-05:00", or several with '
                'commas between them, as "22:00-04:00, 12:00-12:30"'
            )
        windows.append(Window(float(begin), float((end - begin) % DAY or DAY)))
    return tuple(windows)


def _seconds_at(hours: str, minutes: str) -> int:
    """Return the seconds from midnight to a time of the day."""
    return 3600 * int(hours) + 60 * int(minutes)
