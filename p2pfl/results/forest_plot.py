"""Forest plots: estimates of a regression with their intervals, and for a meta-analysis those of each peer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.core.explanations import FittedCoefficient, FittedRegression
from p2pfl.results.charts import Interval
from p2pfl.results.facts import Figure
from p2pfl.results.plots import COLOURS, GREY, blank, draw_intervals, draw_printed

REACH = 1.959963984540054
"""Standard errors from an estimate to the end of its 95 % interval."""

WIDTH, LINE, HEAD = 6.3, 0.24, 0.55
"""Inches of the figure, of an interval, and of the title and axis of a panel."""

WEIGHTS = 150
"""Points from the axes to the end of the weights."""

NICE = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
"""Ratios that an axis names."""

Panel = tuple[str, list[Interval]]
"""Title and intervals."""


def forest_figure(regression: FittedRegression) -> Figure | None:
    """Return the forest plot of a regression; ``None`` without intervals."""
    panels = forest_panels(regression)
    if not panels:
        return None
    about = " ".join(f"{title}: {_text(each, regression.ratio)}." for title, each in _pooled(panels))
    return Figure("Forest plot", about, lambda: draw_forest(regression), style="wide")


def forest_panels(regression: FittedRegression) -> list[Panel]:
    """Return the panels of a forest plot: one for each coefficient of a meta-analysis, otherwise one for all of them.

    Intercepts have no part in it. The weight of a peer is that of its estimate in the pooled one.
    """
    rows = [
        (index, each)
        for index, each in enumerate(regression.coefficients)
        if not each.intercept and each.estimate is not None and each.error is not None
    ]
    if not regression.sites:
        return [("", [_interval(each.name, each, COLOURS[0]) for _, each in rows])] if rows else []
    return [(each.name, [*_sites(regression, index, each.name), _summary(each, regression)]) for index, each in rows]


def _interval(label: str, row: FittedCoefficient, colour: str, *, pooled: bool = False) -> Interval:
    value, error = row.estimate or 0.0, row.error or 0.0
    half = REACH * error if row.low is None else value - row.low
    return Interval(label, value, half, colour, pooled=pooled)


def _summary(row: FittedCoefficient, regression: FittedRegression) -> Interval:
    return _interval(f"{regression.errors} effects", row, COLOURS[1], pooled=True)


def _sites(regression: FittedRegression, index: int, name: str) -> list[Interval]:
    between = regression.facts.get(f"tau2 of {name}") or 0.0
    between = between if regression.errors == "random" else 0.0
    known = [
        (site.peer, estimate, error)
        for site in regression.sites
        for estimate, error in [(site.estimates[index], site.errors[index])]
        if estimate is not None and error is not None
    ]
    pooled = regression.coefficients[index].error or math.inf
    return [
        Interval(peer, estimate, REACH * error, COLOURS[0], weight=pooled**2 / (error**2 + between))
        for peer, estimate, error in known
    ]


def draw_forest(regression: FittedRegression, *, path: str | None = None) -> Any:
    """Draw a forest plot.

    Parameters
    ----------
    regression
        Regression with standard errors.
    path
        Path of the file, with the suffix of its format, and then in the style of print; ``None`` writes none.

    Raises
    ------
    InputError
        There are no intervals, matplotlib is not installed, or the file cannot be written.
    """
    return draw_printed(lambda: _drawn(regression), path=path)


def _drawn(regression: FittedRegression) -> Any:
    panels = forest_panels(regression)
    if not panels:
        raise InputError(f"a {regression.model} has no intervals to draw; leave --plot out, or take glm or cox")
    heights = [HEAD + LINE * len(entries) for _, entries in panels]
    picture = blank(width=WIDTH, height=sum(heights))
    every = picture.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, entries) in zip(every, panels, strict=True):
        draw_intervals(axes, entries)
        axes.set_yticks(range(len(entries)), [each.label for each in entries])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        beside = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center_baseline"}
        for line, each in enumerate(entries):
            axes.annotate(_text(each, regression.ratio), (1, line), (8, 0), **beside)
            if each.weight is not None:
                axes.annotate(f"{each.weight:.1%}", (1, line), (WEIGHTS, 0), ha="right", **beside)
        if any(each.weight is not None for each in entries):
            axes.annotate("weight", (1, -1), (WEIGHTS, 0), ha="right", color=GREY, **beside)
        axes.set_title(title, loc="left", fontsize="medium")
        if regression.ratio:
            _name_ratios(axes)
    every[-1].set_xlabel(regression.ratio or "estimate")
    return picture


def _name_ratios(axes: Any) -> None:
    """Name an axis of coefficients by their exponentials."""
    low, high = axes.get_xlim()
    ticks = [math.log(ratio) for ratio in NICE if low <= math.log(ratio) <= high]
    if len(ticks) < 3:
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    step = max(1, len(ticks) // 7)
    kept = ticks[::step]
    axes.set_xticks(kept, [f"{math.exp(tick):.3g}" for tick in kept])


def _text(each: Interval, ratio: str) -> str:
    """Return an estimate with its interval, exponentials of a ratio."""
    half = each.half or 0.0
    values = [each.value, each.value - half, each.value + half]
    middle, low, high = (_number(math.exp(value) if ratio else value) for value in values)
    return f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    """Return a number with two decimals, or three digits where these say too little or too much.

    Examples
    --------
    >>> _number(1.0), _number(0.0021), _number(1234.5)
    ('1.00', '0.0021', '1.23e+03')
    """
    return f"{value:.2f}" if 0.1 <= abs(value) < 100 else f"{value:.3g}"


def _pooled(panels: Sequence[Panel]) -> list[tuple[str, Interval]]:
    """Return the pooled estimate of each panel, or all estimates of a single one."""
    return [(title or each.label, each) for title, entries in panels for each in (entries[-1:] if title else entries)]
