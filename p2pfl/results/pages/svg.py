"""Charts as inline SVG: curves with bands, and intervals side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from p2pfl.results.pages.markup import Markup, tag

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 44

POINTS = 400
"""Most points of a curve."""

COLOURS = 8
"""Colours that the style sheet has."""

ROW = 45
"""Height of an interval with its label."""

LONGEST = 62
"""Characters of a label that fit."""


@dataclass(frozen=True)
class Curve:
    """A curve of a chart.

    Attributes
    ----------
    label
        Name in the legend.
    xs, ys
        Its points; those that are not numbers are left out.
    low, high
        Band around it; empty without one.
    style
        Number of its colour and dashes; ``None`` for grey.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int | None = 0


@dataclass(frozen=True)
class Chart:
    """A chart, with a description for readers who do not see it.

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
    levels: Sequence[tuple[str, float]] = field(default=())
    log: bool = False
    whole: bool = False


def figure(chart: Chart, *, name: str) -> Markup | None:
    """Return a chart with caption and legend; ``None`` if it has nothing to show.

    Parameters
    ----------
    chart
        The chart.
    name
        Unique name in the page.
    """
    curves = [found for curve in chart.curves if (found := _clean(curve, log=chart.log)) is not None]
    if not curves:
        return None
    levels = [(label, value) for label, value in chart.levels if _shown(value, log=chart.log)]
    ys = [value for curve in curves for value in (*curve.ys, *curve.low, *curve.high)] + [value for _, value in levels]
    xs = [value for curve in curves for value in curve.xs]
    across, up = _Scale(min(xs), max(xs), whole=chart.whole), _Scale(min(ys), max(ys), log=chart.log, margin=0.04)
    parts = [*_axes(across, up, chart), *(_level(value, up, place) for place, (_, value) in enumerate(levels))]
    for curve in curves:
        parts += _curve(curve, across, up)
    drawn = drawing(name, chart.title, chart.description, parts, height=HEIGHT)
    entries = [(curve.label, _classes(curve.style)) for curve in curves]
    entries += [(f"{label}: {value:.3f}", f"plain dash{place % 3 + 1}") for place, (label, value) in enumerate(levels)]
    return tag("figure", tag("figcaption", chart.title), drawn, legend(entries) if len(entries) > 1 else None)


def figures(charts: Sequence[Chart], *, name: str) -> Markup | None:
    """Return those charts side by side that have something to show, named by number; ``None`` if none has."""
    drawn = [found for place, chart in enumerate(charts) if (found := figure(chart, name=f"{name}{place}"))]
    return tag("div", drawn, class_="figures") if drawn else None


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
    style
        Class of its colour.
    """

    label: str
    value: float
    half: float | None
    style: str = "plain"


def intervals(entries: Sequence[Interval], *, name: str, title: str, description: str, x: str) -> Markup | None:
    """Return intervals below each other, with a line at zero; ``None`` if there are none."""
    if not entries:
        return None
    ends = [end for each in entries for end in _ends(each)]
    across = _Scale(min(0.0, *ends), max(0.0, *ends), margin=0.05)
    height = TOP + ROW * len(entries) + BOTTOM
    parts = []
    for value in across.ticks():
        place = _x(across, value)
        parts.append(
            tag("line", x1=place, x2=place, y1=TOP, y2=height - BOTTOM, class_="axis" if value == 0 else "grid")
        )
        parts.append(tag("text", f"{value:g}", x=place, y=height - BOTTOM + 17, text_anchor="middle"))
    parts.append(tag("text", x, x=(LEFT + WIDTH - RIGHT) / 2, y=height - 8, text_anchor="middle"))
    for number, each in enumerate(entries):
        middle = TOP + ROW * number + 32
        low, high, centre = (_x(across, end) for end in (*_ends(each), each.value))
        label = each.label if len(each.label) <= LONGEST else f"{each.label[: LONGEST - 1]}…"
        parts.append(tag("text", label, x=LEFT - 44, y=middle - 13))
        if each.half is not None:
            parts.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"line {each.style}"))
            parts += [
                tag("line", x1=end, x2=end, y1=middle - 5, y2=middle + 5, class_=f"line {each.style}")
                for end in (low, high)
            ]
        parts.append(tag("circle", cx=centre, cy=middle, r=4, class_=each.style))
    return tag("figure", tag("figcaption", title), drawing(name, title, description, parts, height=height))


def _ends(each: Interval) -> tuple[float, float]:
    half = each.half or 0.0
    return each.value - half, each.value + half


@dataclass(frozen=True)
class _Scale:
    """Values along an axis, from 0 to 1."""

    low: float
    high: float
    log: bool = False
    margin: float = 0.0
    whole: bool = False

    def ends(self) -> tuple[float, float]:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        if high - low < 1e-12 * max(1.0, abs(high)):
            low, high = low - 0.5, high + 0.5
        more = self.margin * (high - low)
        return low - more, high + more

    def at(self, value: float) -> float:
        low, high = self.ends()
        return ((math.log10(value) if self.log else value) - low) / (high - low)

    def ticks(self) -> list[float]:
        low, high = self.ends()
        if self.log:
            powers = range(math.ceil(low), math.floor(high) + 1)
            found = [10.0**power for power in powers[:: max(1, len(powers) // 5)]]
            return found if len(found) > 1 else [10.0**low, 10.0**high]
        raw = max((high - low) / 5, 1.0 if self.whole else 0.0)
        power = 10.0 ** math.floor(math.log10(raw))
        nices = (1, 2, 5, 10) if self.whole else (1, 2, 2.5, 5, 10)
        step = next(power * nice for nice in nices if power * nice >= raw * (1 - 1e-9))
        first = math.ceil(low / step - 1e-9)
        return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(across: _Scale, up: _Scale, chart: Chart) -> Iterator[Markup]:
    bottom = HEIGHT - BOTTOM
    for value in up.ticks():
        place = _y(up, value)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=place, y2=place, class_="grid")
        yield tag("text", tick(value), x=LEFT - 8, y=place + 4, text_anchor="end")
    for value in across.ticks():
        place = _x(across, value)
        yield tag("line", x1=place, x2=place, y1=bottom, y2=bottom + 5, class_="axis")
        yield tag("text", tick(value), x=place, y=bottom + 19, text_anchor="middle")
    yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis")
    yield tag("text", chart.x, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, text_anchor="middle")
    yield tag(
        "text", chart.y, x=0, y=0, text_anchor="middle", transform=f"translate(13 {(TOP + bottom) / 2}) rotate(-90)"
    )


def _curve(curve: Curve, across: _Scale, up: _Scale) -> Iterator[Markup]:
    style = _classes(curve.style)
    if curve.low:
        there = _points(curve.xs, curve.high, across, up)
        back = _points(curve.xs, curve.low, across, up)[::-1]
        yield tag("polygon", points=" ".join(there + back), class_=f"band {style}")
    points = _points(curve.xs, curve.ys, across, up)
    if len(points) == 1:
        x, _, y = points[0].partition(",")
        yield tag("circle", cx=x, cy=y, r=4, class_=style)
    else:
        yield tag("polyline", points=" ".join(points), class_=f"line {style}")


def _level(value: float, up: _Scale, place: int) -> Markup:
    y = _y(up, value)
    return tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_=f"line plain dash{place % 3 + 1}")


def _points(xs: Sequence[float], ys: Sequence[float], across: _Scale, up: _Scale) -> list[str]:
    return [f"{_x(across, x)},{_y(up, y)}" for x, y in zip(xs, ys, strict=True)]


def _x(scale: _Scale, value: float) -> float:
    return round(LEFT + scale.at(value) * (WIDTH - RIGHT - LEFT), 1)


def _y(scale: _Scale, value: float) -> float:
    return round(HEIGHT - BOTTOM - scale.at(value) * (HEIGHT - BOTTOM - TOP), 1)


def drawing(name: str, title: str, description: str, parts: Iterable[Markup], *, height: int) -> Markup:
    """Return an SVG image of the usual width, with a title and a description for readers who do not see it."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="chart",
    )


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Return the legend of labels, each with the classes of its line."""

    def sample(classes: str) -> Markup:
        line = tag("line", x1=0, x2=26, y1=5, y2=5, class_=f"line {classes}")
        return tag("svg", line, viewBox="0 0 26 10", aria_hidden="true")

    return tag("ul", [tag("li", sample(classes), label) for label, classes in entries], class_="legend")


def _classes(style: int | None) -> str:
    if style is None:
        return "plain"
    dashes = (style + style // COLOURS) % 4  # no two of the first 32 styles are alike
    return f"c{style % COLOURS}" + (f" dash{dashes}" if dashes else "")


def _clean(curve: Curve, *, log: bool) -> Curve | None:
    """Return a curve without points that cannot be drawn, thinned out; ``None`` if nothing is left."""
    low, high = curve.low or curve.ys, curve.high or curve.ys
    kept = [
        point
        for point in zip(curve.xs, curve.ys, low, high, strict=True)
        if math.isfinite(point[0]) and all(_shown(value, log=log) for value in point[1:])
    ]
    if not kept:
        return None
    step = math.ceil(len(kept) / POINTS)
    last = kept[-1]
    kept = kept[::step]
    if kept[-1] != last:
        kept.append(last)
    xs, ys, low, high = (list(values) for values in zip(*kept, strict=True))
    if not curve.low:
        low, high = [], []
    return Curve(curve.label, xs, ys, low, high, style=curve.style)


def _shown(value: float, *, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def tick(value: float) -> str:
    """Return the label of a tick.

    Examples
    --------
    >>> tick(0.25), tick(1200000.0), tick(0.0001)
    ('0.25', '1.2M', '1e-04')
    """
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:g}M"
    if size >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:g}" if size >= 1e-3 or not value else f"{value:.0e}"
