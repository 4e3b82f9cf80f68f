"""The page of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.report.formats import exchanged, size
from p2pfl.report.notices.grouping import grouped
from p2pfl.report.notices.kinds import Notice
from p2pfl.report.notices.wording import sentence
from p2pfl.report.pages import curves
from p2pfl.report.pages.gains import MOST_PEERS, gains, verdict
from p2pfl.report.pages.lanes import lanes
from p2pfl.report.pages.markup import Markup, join, tag
from p2pfl.report.pages.parts import (
    beside,
    box,
    changed,
    details,
    digests,
    moment,
    page,
    pairs,
    software,
    table,
    written,
)
from p2pfl.report.pages.svg import Chart, figure
from p2pfl.report.reading import alarms_of, evaluation_of
from p2pfl.report.run import Run
from p2pfl.report.swarm.timeline import alerts_of_run

MOST_EVENTS = 60
"""Events that a page lists."""


def run_page(run: Run) -> str:
    """Return the page of a run, be it a simulation, a swarm or one peer, and ended or interrupted."""
    charts = list(curves.scores(run))
    moves = curves.consensus(run)
    sections = [
        ("gain", "What learning together gave", gains(run.summary, run.honest)),
        ("curves", "Curves", _curves([*charts, *([] if moves is None else [moves])], run.summary)),
        ("privacy", "Privacy", _privacy(run)),
        ("cost", "Cost", _cost(run)),
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
    drawn, sentence = _figures(charts, name="curve"), evaluation_of(summary)
    if drawn is None or not sentence:
        return drawn
    return join([drawn, tag("p", f"{sentence[:1].upper()}{sentence[1:]}.", class_="small")])


def _figures(charts: Sequence[Chart], *, name: str) -> Markup | None:
    drawn = [found for place, chart in enumerate(charts) if (found := figure(chart, name=f"{name}{place}"))]
    return tag("div", drawn, class_="figures") if drawn else None


def _privacy(run: Run) -> Markup | None:
    """Return the statement of the run, word by word, what hides the models, and room for a signature."""
    privacy = run.summary.get("privacy")
    if privacy is None:
        return None
    names = {
        "mode": "mode",
        "clip": "clip: bound of what a peer changes in a release",
        "noise": "deviation of the private noise",
        "mask": "deviation of a mask",
        "participation": "probability of taking part in a round",
        "epsilon": "epsilon spent",
        "delta": "delta",
        "adjacency": "what the guarantee compares",
        "colluders": "peers that may collude",
    }
    facts = {label: privacy[key] for key, label in names.items() if privacy.get(key) is not None}
    chart = curves.spending(run)
    signed = tag(
        "div", [tag("div", part) for part in ("read and accepted: name", "date", "signature")], class_="signed"
    )
    statement = tag("p", tag("strong", "Statement of the run:"), f" {privacy['statement']}")
    return join(
        [
            tag("div", statement, class_="verdict"),
            pairs("What hides the models", {name: _fact(value) for name, value in facts.items()}),
            None if chart is None else _figures([chart], name="privacy"),
            signed,
        ]
    )


def _fact(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cost(run: Run) -> Markup | None:
    """Return bytes and seconds by peer and altogether."""
    last = {record.peer: record for record in run.metrics}
    if not last:
        return None
    spent = {peer: [0.0, 0.0, 0.0] for peer in last}
    for record in run.metrics:
        costs = record.seconds_training, record.seconds_waiting, len(record.missed)
        spent[record.peer] = [before + now for before, now in zip(spent[record.peer], costs, strict=True)]
    numbers = {peer: [last[peer].bytes_out, last[peer].bytes_in, *spent[peer]] for peer in sorted(last)}
    forms = [size, size, _seconds, _seconds, _whole]
    heads = ["sent", "received", "training", "waiting", "missed models"]
    kept = [place for place in range(len(heads)) if any(found[place] for found in numbers.values())]
    rows: list[list[object]] = [
        [peer, *(forms[place](found[place]) for place in kept)] for peer, found in list(numbers.items())[:MOST_PEERS]
    ]
    if len(last) > MOST_PEERS:
        rows.append([f"and {len(last) - MOST_PEERS} more", *[""] * len(kept)])
    everyone = table("By peer", ["peer", *(heads[place] for place in kept)], rows) if kept else None
    return beside(pairs("The whole run", _totals(run)), everyone)


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _totals(run: Run) -> dict[str, str]:
    summary = run.summary
    facts = {"rounds": f"{1 + max(record.round for record in run.metrics)} of {run.experiment.rounds}"}
    if "wall_s" not in summary:
        return facts
    foretold = " (predicted)" if summary.get("predicted") else ""
    facts |= {
        "in a round": exchanged(summary["steps"]),
        "from the first round to the last": f"{summary['wall_s']:.1f} s{foretold}",
        "before the first round": f"{summary['start_s']:.1f} s{foretold}",
        "training of all peers": f"{summary['training_s']:.1f} s",
        "sent by all peers": size(summary["bytes_sent"]),
        "models that came too late": str(summary["missed"]),
    }
    if summary.get("gradients") is not None:
        facts["gradients of all peers"] = f"{summary['gradients']:,}"
    if summary["peer_memory"] is not None:
        facts["private memory of a peer"] = size(summary["peer_memory"])
    return facts


def _events(run: Run) -> Markup | None:
    """Return what happened in words, without what always happens."""
    shown = grouped(event for event in run.events if event.severity != "info")
    lines = [_event(event, more) for event, more in shown[:MOST_EVENTS]]
    if len(shown) > MOST_EVENTS:
        lines.append(tag("li", f"and {len(shown) - MOST_EVENTS} more, in events.jsonl"))
    for peer, open_ in run.summary.get("unsettled", {}).items():
        found = sum((*open_["masks"].values(), *open_["steps"].values(), *open_["sums"].values()))
        lines.append(tag("li", tag("b", f"{peer}: "), f"{found} masks, gossip steps or sums stayed open at the end"))
    lost = (run.summary.get("masses") or {}).get("statement")
    if lost:
        lines.append(tag("li", lost))
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
