"""Gain from learning together, in a sentence and in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.report.comparing.comparison import lower_is_better
from p2pfl.report.comparing.wording import gained_by
from p2pfl.report.formats import number
from p2pfl.report.notices.wording import stopped
from p2pfl.report.pages.markup import Markup, join, tag
from p2pfl.report.pages.parts import TOTAL, beside, table
from p2pfl.report.reading import alone_of, stop_of
from p2pfl.report.records import Record, by_round

MOST_PEERS = 64
"""Peers that a table lists."""


def fragment(summary: Mapping[str, Any], metrics: Sequence[Record], *, rounds: int) -> str:
    """Return the result of a run as a part of a page, for notebooks."""
    return tag("div", tag("p", tag("strong", verdict(summary, metrics, rounds=rounds))), gains(summary, metrics))


def verdict(summary: Mapping[str, Any], metrics: Sequence[Record], *, rounds: int) -> str:
    """Return the result of a run of so many rounds in a sentence or two."""
    if not summary:
        found = len({record.round for record in metrics})
        return f"The run is not finished; {found} of {rounds} rounds are recorded."
    stop = stop_of(summary)
    early = "" if stop is None else f" It stopped after {stopped(stop)}."
    if "scores" in summary:
        said = ", ".join(f"{name} {number(value)}" for name, value in summary["scores"].items())
        alone = "".join(f" {sentence}" for sentence in gained_by(summary))
        return f"{summary['peer']} learned a model with {said}.{alone}{early}"
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


def gains(summary: Mapping[str, Any], metrics: Sequence[Record]) -> Markup | None:
    """Return scores by peer; of one peer or an interrupted run its last scores."""
    if alone_of(summary):
        return _of_one(summary)
    if "per_peer" not in summary or summary["metric"] is None:
        return _last_scores(metrics)
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
        "This is one run with one seed: a difference may be chance. ",
        tag("code", "p2pfl sweep"),
        " repeats it over seeds and gives intervals.",
        class_="small",
    )
    found = table(f"{metric} by peer", ("peer", "alone", "together", "gain"), rows)
    return join([beside(found, _last_scores(metrics)), note])


def _of_one(summary: Mapping[str, Any]) -> Markup:
    """Return the scores of one peer beside those of the model that it has trained alone."""
    rows = [
        [name, number(alone), number(summary["scores"].get(name)), _difference(_pair(summary, name), name)]
        for name, alone in alone_of(summary).items()
    ]
    return table(f"Scores of {summary['peer']}", ("score", "alone", "together", "gain"), rows)


def _pair(summary: Mapping[str, Any], name: str) -> dict[str, float | None]:
    return {"alone": alone_of(summary).get(name), "together": summary["scores"].get(name)}


def _last_scores(metrics: Sequence[Record]) -> Markup | None:
    """Return all scores of the last round as the mean over the peers that do not attack."""
    rounds = by_round(metrics)
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
    evaluated = sum(bool(record.scores) for record in records)
    return table(f"Scores after round {last + 1}, over {evaluated} peers", ("score", "mean", "least", "most"), rows)


def _difference(score: Mapping[str, Any], metric: str) -> Markup | str:
    if score["alone"] is None or score["together"] is None:
        return ""
    gain = score["together"] - score["alone"]
    better = gain < 0 if lower_is_better(metric) else gain > 0
    return tag("span", f"{gain:+.3f}", class_="good" if better else "bad" if gain else None)
