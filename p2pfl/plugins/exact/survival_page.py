"""Survival curves for people: tables, sentences, the figure with numbers at risk, the page, LaTeX."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.plugins.exact.statistics_pages import statistics_page
from p2pfl.results.facts import FactTable, Figure, Section
from p2pfl.results.plots import COLOURS, STROKES, blank, draw_printed
from p2pfl.results.table_files import Paper

MAX_TIMES = 200
"""Times of a group that the page lists."""

WIDTH, HEIGHT, LINE = 6.3, 3.1, 0.19
"""Inches of a figure without numbers at risk, and of a line of these."""

INTERVALS = {
    "log-log": "the log-log transformation",
    "log": "the logarithm",
    "plain": "the normal distribution of the share",
}
"""Kinds of intervals in words."""


def label_of(results: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    """Return a group as people read it: ``sex = 1``."""
    return group["name"] if results["group"] is None else f"{results['group']} = {group['name']}"


COARSE = 0.1
"""Share of the horizon from which on a cell is so wide that results say so."""


def predicted_page(name: str, results: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of predicted survival.

    Parameters
    ----------
    name, disclosed
        As of :func:`survival_page`.
    results
        Results of :func:`p2pfl.plugins.exact.survival.predicted_survival.predicted_survival`, with ``time`` and
        ``horizon``.
    """
    sections: list[Section] = [
        ("profiles", "Profiles", [profile_table(results)]),
        ("curves", "Curves", [survival_figure(results)]),
        ("times", "Round times", [share_table(results)]),
    ]
    head = f"95 % intervals use {INTERVALS[results['interval']]}."
    return statistics_page(f"Predicted survival by {name}", head, sections, disclosed)


def survival_page(name: str, results: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of survival curves.

    Parameters
    ----------
    name
        Name of the experiment.
    results
        Results of :func:`p2pfl.plugins.exact.statistics.survival_results.survival`, with the name of the ``time``, its
        unit included, and the ``horizon``.
    disclosed
        Facts that the totals have shown to each peer.
    """
    lines = [f"{line[:1].upper()}{line[1:]}." for line in sentences(results)]
    sections: list[Section] = [
        ("groups", "Groups", [group_table(results), *lines]),
        ("curves", "Curves", [survival_figure(results)]),
        ("times", "Round times", [*time_tables(results)]),
        ("table", "All times", [_survival_table(results)]),
    ]
    samples = sum(group["samples"] for group in results["groups"])
    head = f"{samples} samples of all peers, added up by an exact total."
    return statistics_page(f"Survival of {name}", head, sections, disclosed)


def survival_figure(results: Mapping[str, Any]) -> Figure | None:
    """Return the curves with bands, and the numbers at risk below if there are some; ``None`` without curves."""
    groups = _drawn_groups(results)
    if not groups:
        return None
    about = " ".join(_about(label_of(results, group), group) for group in groups)
    if results.get("causes"):
        return Figure("Cumulative incidence with 95 % bands", about, lambda: draw_survival(results), style="wide")
    return Figure("Survival with 95 % bands", about, lambda: draw_survival(results), style="wide")


def draw_survival(results: Mapping[str, Any], *, path: str | None = None) -> Any:
    """Draw curves with bands, and the numbers at risk below.

    Parameters
    ----------
    results
        As of :func:`survival_page`.
    path
        Path of the file, with the suffix of its format, and then in the style of print; ``None`` writes none.

    Raises
    ------
    InputError
        Matplotlib is not installed, or the file cannot be written.
    """
    return draw_printed(lambda: _drawn(results), path=path)


def _drawn_groups(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the groups with samples, and all profiles, which have none."""
    return [group for group in results["groups"] if group.get("samples", 1)]


def _drawn(results: Mapping[str, Any]) -> Any:
    groups = _drawn_groups(results)
    counted = not results["predicted"]
    below = LINE * (len(groups) + 1) if counted else 0.0
    picture = blank(width=WIDTH, height=HEIGHT + below)
    axes, *rest = picture.subplots(1 + counted, 1, squeeze=False, height_ratios=[HEIGHT - 0.5, *([below] * counted)])[
        :, 0
    ]
    causes = results.get("causes") or []
    curves = [(label_of(results, group), group["survival"], 1.0, group) for group in groups]
    if causes:
        curves = [
            (_cause_label(results, cause, group), group["incidence"], 0.0, group) for cause, group in _pairs(results)
        ]
    for index, (label, share, start, curve) in enumerate(curves):
        _draw_steps(axes, curve, share, label=label, index=index, start=start, end=results["horizon"])
    axes.set(xlim=(0, results["horizon"] or 1.0), ylim=(0, 1.02), xlabel=results["time"])
    axes.set_ylabel("cumulative incidence" if causes else "survival probability")
    axes.set_xticks(results["risk_times"], [f"{time:g}" for time in results["risk_times"]])
    if len(curves) > 1:
        axes.legend(loc="best", handlelength=3)
    if results.get("p") is not None and not causes:
        axes.text(0.02, 0.04, f"log-rank {_likely(results['p'])}", transform=axes.transAxes)
    for table in rest:
        _draw_counts(table, results, groups)
    return picture


def _draw_counts(table: Any, results: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
    """Draw the numbers at risk into axes."""
    for index, group in enumerate(groups):
        for time, count in zip(results["risk_times"], group["remaining"], strict=True):
            table.text(time, index, f"{count:,}", ha="center", va="center_baseline")
    table.set_title("number at risk", loc="left", fontsize="medium")
    table.set_yticks(range(len(groups)), [label_of(results, group) for group in groups])
    for index, text in enumerate(table.get_yticklabels() if not results["causes"] else ()):
        text.set_color(COLOURS[index % len(COLOURS)])
    table.set(xlim=(0, results["horizon"] or 1.0), ylim=(len(groups) - 0.5, -0.5), xticks=[])
    table.tick_params(length=0, pad=6 + 3 * max(len(f"{group['samples']:,}") for group in groups))
    table.grid(visible=False)
    table.spines[:].set_visible(False)


def _draw_steps(
    axes: Any, curve: Mapping[str, Any], share: Sequence[float], *, label: str, index: int, start: float, end: float
) -> None:
    colour = COLOURS[index % len(COLOURS)]
    stroke = STROKES[(index + index // len(COLOURS)) % len(STROKES)]
    times = [0.0, *curve["times"], end]
    values, low, high = ([start, *each, *(each or [start])[-1:]] for each in (share, curve["low"], curve["high"]))
    axes.fill_between(times, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.plot(times, values, drawstyle="steps-post", color=colour, linestyle=stroke, linewidth=1.6, label=label)


def _pairs(results: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return each cause with the curve of each group that has samples."""
    here = {group["name"] for group in _drawn_groups(results)}
    return [(cause, group) for cause in results["causes"] for group in cause["groups"] if group["name"] in here]


def _cause_label(results: Mapping[str, Any], cause: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    return cause["name"] if results["group"] is None else f"{cause['name']}, {label_of(results, group)}"


def incidence_table(results: Mapping[str, Any]) -> FactTable:
    """Return the cumulative incidence of each kind of event at round times, by group."""
    rows = [
        [
            _cause_label(results, cause, group),
            *(f"{_at(group, time, 'incidence', 0.0):.3f}" for time in results["risk_times"]),
        ]
        for cause, group in _pairs(results)
    ]
    return FactTable("Cumulative incidence", _heads(results), rows)


def time_tables(results: Mapping[str, Any]) -> list[FactTable]:
    """Return the tables at round times."""
    causes = [incidence_table(results)] if results["causes"] else []
    return [share_table(results), *causes, risk_table(results)]


def _likely(p: float) -> str:
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"


def sentences(results: Mapping[str, Any]) -> list[str]:
    """Return the test, how intervals are made, and warnings in words."""
    lines, freedom = [], sum(group["samples"] > 0 for group in results["groups"]) - 1
    if results["p"] is not None:
        lines.append(
            f"log-rank test that all groups have one hazard: chi2 = {results['statistic']:.3f}, {freedom} df, "
            f"{_likely(results['p'])}"
        )
    lines += [
        f"Gray's test that all groups have one cumulative incidence of {cause['name']}: chi2 = "
        f"{cause['statistic']:.3f}, {freedom} df, {_likely(cause['p'])}"
        for cause in results["causes"]
        if cause["p"] is not None
    ]
    kinds = ", of incidences the jackknife's" if results["causes"] else ""
    kind = INTERVALS[results["interval"]]
    lines.append(
        f"95 % intervals use Greenwood's errors{kinds} and {kind}; that of the median is where they reach one half"
    )
    if results["widest"] > COARSE * results["horizon"]:
        lines.append(
            f"an event counts at the last time of its cell, and cells are up to {results['widest']:g} wide, so medians "
            "and curves may be late by so much"
        )
    if results["private"]:
        lines.append("the counts have private noise, which standard errors and intervals include; there is no test")
        if results["rmean"] is not None:
            lines.append("the restricted mean has no error, as its error would leave out the noise")
    if results["sparse"]:
        lines.append(
            f"one or two samples leave in {results['sparse']} cells, which all peers have seen; wider cells show less"
        )
    return lines


def _about(label: str, group: Mapping[str, Any]) -> str:
    if not group["survival"]:
        return f"{label}: no events."
    return f"{label}: {group['survival'][-1]:.3f} after {group['times'][-1]:g}."


def profile_table(results: Mapping[str, Any]) -> FactTable:
    """Return the predicted median of each profile."""
    rows = [
        (
            label_of(results, group),
            _number(group["median"]),
            f"{_number(group['median_low'])} to {_number(group['median_high'])}",
        )
        for group in results["groups"]
    ]
    return FactTable("Predicted median", ("profile", "median", "95 % interval"), rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def group_table(results: Mapping[str, Any]) -> FactTable:
    """Return samples, events, the median and the restricted mean by group."""
    until = results["rmean"]
    rows = [
        (
            label_of(results, group),
            group["samples"],
            group["events"],
            _number(group["median"]),
            f"{_number(group['median_low'])} to {_number(group['median_high'])}",
            *([] if until is None else _mean(group)),
        )
        for group in results["groups"]
    ]
    caption = "The median is the time by which half have had the event"
    heads = ["group", "samples", "events", "median", "95 % interval"]
    if until is not None:
        caption += f"; the mean is the time without the event up to {until:g}"
        heads += [f"mean to {until:g}", "std. error"]
    return FactTable(caption, heads, rows)


def _mean(group: Mapping[str, Any]) -> tuple[str, str]:
    return f"{group['mean']:.5g}", "-" if group["mean_error"] is None else f"{group['mean_error']:.4g}"


def share_table(results: Mapping[str, Any]) -> FactTable:
    """Return the share without the event at round times, by group."""
    rows = [
        [label_of(results, group), *(f"{_at(group, time):.3f}" for time in results["risk_times"])]
        for group in results["groups"]
    ]
    return FactTable("Share without the event", _heads(results), rows)


def _at(curve: Mapping[str, Any], time: float, key: str = "survival", start: float = 1.0) -> float:
    """Return the value of a curve at a time."""
    index = bisect.bisect_right(curve["times"], time)
    return float(curve[key][index - 1]) if index else start


def _heads(results: Mapping[str, Any]) -> list[str]:
    return [results["time"], *(f"{time:g}" for time in results["risk_times"])]


def risk_table(results: Mapping[str, Any]) -> FactTable:
    """Return how many are at risk at round times, by group."""
    rows = [[label_of(results, group), *group["remaining"]] for group in results["groups"]]
    return FactTable("Number at risk", _heads(results), rows)


def survival_paper(name: str, results: Mapping[str, Any]) -> Paper:
    """Return groups or profiles, shares and numbers at risk for a paper."""
    if results["predicted"]:
        head = f"95 % intervals use {INTERVALS[results['interval']]}."
        return Paper(f"Predicted survival by {name}", [profile_table(results), share_table(results)], [head])
    lines = [f"{line[:1].upper()}{line[1:]}." for line in sentences(results)]
    return Paper(f"Survival of {name}", [group_table(results), *time_tables(results)], lines)


def survival_rows(results: Mapping[str, Any]) -> list[Sequence[object]]:
    """Return a row for each group and time with events, the head first."""
    if results.get("causes"):
        columns = ("times", "died", "incidence", "error", "low", "high")
        return [
            ["group", "cause", "time", "events", "incidence", "std_error", "low", "high"],
            *(
                [group["name"], cause["name"], *row]
                for cause, group in _pairs(results)
                for row in zip(*(group[key] for key in columns), strict=True)
            ),
        ]
    if results["predicted"]:
        keys: tuple[str, ...] = ("times", "hazard", "survival", "error", "low", "high")
        heads = ["profile", "time", "cumulative_hazard", "survival", "std_error", "low", "high"]
    else:
        keys = ("times", "at_risk", "died", "survival", "error", "low", "high")
        heads = ["group", "time", "at_risk", "events", "survival", "std_error", "low", "high"]
    rows = [
        [group["name"], *row] for group in results["groups"] for row in zip(*(group[key] for key in keys), strict=True)
    ]
    return [heads, *rows]


def _survival_table(results: Mapping[str, Any]) -> FactTable:
    rows = [
        (label_of(results, group), f"{time:g}", risk, died, f"{share:.4f}", f"{low:.4f} to {high:.4f}")
        for group in results["groups"]
        for time, risk, died, share, low, high in list(
            zip(*(group[key] for key in ("times", "at_risk", "died", "survival", "low", "high")), strict=True)
        )[:MAX_TIMES]
    ]
    heads = ("group", "time", "at risk", "events", "survival", "95 % interval")
    return FactTable("Kaplan-Meier estimates with pointwise intervals", heads, rows)
