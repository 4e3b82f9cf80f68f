"""The page of survival curves."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any

from p2pfl.results.charts import Chart, Curve
from p2pfl.results.facts import FactTable, Note, Section
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import chart_figure

PLACES = 4
"""Times at which a table has the curves."""

MOST_ROWS = 200
"""Times of a group that the page lists."""


def survival_page(name: str, found: Mapping[str, Any], *, disclosed: str) -> str:
    """Return the page of survival curves.

    Parameters
    ----------
    name
        Name of the experiment.
    found
        Fields of :class:`p2pfl.plugins.exact.statistics.kaplan_meier.Survival`, with the name of the ``time`` and
    ``horizon``.
    disclosed
        Facts that the total has shown to each peer.
    """
    curves = [_curve(group, place, found["horizon"]) for place, group in enumerate(found["groups"]) if group["samples"]]
    about = " ".join(_about(group) for group in found["groups"])
    chart = chart_figure(Chart("Share without the event", about, found["time"], "share", curves))
    sections: list[Section] = [
        ("curves", "Curves", [chart]),
        ("groups", "Groups", [group_table(found), *(f"{line[:1].upper()}{line[1:]}." for line in sentences(found))]),
        ("table", "Table", [_table(found)]),
        ("disclosure", "What peers have learned", [f"Every peer has learned {disclosed}."]),
    ]
    samples = sum(group["samples"] for group in found["groups"])
    head = Note(f"{samples} samples of all peers, added up by an exact total.", style="small")
    return page(f"Survival of {name}", sections, head=[head])


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Return the test and warnings in words."""
    said = []
    if found["p"] is not None:
        likely = "p < 0.0001" if found["p"] < 1e-4 else f"p = {found['p']:.4f}"
        freedom = sum(group["samples"] > 0 for group in found["groups"]) - 1
        said.append(
            f"log-rank test that all groups have one hazard: chi2 = {found['statistic']:.3f}, {freedom} df, {likely}"
        )
    if found["private"]:
        said.append("the counts have private noise, which standard errors and intervals include; there is no test")
    if found["sparse"]:
        said.append(
            f"one or two samples leave in {found['sparse']} cells, which all peers have seen; wider cells show less"
        )
    return said


def _about(group: Mapping[str, Any]) -> str:
    if not group["survival"]:
        return f"{group['name']}: no events."
    return f"{group['name']}: {group['survival'][-1]:.3f} after {group['times'][-1]:g}."


def _curve(group: Mapping[str, Any], place: int, horizon: float) -> Curve:
    """Return the steps of a group with a band."""
    xs, rows = [0.0], [(1.0, 1.0, 1.0)]
    for time, *values in zip(group["times"], group["survival"], group["low"], group["high"], strict=True):
        xs += [time, time]
        rows += [rows[-1], (values[0], values[1], values[2])]
    ys, low, high = zip(*[*rows, rows[-1]], strict=True)
    return Curve(group["name"], [*xs, horizon], ys, low, high, style=place)


def group_table(found: Mapping[str, Any]) -> FactTable:
    """Return samples, events, median and share without the event at some times, by group."""
    last = max((time for group in found["groups"] for time in group["times"]), default=0.0)
    places = [last * place / PLACES for place in range(1, PLACES + 1)]
    rows = [
        (
            group["name"],
            group["samples"],
            group["events"],
            "-" if group["median"] is None else f"{group['median']:g}",
            *(f"{_at(group, place):.3f}" for place in places),
        )
        for group in found["groups"]
    ]
    caption = "The median is the time by which half have had the event; S(t) is the share without it at time t"
    heads = ("group", "samples", "events", "median", *(f"S({place:.4g})" for place in places))
    return FactTable(caption, heads, rows)


def _at(group: Mapping[str, Any], time: float) -> float:
    """Return the share that survives a time."""
    place = bisect.bisect_right(group["times"], time)
    return float(group["survival"][place - 1]) if place else 1.0


def _table(found: Mapping[str, Any]) -> FactTable:
    rows = [
        (group["name"], f"{time:g}", risk, died, f"{share:.4f}", f"{low:.4f} to {high:.4f}")
        for group in found["groups"]
        for time, risk, died, share, low, high in list(
            zip(*(group[key] for key in ("times", "at_risk", "died", "survival", "low", "high")), strict=True)
        )[:MOST_ROWS]
    ]
    heads = ("group", "time", "at risk", "events", "survival", "95 % interval")
    return FactTable("Kaplan-Meier estimates with intervals by the log-log transformation", heads, rows)
