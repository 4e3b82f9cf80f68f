"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from p2pfl.errors import InputError
from p2pfl.report.records import Record


def blank(*, width: float, height: float) -> Any:
    """An empty matplotlib figure.

    Raises
    ------
    InputError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError('expected matplotlib for plots, got none: pip install "p2pfl-mqtt[plot]"') from None
    return Figure(figsize=(width, height), layout="constrained")


def keep(figure: Any, path: str | Path) -> None:
    """Write a figure to a file.

    Raises
    ------
    InputError
        If the suffix stands for no format, or the file cannot be written.
    """
    try:
        figure.savefig(path)
    except ValueError:
        known = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise InputError(
            f"expected a picture's file, ending in one of {known}, got {path}: change its suffix"
        ) from None
    except OSError as error:
        raise InputError(f"expected to write {path}, got: {error.strerror}; choose another place") from None


def figure(records: Sequence[Record], summary: Mapping[str, Any], *, path: str | Path | None = None) -> Any:
    """Score of every peer and of their mean over rounds, and how far apart they are.

    Raises
    ------
    InputError
        If there is nothing to draw, nothing to draw with, or nowhere to put it.
    """
    picture = blank(width=8, height=6)
    if not records:
        raise InputError("expected a run with at least one round, got one without records: let it run longer")
    metric = summary.get("metric") or next((name for name in records[0].scores if name != "loss"), "loss")
    upper, lower = picture.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    if metric not in records[0].scores:
        raise InputError(f"expected a run with scores, got one without {metric}: give the learner a function evaluate")
    scores = _rounds(records, lambda record: record.scores[metric])
    for axes, rounds in ((upper, scores), (lower, _rounds(records, lambda record: record.distance))):
        values = list(rounds.values())
        axes.fill_between(list(rounds), [min(v) for v in values], [max(v) for v in values], color="C0", alpha=0.2)
        axes.plot(list(rounds), [sum(v) / len(v) for v in values], color="C0", linewidth=2)
    upper.lines[0].set_label("together: mean, and range of the peers")
    for name, style in (("alone", ":"), ("pooled", "--")):
        if summary.get(name) is not None:
            label = {"alone": "alone: mean", "pooled": "one model on all data"}[name]
            upper.axhline(summary[name], color="0.4", linestyle=style, linewidth=1.5, label=label)
    upper.set_ylabel(metric)
    upper.legend()
    lower.set_ylabel("distance (L2)")
    if all(record.distance > 0 for record in records):
        lower.set_yscale("log")
    lower.set_xlabel("round")
    upper.set_title(f"{summary['name']}: {summary['peers']} peers" if "peers" in summary else "", loc="left")
    if path is not None:
        keep(picture, path)
    return picture


def spending(
    rounds: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    *,
    delta: float,
    budget: float | None = None,
    title: str = "",
    path: str | Path | None = None,
) -> Any:
    """Epsilon over rounds against each observer, and the budget.

    Parameters
    ----------
    rounds
        After how many, rising.
    curves
        Epsilon then, by observer, from the one who knows least to the one who knows most.
    delta
        At which it holds.
    budget
        Epsilon that is not to be exceeded.
    title
        Above the picture.
    path
        Where it goes.

    Raises
    ------
    InputError
        If there is nothing to draw with, or nowhere to put it.
    """
    picture = blank(width=8, height=5)
    axes = picture.subplots()
    marker = "o" if len(rounds) == 1 else None
    for number, (observer, values) in reversed(list(enumerate(curves.items()))):  # the highest first, as in the legend
        axes.plot(rounds, values, color=f"C{number}", linewidth=2, marker=marker, label=f"{observer}: {values[-1]:.3g}")
    if budget is not None:
        axes.axhline(budget, color="0.4", linestyle="--", linewidth=1.5, label=f"budget: {budget:g}")
    if min(values[0] for values in curves.values()) > 0:  # very much noise costs nothing at this delta
        axes.set_yscale("log", subs=[2, 5])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("round")
    axes.set_ylabel(f"epsilon at delta {delta:g}")
    axes.grid(visible=True, which="both", color="0.9")
    axes.set_title(title, loc="left")
    axes.legend(title=f"after round {rounds[-1]}, against")
    if path is not None:
        keep(picture, path)
    return picture


def _rounds(records: Sequence[Record], value: Any) -> dict[int, list[float]]:
    """All peers' values by round, from 1."""
    found: dict[int, list[float]] = {}
    for record in sorted(records, key=lambda record: record.round):
        found.setdefault(record.round + 1, []).append(value(record))
    return found
