"""The page of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.results.notices.grouping import grouped
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.notices.wording import sentence
from p2pfl.results.pages import curves
from p2pfl.results.pages.markup import Markup, join, tag
from p2pfl.results.pages.parts import (
    box,
    changed,
    details,
    digests,
    moment,
    page,
    pairs,
    software,
    written,
)
from p2pfl.results.pages.run.cost_section import costs
from p2pfl.results.pages.run.features_section import features
from p2pfl.results.pages.run.gains import gains, verdict
from p2pfl.results.pages.run.graph_section import neighbourhoods
from p2pfl.results.pages.run.lanes import lanes
from p2pfl.results.pages.run.privacy_section import privacy
from p2pfl.results.pages.svg import Chart, figures
from p2pfl.results.reading import alarms_of, evaluation_of
from p2pfl.results.run import Run
from p2pfl.results.swarm.timeline import alerts_of_run

MOST_EVENTS = 60
"""Events that a page lists."""


def run_page(run: Run) -> str:
    """Return the page of a run, be it a simulation, a swarm or one peer, and ended or interrupted."""
    charts = list(curves.scores(run))
    moves = curves.consensus(run)
    sections = [
        ("gain", "What learning together gave", gains(run.summary, run.honest)),
        ("curves", "Curves", _curves([*charts, *([] if moves is None else [moves])], run.summary)),
        ("features", "Features of the model", features(run.summary)),
        ("graph", "Topology", neighbourhoods(run)),
        ("privacy", "Privacy", privacy(run)),
        ("cost", "Cost", costs(run)),
        ("events", "What happened", join([lanes(run), _events(run)]) or None),
        ("repeat", "How to repeat it", _repeat(run)),
    ]
    who = f", peer {run.summary['peer']}" if "peer" in run.summary else ""
    began = run.provenance.get("began")
    when = tag("p", f"Report of a p2pfl run{'' if not began else f', begun {moment(began)}'}.", class_="small")
    return page(f"{run.experiment.name}{who}", sections, head=[when, *_head(run)])


def _head(run: Run) -> Iterator[Markup]:
    """Yield what comes first: alarms, then the result in a sentence."""
    summary = run.summary
    for alarm, more in grouped(alarms_of(summary)):
        if alarm.cancelled:
            partners = ", ".join(alarm.partners)
            said = f" In round {alarm.round + 1} masks of {partners} did not cancel; they are cancelled now{more}."
            yield box("warning", f" {alarm.peer}:{said}")
        else:
            yield box("alarm", f" {alarm.peer}: {sentence(alarm)}{more}")
    if not summary:
        for alert in alerts_of_run(run):
            if alert.severity == "alarm":
                yield box("warning" if alert.over else "alarm", f" {alert.peer}: {alert.sentence}")
    if summary and not summary.get("accounted", True):
        yield box("alarm", " The account of the data does not count this run, because it ran with --unaccounted.")
    yield box("verdict", verdict(run.summary, run.metrics, rounds=run.experiment.rounds))
    for advice in summary.get("advice", ()):
        yield box("warning", f" {advice[:1].upper()}{advice[1:]}.")


def _curves(charts: Sequence[Chart], summary: Mapping[str, Any]) -> Markup | None:
    """Return the charts, and how much of a simulation they show."""
    drawn, sentence = figures(charts, name="curve"), evaluation_of(summary)
    if drawn is None or not sentence:
        return drawn
    return join([drawn, tag("p", f"{sentence[:1].upper()}{sentence[1:]}.", class_="small")])


def _events(run: Run) -> Markup | None:
    """Return what happened in words, without what always happens."""
    shown = grouped(event for event in run.events if event.severity != "info")
    lines = [_event(event, more) for event, more in shown[:MOST_EVENTS]]
    if len(shown) > MOST_EVENTS:
        lines.append(tag("li", f"and {len(shown) - MOST_EVENTS} more, in events.jsonl"))
    for peer, open_ in run.summary.get("unsettled", {}).items():
        found = sum((*open_["masks"].values(), *open_["steps"].values(), *open_["sums"].values()))
        lines.append(tag("li", tag("b", f"{peer}: "), f"{found} masks, gossip steps or sums stayed open at the end"))
    if not lines:
        quiet = bool(run.events) or "per_peer" in run.summary
        return tag("p", "Nothing out of the ordinary was recorded.") if quiet else None
    return tag("ul", lines, class_="events")


def _event(event: Notice, more: str) -> Markup:
    when = (
        None
        if event.time is None
        else tag("time", f"{event.time:%Y-%m-%d %H:%M:%S} UTC", datetime=event.time.isoformat())
    )
    kind = {"alarm": "bad", "warning": "warn", "resolved": "good"}.get(event.severity)
    said = tag("span", f"{sentence(event)}{more}", class_=kind)
    return tag("li", when, " " if when else None, tag("b", f"{event.peer}: "), said)


def _repeat(run: Run) -> Markup:
    experiment = run.experiment
    keys = {key: tag("code", value) for key, value in changed(experiment).items()}
    provenance = run.provenance or run.summary
    return join(
        [
            tag("p", "Save the experiment below as experiment.toml. The same seed gives the same data and batches."),
            tag("p", "Absolute paths are shown without their folders; complete them.", class_="small"),
            tag("pre", "p2pfl simulate experiment.toml    # or: p2pfl run experiment.toml"),
            pairs("Keys of the experiment that are not the default", keys),
            details("the whole experiment file", tag("pre", written(experiment))),
            software(provenance),
            None if run.folder is None else digests(run.folder),
        ]
    )
