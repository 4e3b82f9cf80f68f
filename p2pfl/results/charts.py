"""Charts as facts, and curves of records over rounds and bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from p2pfl.results.records import Record

MAX_POINTS = 400
"""Points of a curve."""


@dataclass(frozen=True)
class Curve:
    """A curve of a chart.

    Attributes
    ----------
    label
        Name in the legend.
    xs, ys
        Its points.
    low, high
        Band around it; empty without one.
    style
        Number of its colour and stroke; ``None`` for grey.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int | None = 0

    def clean(self, *, log: bool) -> Curve:
        """Return the curve without points that cannot be drawn, thinned out."""
        columns = [self.xs, self.ys, *([self.low, self.high] if self.low else [])]
        points = [
            point
            for point in zip(*columns, strict=True)
            if all(map(math.isfinite, point)) and (not log or min(point[1:]) > 0)
        ]
        last = len(points) - 1
        step = max(1, math.ceil(len(points) / MAX_POINTS))
        kept = [point for number, point in enumerate(points) if number % step == 0 or number == last]
        xs, ys, *band = ([*column] for column in zip(*kept, strict=True)) if kept else ([], [])
        low, high = band or ((), ())
        return replace(self, xs=xs, ys=ys, low=low, high=high)


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    title, description
        Title, and description of what can be seen.
    x, y
        Labels of the axes.
    curves
        The curves.
    levels
        Names and values of horizontal lines.
    log
        True if the vertical axis is logarithmic.
    whole
        True if the horizontal axis counts something, such as rounds.
    """

    title: str
    description: str
    x: str
    y: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()
    log: bool = False
    whole: bool = False

    def clean(self) -> list[Curve]:
        """Return the curves that have something to show."""
        return [curve for each in self.curves if (curve := each.clean(log=self.log)).xs]


@dataclass(frozen=True)
class Interval:
    """An interval of a list.

    Attributes
    ----------
    label
        Its name.
    value
        Its centre.
    half
        Half of its width; ``None`` for a value without an interval.
    colour
        Its colour.
    weight
        Share of a pooled value; ``None`` for a value that is not pooled.
    pooled
        True for a pooled value, which is a diamond.
    """

    label: str
    value: float
    half: float | None
    colour: str
    weight: float | None = None
    pooled: bool = False


def score(name: str) -> Callable[[Record], float | None]:
    """Return a function that takes a score from a record."""
    return lambda record: record.scores.get(name)


def curve_over_rounds(
    rounds: Mapping[int, Sequence[Record]],
    value: Callable[[Record], float | None],
    *,
    label: str,
    style: int | None = 0,
    highest: bool = False,
) -> Curve:
    """Return the mean of a value over the peers by round, with a band from the smallest to the largest."""
    points: list[tuple[float, float, float, float]] = []
    for round, records in rounds.items():
        values = [number for record in records if (number := value(record)) is not None]
        if values:
            mean = max(values) if highest else sum(values) / len(values)
            points.append((round + 1, mean, min(values), max(values)))
    xs, ys, low, high = (list(column) for column in zip(*points, strict=True)) if points else ([], [], [], [])
    band: tuple[list[float], list[float]] = (low, high) if low != high and not highest else ([], [])
    return Curve(label, xs, ys, *band, style=style)


def sent_megabytes(rounds: Mapping[int, Sequence[Record]]) -> dict[int, float]:
    """Return the megabytes sent after each round, counted from 0; those of peers that are gone stay."""
    sent: dict[str, int] = {}
    total: dict[int, float] = {}
    for round, records in rounds.items():
        sent |= {record.peer: record.bytes_out for record in records}
        total[round] = sum(sent.values()) / 1e6
    return total
