"""Gain from learning together, in a sentence and in tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from p2pfl.results.comparisons.comparison import lower_is_better
from p2pfl.results.comparisons.wording import describe_gain
from p2pfl.results.facts import Block, BlockGroup, FactTable, Note, Styled, shorten
from p2pfl.results.formats import count_of, number, of_rounds
from p2pfl.results.records import Record, by_round
from p2pfl.results.run_files import scored_peers, scores_alone, stop_of

MAX_LISTED_PEERS = 64
"""Peers that a table, a graph or a list of bars shows."""

LOSSLESS_NOTE = (
    "Lossless: the peers have the one model on all data, to the last bit; its score there counts all test samples "
    "alike, and the mean all peers."
)
"""Sentence where models follow from totals."""

POOLED_DIFFERENCE = 1e-6
"""Largest difference from the model on all data at which a note says that it is that model."""

COMMON_LABELS = {
    "auc": "its area under the ROC curve",
    "auc_bound": "at most off by",
    "calibration_error": "its calibration error",
    "brier": "its Brier score",
    "concordance_bound": "at most off by",
    "hosmer_lemeshow": "its Hosmer-Lemeshow statistic",
    "hosmer_lemeshow_p": "p-value of that test",
}
"""Further scores of the one model of all peers, and what a summary calls them."""

INTERVAL_HEAD = "95 % interval"
"""Heading of the intervals of gains."""

METHOD_TEMPLATES = {
    "newcombe": "Newcombe's method 10",
    "paired t": "Student's t for the differences of the two models on the same samples",
    "bootstrap": "percentiles of {:,} bootstrap samples, on which both models are scored",
}
"""Methods of intervals in words, by their name in ``summary.json``; with the number of bootstrap samples."""

MISSING_REASONS = (
    "A gain has no interval where a learner or a function of your own computes the score, several processes shared the "
    "simulation, or the test samples are too few or do not tell the models apart. "
)
"""Reasons why an interval is missing."""


def lossless_note(summary: Mapping[str, Any]) -> str | None:
    """Return how near the model of the peers is to the one on all data; ``None`` if it is not known or another."""
    difference = summary.get("difference")
    if difference is None:
        return LOSSLESS_NOTE if summary.get("lossless") else None
    if difference == 0:
        return "Lossless: the peers have the one model on all columns, to the last bit."
    if difference <= POOLED_DIFFERENCE:
        return "Pooled to 1e-6: the coefficients of the peers are those of one model on all columns to 1e-6."
    return f"The coefficients of the peers differ from those of one model on all columns by up to {difference:.1g}."


def verdict(summary: Mapping[str, Any], metrics: Sequence[Record], *, rounds: int | str) -> str:
    """Return the result of a run of so many rounds in a sentence or two."""
    if not summary:
        recorded = len({record.round for record in metrics})
        return f"The run is not finished; {of_rounds(recorded, rounds)} rounds are recorded."
    stop = stop_of(summary)
    early = "" if stop is None else f" It stopped after {stop}."
    if "scores" in summary:
        result = ", ".join(f"{name} {number(value)}" for name, value in summary["scores"].items())
        alone = "".join(f" {sentence}" for sentence in describe_gain(summary))
        if not result:  # a statistic, or a learner that does not evaluate
            return f"{summary['peer']} has the result; there is no score.{early}"
        return f"{summary['peer']} learned a model with {result}.{alone}{early}"
    if summary["metric"] is None:
        took = count_of(summary["rounds"], "round")
        return f"{summary['peers']} peers learned together for {took}; there is no score.{early}"
    means = [("Together", "together"), ("alone", "alone")]
    result = ", ".join(f"{word} {number(summary[key])}" for word, key in means if summary[key] is not None)
    scored = list(scored_peers(summary))
    whose = f"of {scored[0]}" if len(scored) == 1 else "mean of the peers"
    result += f" ({summary['metric']}, {whose})"
    if summary["pooled"] is not None:
        result += f"; one model on all data {number(summary['pooled'])} (all test samples alike)"
    return f"{result}.{_describe_gain(summary)}{early}"


def _describe_gain(summary: Mapping[str, Any]) -> str:
    honest = [each for each in summary["per_peer"].values() if not each["attacker"]]
    pairs = [(each["alone"], each["together"]) for each in honest]
    if len(pairs) < 2 or any(value is None for pair in pairs for value in pair):
        return ""
    lower = lower_is_better(summary["metric"])
    better = sum((together < alone) if lower else (together > alone) for alone, together in pairs)
    who = "All" if better == len(pairs) else f"{better} of"
    return f" {who} {len(pairs)} peers gained."


def gains(summary: Mapping[str, Any], metrics: Sequence[Record]) -> list[Block | None]:
    """Return scores by peer; of one peer or an interrupted run its last scores."""
    if scores_alone(summary):
        return _of_one(summary)
    if "per_peer" not in summary or summary["metric"] is None:
        return [_last_scores(metrics)]
    return [BlockGroup([gain_table(summary), _last_scores(metrics)], "beside"), Note(_note(summary), style="small")]


def gain_table(summary: Mapping[str, Any], *, most: int = MAX_LISTED_PEERS) -> FactTable:
    """Return scores by peer, then the mean of several and those of models of everybody.

    Parameters
    ----------
    summary
        Content of ``summary.json``, with a metric.
    most
        Peers that the table lists.
    """
    metric, everyone = summary["metric"], list(scored_peers(summary).items())
    rows = shorten(
        (_row(f"{name} (attacks)" if each.get("attacker") else name, each, metric) for name, each in everyone), most
    )
    attacked = any(score.get("attacker") for _, score in everyone)
    samples = sum(each.get("samples") or 0 for _, each in everyone)
    common = summary.get("common") or {}
    totals = {"one model on all data": summary["pooled"], "one model of all peers": common.get(metric)}
    totals |= {label: common.get(name) for name, label in COMMON_LABELS.items()}
    bold = len(rows)
    if len(everyone) > 1:
        rows.append(_row("mean of the others" if attacked else "mean", summary, metric))
    rows += [[name, samples or "", "", number(value), "", ""] for name, value in totals.items() if value is not None]
    heads = ("peer", "samples", "alone", "together", "gain", INTERVAL_HEAD)
    return FactTable(f"{metric} by peer", heads, rows, bold=range(bold, len(rows))).dense()


def _row(name: str, score: Mapping[str, Any], metric: str) -> list[object]:
    """Return the cells of a peer, or of the mean of all; those that are unknown are empty."""
    gain, between = _gain(score), _recorded_interval(score)
    better = gain is not None and (gain < 0 if lower_is_better(metric) else gain > 0)
    difference = "" if gain is None else Styled(f"{gain:+.3f}", "good" if better else "bad" if gain else "")
    interval = "" if between is None else f"{between['low']:+.3f} to {between['high']:+.3f}"
    return [name, score.get("samples") or "", number(score["alone"]), number(score["together"]), difference, interval]


def _note(summary: Mapping[str, Any]) -> str:
    """Return a note on chance in the table."""
    each = list(summary["per_peer"].values())
    methods = _methods([_recorded_interval(score) for score in each if _gain(score) is not None], summary["per_peer"])
    near = lossless_note(summary)
    lossless = "" if near is None else f"{near} "
    return (
        f"{lossless}This is one run with one seed: a difference may be chance. "
        f"{methods}p2pfl sweep repeats a run with several seeds and gives intervals over these."
    )


def _methods(intervals: Sequence[Mapping[str, Any] | None], per_peer: Mapping[str, Any]) -> str:
    """Return the methods of the intervals of gains, and the reasons for missing ones; empty without gains."""
    present = [each for each in intervals if each]
    sentence = ""
    if present:
        sizes = sorted({each["tested"] for each in per_peer.values() if each.get("tested")})
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else ""
        samples = f", from {span} test samples of each model" if span else ""
        methods = "; ".join(dict.fromkeys(map(_method, present)))
        sentence = (
            f"Intervals are 95 % confidence intervals of the gain on new data{samples} ({methods}). They do not "
            "contain the variation between seeds. "
        )
    return sentence + (MISSING_REASONS if len(present) < len(intervals) else "")


def _method(interval: Mapping[str, Any]) -> str:
    """Return the method of an interval in words, or as the file has it where this release does not know it."""
    template = METHOD_TEMPLATES.get(interval["method"])
    return str(interval["method"]) if template is None else template.format(interval["draws"])


def _recorded_interval(score: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the recorded interval of a gain; ``None`` if the gain is unknown."""
    return None if _gain(score) is None else score.get("interval")


def _gain(score: Mapping[str, Any]) -> float | None:
    """Return the gain of a score; ``None`` if it is unknown."""
    if score["alone"] is None or score["together"] is None:
        return None
    gain = float(score["together"] - score["alone"])
    return None if math.isnan(gain) else gain


def _of_one(summary: Mapping[str, Any]) -> list[Block | None]:
    """Return the scores of one peer beside those of the model that it has trained alone."""
    intervals, scores = summary.get("intervals", {}), summary["scores"]
    rows = [
        _row(name, {"alone": alone, "together": scores.get(name), "interval": intervals.get(name)}, name)
        for name, alone in scores_alone(summary).items()
    ]
    note = _methods([intervals.get(name) for name in scores_alone(summary)], {})
    heads = ("score", "samples", "alone", "together", "gain", INTERVAL_HEAD)
    return [FactTable(f"Scores of {summary['peer']}", heads, rows).dense(), Note(note.strip(), style="small")]


def _last_scores(metrics: Sequence[Record]) -> FactTable | None:
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
    caption = f"Scores after round {last + 1}, over {count_of(evaluated, 'peer')}"
    return FactTable(caption, ("score", "mean", "least", "most"), rows)
