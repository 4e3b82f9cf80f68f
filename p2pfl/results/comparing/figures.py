"""Figures of several runs for a paper: means over the seeds with intervals, by round or by bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from p2pfl.core.errors import InputError
from p2pfl.results import charts
from p2pfl.results.comparing import wording
from p2pfl.results.comparing.comparison import Comparison
from p2pfl.results.comparing.intervals import estimate
from p2pfl.results.formats import counted
from p2pfl.results.plots import COLOURS, STROKES, STYLE, blank, keep, legend_of
from p2pfl.results.records import by_round
from p2pfl.results.run import Run

By = Literal["round", "bytes"]
"""Quantity on a horizontal axis."""

AXES: tuple[By, ...] = ("round", "bytes")
"""Both of them."""

MARKERS = "os^DvPX"
"""Markers of lines."""

MARKED = 7
"""Markers of a line, at most."""

MAX_LINES = len(COLOURS) * len(STROKES)
"""Lines of a panel that differ in colour or stroke."""

MAX_PANELS = 24
"""Panels of a figure."""

COLUMNS = 3
"""Panels side by side."""

SINGLE = (4.2, 2.9)
"""Inches of a panel that is alone: a column of a page."""

PANEL = (2.4, 2.1)
"""Inches of one panel of several, three of which are as wide as a page."""

SHARES = frozenset({"accuracy", "auc", "f1", "macro_f1", "iou", "mean_iou", "concordance"})
"""Scores from 0 to 1, beyond which no interval goes."""

FILLED = 3
"""Lines of a panel whose intervals are filled, at most; those of more have thin edges."""

MARGIN = 0.05
"""Share of the height of an axis that is free above and below what it shows."""

UNITS = ((1e3, "GB"), (1.0, "MB"), (1e-3, "kB"))
"""Units of megabytes, the largest first."""


@dataclass(frozen=True)
class _Line:
    """A setting over rounds: place along the axis, mean over the seeds, ends of its interval, lowest and highest."""

    xs: list[float]
    ys: list[float]
    low: list[float]
    high: list[float]
    least: list[float]
    most: list[float]


def figure(
    comparison: Comparison, runs: Sequence[tuple[int, Run]], *, by: By = "round", path: str | Path | None = None
) -> Any:
    """Draw the score of each setting over rounds or bytes: the mean over the seeds, and its 95 % interval.

    Settings that are compared share a panel: each combination of the other keys has one of its own. A line ends where
    the first of its runs ends. A single seed, and seeds that agree, have no band.

    Parameters
    ----------
    comparison
        The comparison.
    runs
        Its runs, each with the place of its setting.
    by
        Horizontal axis: rounds, or the bytes that all peers have sent, in the mean over the seeds.
    path
        Path of a PDF, SVG or PNG; ``None`` writes none.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InputError
        No run has the score, there are too many settings, matplotlib is not installed, or the file cannot be written.
    """
    blank(width=1, height=1)  # refuses a lack of matplotlib
    import matplotlib as mpl  # noqa: PLC0415 (an extra)

    lines = {
        place: line
        for place in range(len(comparison.settings))
        if (line := _line([run for setting, run in runs if setting == place], comparison.metric, by=by)) is not None
    }
    if not lines:
        raise InputError(f"no run has rounds with {comparison.metric} to plot; name another score with --metric")
    panels = _panels(comparison, lines)
    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    if len(panels) > MAX_PANELS or len(labels) > MAX_LINES:
        raise InputError(
            f"a figure holds {MAX_PANELS} panels of {MAX_LINES} lines, and the comparison has {len(panels)} of "
            f"{len(labels)}; plot a sweep of fewer settings"
        )
    scale, unit = _unit([x for line in lines.values() for x in line.xs]) if by == "bytes" else (1.0, "")
    with mpl.rc_context(STYLE):
        names = "round" if by == "round" else f"{unit} sent by all peers", comparison.metric.replace("_", " ")
        picture = _drawn(panels, labels, lines, scale=scale, names=names)
        if path is not None:
            keep(picture, path, undated=True)
    return picture


def caption(comparison: Comparison) -> str:
    """Return what a caption must say of the lines and bands of a figure."""
    counts = sorted({len(each.by_seed) for each in comparison.settings if each.by_seed})
    seeds = counted(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    bands = " Bands are 95 % intervals of Student's t, and may reach beyond the axis." if counts[-1] > 1 else ""
    return f"Lines are means over the peers and {seeds}.{bands}"


def _line(runs: Sequence[Run], metric: str, *, by: By) -> _Line | None:
    """Return the line of runs of one setting; ``None`` where none of them has the score."""
    found = [
        (curve, charts.sent_megabytes(by_round(run.metrics)))
        for run in runs
        if (curve := charts.over_rounds(by_round(run.honest), charts.score(metric), label="")).ys
    ]
    if not found:
        return None
    shared = sorted(set.intersection(*({*curve.xs} for curve, _ in found)))
    values = [dict(zip(curve.xs, curve.ys, strict=True)) for curve, _ in found]
    line = _Line([], [], [], [], [], [])
    for x in shared:
        column = [each[x] for each in values]
        if not all(map(math.isfinite, column)):
            continue
        mean = estimate(column)
        half = mean.half or 0.0
        low, high = mean.mean - half, mean.mean + half
        if metric in SHARES:
            low, high = max(low, 0.0), min(high, 1.0)
        sent = math.fsum(each[int(x) - 1] for _, each in found) / len(found)
        for numbers, number in zip(
            (line.xs, line.ys, line.low, line.high, line.least, line.most),
            (x if by == "round" else sent, mean.mean, low, high, min(column), max(column)),
            strict=True,
        ):
            numbers.append(number)
    return line if line.xs else None


def _panels(comparison: Comparison, lines: dict[int, _Line]) -> dict[str, dict[str, int]]:
    """Return the places of settings by the title of their panel and the label of their line."""
    pairs = [
        (comparison.settings[each.setting].values, comparison.settings[each.reference].values)
        for each in comparison.differences
    ]
    compared = {key for mine, theirs in pairs for key in mine if mine[key] != theirs[key]}
    if comparison.chosen or not compared:
        compared = {*comparison.keys}
    panels: dict[str, dict[str, int]] = {}
    for place in lines:
        values = comparison.settings[place].values
        rest = {key: value for key, value in values.items() if key not in compared}
        own = {key: value for key, value in values.items() if key in compared}
        panels.setdefault(wording.setting(rest) if rest else "", {})[wording.setting(own)] = place
    return panels


def _drawn(
    panels: dict[str, dict[str, int]],
    labels: Sequence[str],
    lines: dict[int, _Line],
    *,
    scale: float,
    names: tuple[str, str],
) -> Any:
    """Return a figure with a panel for each title, and one legend below them."""
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = (SINGLE[0], SINGLE[1]) if columns == 1 else (PANEL[0] * columns, PANEL[1])
    across, texts, legend = legend_of(labels, width=width)
    picture = blank(width=width, height=height * rows + legend)
    axes = picture.subplots(rows, columns, sharex=names[0] == "round", sharey=True, squeeze=False).flatten()
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    handles: dict[str, Any] = {}
    for place, (each, (title, panel)) in enumerate(zip(axes, panels.items(), strict=False)):
        filled = len(panel) <= FILLED
        for label, setting in panel.items():
            handles.setdefault(
                label, _draw(each, lines[setting], style=labels.index(label), scale=scale, filled=filled)
            )
        each.set_title(title, loc="left", fontsize="medium")
        each.xaxis.get_major_locator().set_params(integer=names[0] == "round", nbins=5)
        lowest = place + columns >= len(panels) or names[0] != "round"
        each.tick_params(labelbottom=lowest)
        each.set_xlabel(names[0] if lowest else "")
        each.set_ylabel(names[1] if place % columns == 0 else "")
    axes[0].set_ylim(_limits(lines.values()))
    if len(labels) > 1:
        found = [handles[label] for label in labels]
        picture.legend(found, texts, loc="outside lower center", ncols=across, handlelength=3.2)
    return picture


def _limits(lines: Iterable[_Line]) -> tuple[float, float]:
    """Return the ends of an axis that shows all runs; the interval of two runs may be many times as high."""
    shown = [*lines]
    least, most = min(min(line.least) for line in shown), max(max(line.most) for line in shown)
    margin = MARGIN * (most - least or abs(most) or 1.0)
    return least - margin, most + margin


def _draw(axes: Any, line: _Line, *, style: int, scale: float, filled: bool) -> Any:
    """Draw a line and its band, or the edges of it; return what stands for it in a legend."""
    colour, count = COLOURS[style % len(COLOURS)], len(line.xs)
    xs = [x / scale for x in line.xs]
    if line.low != line.high and not filled:
        for edge in (line.low, line.high):
            axes.plot(xs, edge, color=colour, linewidth=0.5, alpha=0.6, label="_edge")
    elif line.low != line.high:
        axes.fill_between(xs, line.low, line.high, color=colour, alpha=0.18, linewidth=0)
    step = max(1, count // MARKED)
    [drawn] = axes.plot(
        xs,
        line.ys,
        color=colour,
        linestyle=STROKES[(style + style // len(COLOURS)) % len(STROKES)],
        linewidth=1.4,
        marker=MARKERS[style % len(MARKERS)],
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=(style % step, step),
    )
    return drawn


def _unit(megabytes: Sequence[float]) -> tuple[float, str]:
    """Return the unit in which the largest number has few digits."""
    largest = max(megabytes, default=0.0)
    return next(((scale, name) for scale, name in UNITS if largest >= scale), UNITS[-1])
