"""Figures of several runs for a paper: means over the seeds with intervals, by round or by bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from p2pfl.core.errors import InputError
from p2pfl.results import charts
from p2pfl.results.charts import Curve
from p2pfl.results.comparisons import wording
from p2pfl.results.comparisons.comparison import Comparison
from p2pfl.results.comparisons.intervals import estimate
from p2pfl.results.formats import count_of
from p2pfl.results.plots import COLOURS, PRINT_STYLE, STROKES, blank, draw_curve, keep, legend_of
from p2pfl.results.records import by_round
from p2pfl.results.run import Run

By = Literal["round", "bytes"]
"""Quantity on a horizontal axis."""

AXES: tuple[By, ...] = ("round", "bytes")
"""Both of them."""

MARKERS = "os^DvPX"
"""Markers of lines."""

MARKERS_PER_LINE = 7
"""Markers of a line, at most."""

MAX_LINES = len(COLOURS) * len(STROKES)
"""Lines of a panel that differ in colour or stroke."""

MAX_PANELS = 24
"""Panels of a figure."""

PANEL_COLUMNS = 3
"""Panels side by side."""

SINGLE_SIZE = (4.2, 2.9)
"""Inches of a panel that is alone: a column of a page."""

PANEL_SIZE = (2.4, 2.1)
"""Inches of one panel of several, three of which are as wide as a page."""

SHARE_SCORES = frozenset({"accuracy", "auc", "f1", "macro_f1", "iou", "mean_iou", "concordance"})
"""Scores from 0 to 1, beyond which no interval goes."""

Line = tuple[Curve, list[float]]
"""Mean of a setting over its seeds with its interval, and the scores of all its runs."""

AXIS_MARGIN = 0.05
"""Share of the height of an axis that is free above and below what it shows."""


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
        index: line
        for index in range(len(comparison.settings))
        if (line := _line([run for setting, run in runs if setting == index], comparison.metric, by=by)) is not None
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
    names = "round" if by == "round" else "MB sent by all peers", comparison.metric.replace("_", " ")
    with mpl.rc_context(PRINT_STYLE):
        picture = _draw(panels, labels, lines, names=names)
        if path is not None:
            keep(picture, path)
    return picture


def caption(comparison: Comparison) -> str:
    """Return the caption of the lines and bands of a figure."""
    counts = sorted({len(each.by_seed) for each in comparison.settings if each.by_seed})
    seeds = count_of(counts[-1], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    bands = " Bands are 95 % intervals of Student's t, and may reach beyond the axis." if counts[-1] > 1 else ""
    return f"Lines are means over the peers and {seeds}.{bands}"


def _line(runs: Sequence[Run], metric: str, *, by: By) -> Line | None:
    """Return the line of runs of one setting; ``None`` where none of them has the score."""
    curves = [
        (dict(zip(curve.xs, curve.ys, strict=True)), charts.sent_megabytes(by_round(run.metrics)))
        for run in runs
        if (curve := charts.curve_over_rounds(by_round(run.honest), charts.score(metric), label="")).ys
    ]
    points, shown = list[tuple[float, float, float, float]](), list[float]()
    for x in sorted(set.intersection(*({*values} for values, _ in curves))) if curves else ():
        column = [values[x] for values, _ in curves]
        if not all(map(math.isfinite, column)):
            continue
        mean = estimate(column)
        low, high = mean.mean - (mean.half or 0.0), mean.mean + (mean.half or 0.0)
        if metric in SHARE_SCORES:
            low, high = max(low, 0.0), min(high, 1.0)
        sent = math.fsum(each[int(x) - 1] for _, each in curves) / len(curves)
        points.append((x if by == "round" else sent, mean.mean, low, high))
        shown += column
    if not points:
        return None
    xs, ys, low_ends, high_ends = ([*column] for column in zip(*points, strict=True))
    band = ((), ()) if low_ends == high_ends else (low_ends, high_ends)
    return Curve("", xs, ys, *band), shown


def _panels(comparison: Comparison, lines: dict[int, Line]) -> dict[str, dict[str, int]]:
    """Return the places of settings by the title of their panel and the label of their line."""
    pairs = [
        (comparison.settings[each.setting].values, comparison.settings[each.reference].values)
        for each in comparison.differences
    ]
    compared = {key for mine, theirs in pairs for key in mine if mine[key] != theirs[key]}
    if comparison.chosen or not compared:
        compared = {*comparison.keys}
    panels: dict[str, dict[str, int]] = {}
    for index in lines:
        values = comparison.settings[index].values
        rest = {key: value for key, value in values.items() if key not in compared}
        own = {key: value for key, value in values.items() if key in compared}
        panels.setdefault(wording.setting(rest) if rest else "", {})[wording.setting(own)] = index
    return panels


def _draw(
    panels: dict[str, dict[str, int]],
    labels: Sequence[str],
    lines: dict[int, Line],
    *,
    names: tuple[str, str],
) -> Any:
    """Return a figure with a panel for each title, and one legend below them."""
    columns = min(PANEL_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = (SINGLE_SIZE[0], SINGLE_SIZE[1]) if columns == 1 else (PANEL_SIZE[0] * columns, PANEL_SIZE[1])
    across, texts, legend = legend_of(labels, width=width)
    picture = blank(width=width, height=height * rows + legend)
    axes = picture.subplots(rows, columns, sharex=names[0] == "round", sharey=True, squeeze=False).flatten()
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    handles: dict[str, Any] = {}
    for number, (each, (title, panel)) in enumerate(zip(axes, panels.items(), strict=False)):
        for label, setting in panel.items():
            curve, style = lines[setting][0], labels.index(label)
            step = max(1, len(curve.xs) // MARKERS_PER_LINE)
            look: dict[str, object] = {
                "marker": MARKERS[style % len(MARKERS)],
                "markersize": 4,
                "markeredgecolor": "white",
            }
            look |= {"markeredgewidth": 0.5, "markevery": (style % step, step), "linewidth": 1.4}
            draw_curve(each, replace(curve, style=style), look)
            handles.setdefault(label, each.lines[-1])
        each.set_title(title, loc="left", fontsize="medium")
        each.xaxis.get_major_locator().set_params(integer=names[0] == "round", nbins=5)
        lowest = number + columns >= len(panels) or names[0] != "round"
        each.tick_params(labelbottom=lowest)
        each.set_xlabel(names[0] if lowest else "")
        each.set_ylabel(names[1] if number % columns == 0 else "")
    shown = [value for _, values in lines.values() for value in values]  # the interval of two runs may be far wider
    margin = AXIS_MARGIN * (max(shown) - min(shown) or abs(max(shown)) or 1.0)
    axes[0].set_ylim(min(shown) - margin, max(shown) + margin)
    if len(labels) > 1:
        ordered = [handles[label] for label in labels]
        picture.legend(ordered, texts, loc="outside lower center", ncols=across, handlelength=3.2)
    return picture
