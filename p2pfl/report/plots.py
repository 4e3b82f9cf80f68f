"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pfl.errors import InputError
from p2pfl.report.run import Record


def figure(records: Sequence[Record], summary: Mapping[str, Any], *, path: str | Path | None = None) -> Any:
    """Score of every peer and of their mean over rounds, and how far apart they are.

    Raises
    ------
    InputError
        If matplotlib is not installed, or there is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError('expected matplotlib for plots: pip install "p2pfl-mqtt[plot]"') from None
    if not records:
        raise InputError("expected a run with at least one round, got one without records")
    metric = summary.get("metric") or next((name for name in records[0].scores if name != "loss"), "loss")
    curves: dict[str, list[Record]] = {}
    for record in records:
        curves.setdefault(record.peer, []).append(record)
    picture = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = picture.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for peer in curves.values():
        rounds = [record.round + 1 for record in peer]
        upper.plot(rounds, [record.scores[metric] for record in peer], color="C0", alpha=0.25, linewidth=1)
        lower.plot(rounds, [record.distance for record in peer], color="C0", alpha=0.25, linewidth=1)
    means: dict[int, list[float]] = {}
    for record in records:
        means.setdefault(record.round + 1, []).append(record.scores[metric])
    mean = {round: sum(values) / len(values) for round, values in sorted(means.items())}
    upper.plot(list(mean), list(mean.values()), color="C0", linewidth=2, label="together, mean")
    for name, style in (("alone", ":"), ("pooled", "--")):
        if name in summary:
            upper.axhline(summary[name], color="0.4", linestyle=style, linewidth=1.5, label=name)
    upper.set_ylabel(metric)
    upper.legend()
    lower.set_ylabel("distance")
    if any(record.distance > 0 for record in records):
        lower.set_yscale("log")
    lower.set_xlabel("round")
    if path is not None:
        picture.savefig(path)
    return picture
