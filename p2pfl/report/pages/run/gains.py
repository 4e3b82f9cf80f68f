"""Gain from learning together, in a sentence and in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.report.comparing.comparison import lower_is_better
from p2pfl.report.comparing.intervals import newcombe
from p2pfl.report.comparing.wording import gained_by
from p2pfl.report.formats import number
from p2pfl.report.notices.wording import stopped
from p2pfl.report.pages.markup import Markup, join, tag
from p2pfl.report.pages.parts import MOST_PEERS, TOTAL, beside, table
from p2pfl.report.reading import alone_of, stop_of
from p2pfl.report.records import Record, by_round

INTERVAL = "95 % interval"
"""Heading of the intervals of gains."""


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
    heads = ("peer", "samples", "alone", "together", "gain", INTERVAL)
    rows = [
        _row(f"{name} (attacks)" if each["attacker"] else name, each, metric, between=_interval(each, metric))
        for name, each in everyone[:MOST_PEERS]
    ]
    if len(everyone) > MOST_PEERS:
        rows.append([f"and {len(everyone) - MOST_PEERS} more", *[""] * (len(heads) - 1)])
    attacked = any(score["attacker"] for _, score in everyone)
    totals = [_row("mean of the others" if attacked else "mean", summary, metric)]
    samples = sum(each.get("samples") or 0 for _, each in everyone)
    for name, value in (
        ("one model on all data", summary["pooled"]),
        ("one model of all peers", (summary.get("common") or {}).get(metric)),
    ):
        if value is not None:
            totals.append([name, samples or "", "", number(value), "", ""])
    found = [place for place in range(len(heads)) if any(row[place] for row in (*rows, *totals))]
    shown = [[row[place] for place in found] for row in rows]
    shown += [[TOTAL, *(row[place] for place in found)] for row in totals]
    made = table(f"{metric} by peer", [heads[place] for place in found], shown)
    return join([beside(made, _last_scores(metrics)), _note(summary, tested=heads.index(INTERVAL) in found)])


def _row(name: str, score: Mapping[str, Any], metric: str, *, between: str = "") -> list[object]:
    """Return the cells of a peer, or of the mean of all; those that are unknown are empty."""
    scores = number(score["alone"]), number(score["together"])
    return [name, score.get("samples") or "", *scores, _difference(score, metric), between]


def _note(summary: Mapping[str, Any], *, tested: bool) -> Markup:
    """Return what the table says about chance, and what it does not."""
    said = "This is one run with one seed: a difference may be chance. "
    if tested:
        sizes = sorted({each["tested"] for each in summary["per_peer"].values() if each.get("tested")})
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        said = (
            f"Intervals are 95 % confidence intervals of the gain on new data, from {span} test samples of each model "
            "(Newcombe's method 10). They do not contain the variation between seeds. "
        )
    if summary.get("lossless"):
        said = (
            "Lossless: the peers have the one model on all data, to the last bit; its score there counts all test "
            f"samples alike, and the mean all peers. {said}"
        )
    sweep = tag("code", "p2pfl sweep")
    return tag("p", said, sweep, " repeats a run with several seeds and gives intervals over these.", class_="small")


def _interval(score: Mapping[str, Any], metric: str) -> str:
    """Return the 95 % interval of a gain; empty where it is unknown, or the score is not the share of samples."""
    alone, together = score["alone"], score["together"]
    if metric != "accuracy" or not score.get("tested") or alone is None or together is None:
        return ""
    low, high = newcombe(together, alone, score["tested"])
    return "" if math.isnan(low) else f"{low:+.3f} to {high:+.3f}"


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
    if math.isnan(gain):
        return ""
    better = gain < 0 if lower_is_better(metric) else gain > 0
    return tag("span", f"{gain:+.3f}", class_="good" if better else "bad" if gain else None)
