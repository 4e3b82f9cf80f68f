"""Charts of a run over rounds and bytes."""

from __future__ import annotations

from collections.abc import Iterator

from p2pfl.results.charts import Chart, Curve, curve_over_rounds, score, sent_megabytes
from p2pfl.results.records import by_round
from p2pfl.results.run import Run
from p2pfl.results.run_files import apart_by_masks, scores_alone

LEVEL_LABELS = {"alone": "alone, mean", "pooled": "one model on all data"}
"""Scores of a summary that are horizontal lines, with their names."""


def score_charts(run: Run) -> Iterator[Chart]:
    """Yield the charts of each score over rounds, the main score first, and that one over bytes.

    Scores are those of the peers that do not attack; bytes are those of all peers.
    """
    rounds = by_round(run.honest)
    if not rounds:
        return
    names = list(dict.fromkeys(name for record in run.metrics for name in record.scores))
    main = run.summary.get("metric") or next((name for name in names if name != "loss"), None)
    names.sort(key=lambda name: name != main)
    for name in names:
        curve = curve_over_rounds(rounds, score(name), label=label_of(run))
        averaged = {record.round + 1: record.mean_model[name] for record in run.metrics if name in record.mean_model}
        means = [Curve("mean of all models", [*averaged], [*averaged.values()], style=1)] if averaged else []
        levels = [
            (label.removesuffix(", mean") if "scores" in run.summary else label, value)
            for key, label in LEVEL_LABELS.items()
            if (value := _level(run, key, name)) is not None
        ]
        about = _describe(curve, name) + "".join(f" {label}: {value:.3f}." for label, value in levels)
        yield Chart(f"{name} by round", about, "round", name, [curve, *means], levels=levels, whole=True)
        if name == main:
            sent = sent_megabytes(by_round(run.metrics))
            over = Curve(curve.label, [sent[int(x) - 1] for x in curve.xs], curve.ys, curve.low, curve.high)
            whose = "MB sent" if "scores" in run.summary else "MB sent by all peers"
            yield Chart(f"{name} by bytes", _describe(over, name), whose, name, [over], levels=levels)


def _level(run: Run, key: str, name: str) -> float | None:
    """Return a score of a summary that a curve can be compared with."""
    if "scores" in run.summary:
        return scores_alone(run.summary).get(name) if key == "alone" else None
    value = run.summary.get(key)
    return None if value is None or name != run.summary.get("metric") else float(value)


def consensus(run: Run) -> Chart | None:
    """Return the chart of how far the last gossip step moves the models; ``None`` where nothing moves them."""
    rounds = by_round(run.honest)
    masked = apart_by_masks(run.summary, run.experiment)
    step = "last gossip step, most of it by masks" if masked else "last gossip step"
    curves = [
        curve_over_rounds(rounds, lambda record: record.distance, label=step, style=0),
        curve_over_rounds(rounds, lambda record: record.update, label="training of the round", style=1),
    ]
    curves = [curve for curve in curves if any(value > 0 for value in curve.ys)]
    if not curves:
        return None
    return Chart(
        "how far models move",
        "Distance by which the last gossip step and the training of a round move a model, in the mean. "
        + " ".join(_describe(curve, curve.label) for curve in curves),
        "round",
        "L2 distance",
        curves,
        log=True,
        whole=True,
    )


def spending_chart(run: Run) -> Chart | None:
    """Return epsilon over rounds; ``None`` without a claim."""
    rounds = by_round(run.metrics)
    curve = curve_over_rounds(rounds, lambda record: record.privacy_spent, label="epsilon", highest=True)
    if not curve.ys:
        return None
    wanted = run.experiment.privacy.epsilon
    levels = [] if wanted is None else [("privacy.epsilon", float(wanted))]
    return Chart(
        "epsilon by round", _describe(curve, "epsilon"), "round", "epsilon", [curve], levels=levels, whole=True
    )


def label_of(run: Run) -> str:
    """Return the label of a curve over peers."""
    everyone = "the honest peers" if run.attackers else "the peers"
    return str(run.summary.get("peer", f"together: mean and range of {everyone}"))


def _describe(curve: Curve, name: str) -> str:
    if not curve.ys:
        return f"{name} is unknown."
    first, last = curve.ys[0], curve.ys[-1]
    best = f"between {min(curve.ys):.3g} and {max(curve.ys):.3g}"
    return f"{name} goes from {first:.3g} to {last:.3g} over {len(curve.ys)} rounds, {best}."
