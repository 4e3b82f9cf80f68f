"""The page of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from p2pfl.experiment import write
from p2pfl.report.comparing.comparison import lower_is_better
from p2pfl.report.notices.kinds import Notice
from p2pfl.report.notices.wording import sentence, stopped
from p2pfl.report.pages import curves
from p2pfl.report.pages.markup import Markup, join, tag
from p2pfl.report.pages.parts import (
    TOTAL,
    beside,
    box,
    changed,
    details,
    digests,
    moment,
    number,
    page,
    pairs,
    size,
    software,
    table,
)
from p2pfl.report.pages.svg import Chart, figure
from p2pfl.report.results import alarms_of, stop_of
from p2pfl.report.run import Run

MOST_PEERS = 64
"""Peers that a table lists."""

MOST_EVENTS = 60
"""Events that a page lists."""


def run_page(run: Run) -> str:
    """Return the page of a run, be it a simulation, a swarm or one peer, and ended or interrupted."""
    charts = list(curves.scores(run))
    moves = curves.consensus(run)
    sections = [
        ("gain", "What learning together gave", _gain(run)),
        ("curves", "Curves", _figures([*charts, *([] if moves is None else [moves])], name="curve")),
        ("privacy", "Privacy", _privacy(run)),
        ("cost", "Cost", _cost(run)),
        ("events", "What happened", _events(run)),
        ("repeat", "How to repeat it", _repeat(run)),
    ]
    who = f", peer {run.summary['peer']}" if "peer" in run.summary else ""
    began = run.provenance.get("began")
    when = tag("p", f"Report of a p2pfl run{'' if not began else f', begun {moment(began)}'}.", class_="small")
    return page(f"{run.experiment.name}{who}", sections, head=[when, *_head(run)])


def _head(run: Run) -> Iterator[Markup]:
    """Yield what comes first: alarms, then the result in a sentence."""
    summary = run.summary
    for alarm in alarms_of(summary):
        if alarm.cancelled:
            partners = ", ".join(alarm.partners)
            said = f" In round {alarm.round + 1} masks of {partners} did not cancel; they are cancelled now."
            yield box("warning", f" {alarm.peer}:{said}")
        else:
            yield box("alarm", f" {alarm.peer}: {sentence(alarm)}")
    if not summary:
        for event in run.events:
            if event.severity == "alarm":
                yield box("alarm", f" {event.peer}: {sentence(event)}")
    if summary and not summary.get("accounted", True):
        yield box("alarm", " The account of the data does not count this run, because it ran with --unaccounted.")
    yield box("verdict", verdict(run))
    for advice in summary.get("advice", ()):
        yield box("warning", f" {advice[:1].upper()}{advice[1:]}.")


def verdict(run: Run) -> str:
    """Return the result of a run in a sentence or two."""
    summary = run.summary
    if not summary:
        rounds = len({record.round for record in run.metrics})
        return f"The run did not come to its end; {rounds} of {run.experiment.rounds} rounds are recorded."
    stop = stop_of(summary)
    early = "" if stop is None else f" It stopped after {stopped(stop)}."
    if "scores" in summary:
        said = ", ".join(f"{name} {number(value)}" for name, value in summary["scores"].items())
        return f"{summary['peer']} learned a model with {said}.{early}"
    if summary["metric"] is None:
        return f"{summary['peers']} peers learned together for {summary['rounds']} rounds; there is no score.{early}"
    known = [("Together", "together"), ("alone", "alone"), ("on all data", "pooled")]
    said = ", ".join(f"{word} {number(summary[key])}" for word, key in known if summary[key] is not None)
    return f"{said} ({summary['metric']}, mean of the peers).{_gained(summary)}{early}"


def _gained(summary: Mapping[str, Any]) -> str:
    honest = [each for each in summary["per_peer"].values() if not each["attacker"]]
    pairs = [(each["alone"], each["together"]) for each in honest]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return ""
    lower = lower_is_better(summary["metric"])
    better = sum((together < alone) if lower else (together > alone) for alone, together in pairs)
    who = "All" if better == len(pairs) else f"{better} of"
    return f" {who} {len(pairs)} peers gained."


def _gain(run: Run) -> Markup | None:
    """Return scores by peer; of one peer or an interrupted run its last scores."""
    summary = run.summary
    if "per_peer" not in summary or summary["metric"] is None:
        return _last_scores(run)
    metric, everyone = summary["metric"], list(summary["per_peer"].items())
    rows: list[list[object]] = []
    for name, score in everyone[:MOST_PEERS]:
        shown = f"{name} (attacks)" if score["attacker"] else name
        rows.append([shown, number(score["alone"]), number(score["together"]), _difference(score, metric)])
    if len(everyone) > MOST_PEERS:
        rows.append([f"and {len(everyone) - MOST_PEERS} more", "", "", ""])
    attacked = any(score["attacker"] for _, score in everyone)
    rows.append(
        [
            TOTAL,
            "mean of the others" if attacked else "mean",
            number(summary["alone"]),
            number(summary["together"]),
            _difference(summary, metric),
        ]
    )
    if summary["pooled"] is not None:
        rows.append([TOTAL, "one model on all data", "", number(summary["pooled"]), ""])
    if summary.get("common"):
        rows.append([TOTAL, "one model of all peers", "", number(summary["common"].get(metric)), ""])
    note = tag(
        "p",
        "Each peer is scored on its own test part. This is one run with one seed: a difference may be chance. ",
        tag("code", "p2pfl sweep"),
        " repeats it over seeds and gives intervals.",
        class_="small",
    )
    gains = table(f"{metric} by peer", ("peer", "alone", "together", "gain"), rows)
    return join([beside(gains, _last_scores(run)), note])


def _last_scores(run: Run) -> Markup | None:
    """Return all scores of the last round as the mean over the peers."""
    rounds = curves.by_round(run.metrics)
    if not rounds:
        return None
    last, records = list(rounds.items())[-1]
    names = list(dict.fromkeys(name for record in records for name in record.scores))
    if not names:
        return None
    rows = []
    for name in names:
        values = [record.scores[name] for record in records if name in record.scores]
        rows.append([name, number(sum(values) / len(values)), number(min(values)), number(max(values))])
    return table(f"Scores after round {last + 1}, over {len(records)} peers", ("score", "mean", "least", "most"), rows)


def _difference(score: Mapping[str, Any], metric: str) -> Markup | str:
    if score["alone"] is None or score["together"] is None:
        return ""
    gain = score["together"] - score["alone"]
    better = gain < 0 if lower_is_better(metric) else gain > 0
    return tag("span", f"{gain:+.3f}", class_="good" if better else "bad" if gain else None)


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
    numbers = {peer: [record.bytes_out, record.bytes_in, *spent[peer]] for peer, record in last.items()}
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
        "gossip steps in a round": str(summary["steps"]),
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
    told = [event for event in run.events if event.severity != "info"]
    lines = [_event(event) for event in told[:MOST_EVENTS]]
    if len(told) > MOST_EVENTS:
        lines.append(tag("li", f"and {len(told) - MOST_EVENTS} more, in events.jsonl"))
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


def _event(event: Notice) -> Markup:
    when = (
        None
        if event.time is None
        else tag("time", f"{event.time:%Y-%m-%d %H:%M:%S} UTC", datetime=event.time.isoformat())
    )
    kind = {"alarm": "bad", "warning": "warn", "resolved": "good"}.get(event.severity)
    return tag(
        "li", when, " " if when else None, tag("b", f"{event.peer}: "), tag("span", sentence(event), class_=kind)
    )


def _repeat(run: Run) -> Markup:
    experiment = run.experiment
    keys = {key: tag("code", value) for key, value in changed(experiment).items()}
    provenance = run.provenance or run.summary
    return join(
        [
            tag("p", "Save the experiment below as experiment.toml. The same seed gives the same data and batches."),
            tag("pre", "p2pfl simulate experiment.toml    # or: p2pfl run experiment.toml"),
            pairs("Keys of the experiment that are not the default", keys),
            details("the whole experiment file", tag("pre", write(experiment))),
            software(provenance),
            None if run.folder is None else digests(run.folder),
        ]
    )
