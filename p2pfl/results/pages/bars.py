"""Histograms and tables of correlations as inline SVG and HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from p2pfl.results.pages.markup import Markup, tag
from p2pfl.results.pages.svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, drawing, legend, tick

MOST_LEVELS = 12
"""Levels of a column that a chart shows."""

LANE, NAMES, VALUES = 18, 110, 70
"""Height of a horizontal bar with its space, and width of the names before and the values behind it."""

LETTER = 7.5
"""Width of a letter of a name."""


@dataclass(frozen=True)
class Segment:
    """Part of stacked bars.

    Attributes
    ----------
    label
        Name in the legend.
    colour
        Class of its colour.
    """

    label: str
    colour: str


def stacked(
    rows: Mapping[str, Sequence[float]],
    parts: Sequence[Segment],
    *,
    title: str,
    name: str,
    form: Callable[[float], str],
    names: int = NAMES,
) -> Markup | None:
    """Return stacked horizontal bars, one below the other; ``None`` if all are zero.

    Parameters
    ----------
    rows
        By name of the bar, the length of each part, in the order of ``parts``.
    parts
        Names and colours of the parts.
    title, name
        Title, and unique name in the page.
    form
        Function that writes a total.
    names
        Width of the names.
    """
    letters = int(names / LETTER)
    most = max(map(sum, rows.values()), default=0.0)
    if most <= 0:
        return None
    scale = (WIDTH - names - VALUES) / most
    drawn = []
    for place, (row, lengths) in enumerate(rows.items()):
        top, x = place * LANE, float(names)
        drawn.append(tag("text", row if len(row) <= letters else f"{row[: letters - 1]}…", x=0, y=top + 13))
        for part, length in zip(parts, lengths, strict=True):
            if length > 0:
                drawn.append(
                    tag("rect", x=round(x, 1), y=top + 3, width=round(length * scale, 1), height=12, class_=part.colour)
                )
            x += length * scale
        drawn.append(tag("text", form(sum(lengths)), x=round(x + 6, 1), y=top + 13))
    longest = max(rows, key=lambda row: sum(rows[row]))
    about = f"{len(rows)} bars; the longest is that of {longest}, {form(most)}."
    image = drawing(name, title, about, drawn, height=LANE * len(rows) + 4)
    entries = legend([(part.label, part.colour) for part in parts]) if len(parts) > 1 else None
    return tag("figure", tag("figcaption", title), image, entries)


def histogram(
    edges: Sequence[float], counts: Sequence[int | None], *, title: str, name: str, hidden: str
) -> Markup | None:
    """Return a histogram; bins that are not stated are hatched by a dashed line at their foot.

    Parameters
    ----------
    edges, counts
        Ends of the bins, and values in each; ``None`` where it is not stated.
    title, name
        Title, and unique name in the page.
    hidden
        Meaning of a count that is not stated, for the description.
    """
    if not counts or edges[0] == edges[-1]:
        return None
    top = max((count or 0 for count in counts), default=0)
    if not top:
        return None
    across = (WIDTH - LEFT - RIGHT) / len(counts)
    bottom = HEIGHT - BOTTOM
    parts = list(_up(top))
    for place, count in enumerate(counts):
        x = LEFT + across * place
        if count is None:
            parts.append(
                tag(
                    "line",
                    x1=round(x + 1, 1),
                    x2=round(x + across - 1, 1),
                    y1=bottom - 3,
                    y2=bottom - 3,
                    class_="line c1 dash2",
                )
            )
        elif count:
            height = count / top * (bottom - TOP)
            parts.append(_bar(x + 0.5, bottom - height, across - 1, height))
    steps = range(0, len(edges), max(1, (len(edges) - 1) // 4))
    for place in steps:
        x = LEFT + across * place
        parts.append(tag("line", x1=round(x, 1), x2=round(x, 1), y1=bottom, y2=bottom + 5, class_="axis"))
        anchor = "end" if x > WIDTH - RIGHT - across / 2 else "middle"
        parts.append(tag("text", tick(_short(edges[place])), x=round(x, 1), y=bottom + 19, text_anchor=anchor))
    about = f"{top} values in the fullest of {len(counts)} bins from {edges[0]:.4g} to {edges[-1]:.4g}."
    if None in counts:
        about += f" A dashed foot: {hidden}."
    return _figure(title, about, parts, name=name)


def levels(counts: Sequence[tuple[str, int | None]], *, title: str, name: str, hidden: str) -> Markup | None:
    """Return bars of the samples of each level, the first ones of many."""
    shown = list(counts[:MOST_LEVELS])
    top = max((count or 0 for _, count in shown), default=0)
    if not top:
        return None
    across = (WIDTH - LEFT - RIGHT) / len(shown)
    bottom = HEIGHT - BOTTOM
    parts = list(_up(top))
    fits = max(4, int(across / 7.5))
    for place, (level, count) in enumerate(shown):
        x = LEFT + across * place
        if count is None:
            parts.append(tag("line", x1=x + 4, x2=x + across - 4, y1=bottom - 3, y2=bottom - 3, class_="line c1 dash2"))
        elif count:
            height = count / top * (bottom - TOP)
            parts.append(_bar(x + 0.15 * across, bottom - height, 0.7 * across, height))
        label = level if len(level) <= fits else f"{level[: fits - 1]}…"
        parts.append(tag("text", label, x=x + across / 2, y=bottom + 19, text_anchor="middle"))
    about = ", ".join(f"{level} {hidden if count is None else count}" for level, count in shown)
    more = len(counts) - len(shown)
    return _figure(title, about + (f", and {more} more levels" if more else ""), parts, name=name)


def matrix(names: Sequence[str], values: Sequence[Sequence[float | None]], *, caption: str) -> Markup:
    """Return correlations as a table, shaded by size."""
    head = tag("tr", tag("th", "", scope="col"), [tag("th", name, scope="col", class_="n") for name in names])
    rows = [
        tag("tr", tag("th", name, scope="row"), [_cell(value) for value in row])
        for name, row in zip(names, values, strict=True)
    ]
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", rows), class_="matrix")
    return tag("div", made, class_="wide", tabindex=0, role="region", aria_label=caption)


def _cell(value: float | None) -> Markup:
    if value is None:
        return tag("td", "-", class_="n")
    strength = min(4, int(abs(value) * 5))
    shade = "" if not strength else f" m{strength}" if value > 0 else f" m{strength} minus"
    return tag("td", f"{value:+.2f}", class_=f"n{shade}")


def _up(top: int) -> list[Markup]:
    """Return the vertical axis of counts."""
    bottom, parts = HEIGHT - BOTTOM, []
    power = 10 ** max(0, len(str(top)) - 1)
    step = next(each for each in (max(1, power // 5), max(1, power // 2), power, 2 * power) if top / each <= 6)
    for value in range(0, top + 1, step):
        y = bottom - value / top * (bottom - TOP)
        parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=round(y, 1), y2=round(y, 1), class_="grid"))
        parts.append(tag("text", tick(value), x=LEFT - 8, y=round(y + 4, 1), text_anchor="end"))
    parts.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom, class_="axis"))
    return parts


def _bar(x: float, y: float, width: float, height: float) -> Markup:
    given = {"x": round(x, 1), "y": round(y, 1), "width": round(width, 1), "height": round(height, 1)}
    return tag("rect", class_="c0", **given)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _figure(title: str, about: str, parts: list[Markup], *, name: str) -> Markup:
    return tag("figure", tag("figcaption", title), drawing(name, title, about, parts, height=HEIGHT))
