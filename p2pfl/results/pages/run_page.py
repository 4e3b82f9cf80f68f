"""The page of one run."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.experiment import Experiment, flat, write
from p2pfl.experiment.file.reading import PATHS
from p2pfl.results.facts import (
    Block,
    BlockGroup,
    Bullets,
    FactTable,
    Happening,
    Note,
    Section,
    Styled,
    pairs,
    shorten,
)
from p2pfl.results.formats import describe_exchange, format_value, of_rounds, size
from p2pfl.results.notices.kinds import Notice
from p2pfl.results.notices.notice_groups import group_notices
from p2pfl.results.pages import run_charts
from p2pfl.results.pages.features import features
from p2pfl.results.pages.gains import MAX_LISTED_PEERS, gains, verdict
from p2pfl.results.pages.graph_section import neighbourhoods
from p2pfl.results.pages.rendering import page
from p2pfl.results.plots import chart_figure
from p2pfl.results.run import Run
from p2pfl.results.run_files import alarms_of, evaluation_of, explanation_of
from p2pfl.results.swarm.timeline import alerts_of_run

DIGEST_FILES = ("experiment.toml", "metrics.jsonl", "events.jsonl", "summary.json")
"""Files of a run whose digests identify it."""

PROTECTION_LABELS = {
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
"""Fields of a summary on privacy, in words."""

MAX_EVENTS = 60
"""Events that a page lists."""


def run_page(run: Run) -> str:
    """Return the page of a run, be it a simulation, a swarm or one peer, and ended or interrupted."""
    explanation = explanation_of(run.summary)
    regression = explanation is not None and explanation.regression is not None
    model: Section = ("features", "Regression" if regression else "Features of the model", features(run.summary))
    learned: list[Section] = [
        ("gain", "What learning together gave", gains(run.summary, run.honest)),
        ("curves", "Curves", _curves(run)),
    ]
    sections: list[Section] = [
        *([model, *learned] if regression else [*learned, model]),
        ("graph", "Topology", neighbourhoods(run)),
        ("privacy", "Privacy", _privacy(run)),
        ("cost", "Cost", _costs(run)),
        ("events", "What happened", [_events(run)]),
        ("repeat", "How to repeat it", _repeat(run)),
    ]
    who = f", peer {run.summary['peer']}" if "peer" in run.summary else ""
    began = run.provenance.get("began")
    when = Note(f"Report of a p2pfl run{'' if not began else f', begun {moment(began)}'}.", style="small")
    return page(f"{run.experiment.name}{who}", sections, head=[when, *_head(run)])


def _head(run: Run) -> Iterator[Note]:
    """Yield the head of the page: alarms, then the result in a sentence."""
    summary = run.summary
    for alarm, more in group_notices(alarms_of(summary)):
        yield Note(f"{alarm.peer}: {alarm}{more}", style="alarm")
    for alert in () if summary else alerts_of_run(run):
        if alert.severity == "alarm":
            yield Note(f"{alert.peer}: {alert.sentence}", style="warning" if alert.over else "alarm")
    if not summary.get("accounted", True):
        yield Note("The account of the data does not count this run, because it ran with --unaccounted.", style="alarm")
    yield Note(verdict(run.summary, run.metrics, rounds=run.experiment.rounds), style="verdict")
    for advice in summary.get("advice", ()):
        yield Note(f"{advice[:1].upper()}{advice[1:]}.", style="warning")


def _curves(run: Run) -> list[Block | None]:
    """Return the charts, and how much of a simulation they show."""
    if len({record.round for record in run.metrics}) < 2:
        return []
    drawn = [
        figure
        for chart in (*run_charts.score_charts(run), run_charts.consensus(run))
        if (figure := chart_figure(chart))
    ]
    about = evaluation_of(run.summary) if drawn else None
    note = Note(f"{about[:1].upper()}{about[1:]}.", style="small") if about else None
    return [BlockGroup(drawn, "figures") if drawn else None, note]


def _privacy(run: Run) -> list[Block | None]:
    """Return the statement of the run, word by word, what stands behind it, and room for a signature."""
    privacy = run.summary.get("privacy")
    if privacy is None:
        return []
    facts = {label: privacy[key] for key, label in PROTECTION_LABELS.items() if privacy.get(key) is not None}
    facts = {label: f"{value:.4g}" if isinstance(value, float) else value for label, value in facts.items()}
    learned, chart = privacy.get("learned"), chart_figure(run_charts.spending_chart(run))
    return [
        Note(privacy["statement"], style="verdict", lead="Statement of the run:"),
        pairs("What hides the models", facts),
        pairs("Who learns what", learned) if learned else None,
        *_observers(privacy.get("observers", ())),
        None if chart is None else BlockGroup([chart], "figures"),
        Note("", style="signature"),
    ]


def _observers(observers: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Return the guarantee against each observer over all rounds that ran; the promised one is in bold."""
    if not observers:
        return []
    rows = [
        [each["observer"], each.get("peer") or ""]
        + ["unbounded" if each["epsilon"] is None else f"{each['epsilon']:.3g}"]
        + [f"{each[name]:.3f}" for name in ("auc", "tpr")]
        for each in observers
    ]
    note = (
        "Epsilon of the peer that is worst off. AUC and TPR are those of the best attack that there can be: TPR is its "
        "rate of true positives at 1 % of false ones. A broker that lies drops, delays and repeats messages, and "
        "isolates a peer. The run promises the line in bold. The table counts the rounds of this run and assumes "
        "that no peer disappears."
    )
    promised = [number for number, each in enumerate(observers) if each["promised"]]
    heads = ("who looks", "peer", "epsilon", "AUC", "TPR at 1 %")
    caption = "What all rounds give away, by observer"
    return [FactTable(caption, heads, rows, text=2, bold=promised), Note(note, style="small")]


def _costs(run: Run) -> list[Block | None]:
    """Return bytes and seconds by peer and altogether."""
    spent: dict[str, list[float]] = {}
    for each in run.metrics:
        before = spent.get(each.peer, [0.0] * 5)
        own = each.seconds_training, each.seconds_waiting, len(each.missed)
        spent[each.peer] = [each.bytes_out, each.bytes_in, *map(operator.add, before[2:], own)]
    if not spent:
        return []
    forms = [size, size, "{:.1f} s".format, "{:.1f} s".format, "{:.0f}".format]
    used = [any(column) for column in zip(*spent.values(), strict=True)]
    rows = [
        [peer, *(form(cost) if shown else "" for form, cost, shown in zip(forms, each, used, strict=True))]
        for peer, each in sorted(spent.items())
    ]
    heads = ("peer", "sent", "received", "training", "waiting", "missed models")
    table = FactTable("By peer", heads, shorten(rows, MAX_LISTED_PEERS)).dense() if any(used) else None
    return [BlockGroup([pairs("The whole run", _totals(run)), table], "beside")]


def _totals(run: Run) -> dict[str, str]:
    summary = run.summary
    facts = {"rounds": of_rounds(1 + max(record.round for record in run.metrics), run.experiment.rounds)}
    if "wall_s" not in summary:
        return facts
    foretold = " (predicted)" if summary.get("predicted") else ""
    facts |= {
        "in a round": describe_exchange(summary["steps"]),
        "from the first round to the last": f"{summary['wall_s']:.1f} s{foretold}",
        "before the first round": f"{summary['start_s']:.1f} s{foretold}",
        "training of all peers": f"{summary['training_s']:.1f} s",
        "sent by all peers": size(summary["bytes_sent"]),
        "models that came too late": str(summary["missed"]),
    }
    if summary.get("computing") is not None:
        facts["share of the time training"] = f"{summary['computing']:.1%}"
    if summary.get("gradients") is not None:
        facts["gradients of all peers"] = f"{summary['gradients']:,}"
    if summary["peer_memory"] is not None:
        facts["private memory of a peer"] = size(summary["peer_memory"])
    if summary.get("bytes_written") is not None:
        facts["written by a peer in a round since its last start"] = size(summary["bytes_written"])
    return facts


def _events(run: Run) -> Block | None:
    """Return the events in words, without those of every run."""
    groups = group_notices(event for event in run.events if event.severity != "info")
    lines = [_event(event, more) for event, more in groups[:MAX_EVENTS]]
    if len(groups) > MAX_EVENTS:
        lines.append(Happening(f"and {len(groups) - MAX_EVENTS} more, in events.jsonl"))
    for peer, open_ in run.summary.get("unsettled", {}).items():
        left = sum((*open_["steps"].values(), *open_["sums"].values()))
        lines.append(Happening(f"{left} gossip steps or sums stayed open at the end", peer))
    if not lines:
        quiet = bool(run.events) or "per_peer" in run.summary
        return "Nothing out of the ordinary was recorded." if quiet else None
    return Bullets(lines)


def _event(event: Notice, more: str) -> Happening:
    when = None if event.time is None else (f"{event.time:%Y-%m-%d %H:%M:%S} UTC", event.time.isoformat())
    style = {"alarm": "bad", "warning": "warn", "resolved": "good"}.get(event.severity, "")
    return Happening(f"{event}{more}", event.peer, when, style)


def _repeat(run: Run) -> list[Block | None]:
    return [
        "Save the experiment below as experiment.toml. The same seed gives the same data and batches.",
        Note("Absolute paths are shown without their folders; complete them.", style="small"),
        Note("p2pfl simulate experiment.toml    # or: p2pfl run experiment.toml", style="code"),
        *provenance(run, whose="the"),
        None if run.folder is None else _digests(run.folder),
    ]


def provenance(run: Run, *, whose: str) -> list[Block | None]:
    """Return the experiment of a run, its start, seed, software and machine."""
    record = run.provenance or run.summary
    usual, experiment = flat(Experiment()), _portable(run.experiment)
    changed = {
        key: Styled(format_value(value), "code") for key, value in flat(experiment).items() if usual.get(key) != value
    }
    return [
        pairs("Keys of the experiment that are not the default", changed),
        BlockGroup([Note(write(experiment), style="code")], "details", f"{whose} whole experiment file"),
        _software(record),
    ]


def moment(text: str | None) -> str:
    """Return a time in UTC for people.

    Examples
    --------
    >>> moment("2026-11-22T13:07:00+00:00")
    '2026-11-22 13:07:00 UTC'
    """
    return "unknown" if text is None else text.replace("T", " ").replace("+00:00", " UTC")


def _portable(experiment: Experiment) -> Experiment:
    """Return an experiment whose absolute paths are names of files."""

    def short(path: Any) -> Any:
        if isinstance(path, list | tuple):
            return type(path)(short(each) for each in path)
        return Path(path).name if isinstance(path, str) and Path(path).is_absolute() else path

    for key in PATHS:
        section, _, name = key.partition(".")
        own = getattr(experiment, section)
        options, _, option = name.partition(".")
        value = getattr(own, options)
        changed = short(value)
        if option:
            changed = value | {option: short(value[option])} if isinstance(value, dict) and option in value else value
        own = msgspec.structs.replace(own, **{options: changed})
        experiment = msgspec.structs.replace(experiment, **{section: own})
    return experiment


def _software(record: Mapping[str, Any]) -> FactTable | None:
    """Return seed, start, versions and machine of a run."""
    versions = record.get("versions")
    if not versions:
        return None
    names = {"cpus": "logical CPUs", "python": "Python", "commit": "commit of p2pfl", "cpu": "processor"}
    names |= {"kernels": "kernels of torch", "gpu": "GPU"}
    facts = {"began": moment(record.get("began")), "seed": record.get("seed", "unknown")}
    facts |= {} if record.get("commit") is None else {"commit of own modules": record["commit"]}
    facts |= {names.get(key, key): value for key, value in versions.items() if value is not None}
    return pairs("Start, seed, software and machine", facts)


def _digests(folder: Path) -> FactTable | None:
    """Return the digests of a run's files, by which a copy is recognised."""
    digests = {
        name: Styled(hashlib.sha256((folder / name).read_bytes()).hexdigest(), "code")
        for name in DIGEST_FILES
        if (folder / name).is_file()
    }
    return pairs(f"SHA-256 of the files in {folder.name}", digests) if digests else None
