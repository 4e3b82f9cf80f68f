"""Plots of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.results.records import Record

DECADE = 10.0
"""Ratio of the largest to the smallest distance from which the axis is logarithmic."""


def blank(*, width: float, height: float) -> Any:
    """Return an empty matplotlib figure, which a notebook shows as a picture.

    Raises
    ------
    InputError
        Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (an extra)
    except ImportError:
        raise InputError('plots need matplotlib, which is not installed; run pip install "p2pfl-mqtt[plot]"') from None

    class Picture(Figure):  # notebooks know figures by themselves only once somebody has imported pyplot
        def _repr_png_(self) -> bytes:
            data = BytesIO()
            self.savefig(data, format="png")
            return data.getvalue()

    return Picture(figsize=(width, height), layout="constrained")


def keep(figure: Any, path: str | Path, *, undated: bool = False) -> None:
    """Write a figure to a file.

    Parameters
    ----------
    figure
        The figure.
    path
        Path of the file.
    undated
        True to leave the time out, so that the same figure has the same bytes.

    Raises
    ------
    InputError
        The suffix is not that of a picture format, or the file cannot be written.
    """
    dates = {".pdf": "CreationDate", ".svg": "Date"}
    date = dates.get(Path(path).suffix.lower()) if undated else None
    try:
        figure.savefig(path, metadata=None if date is None else {date: None})
    except ValueError:
        known = ", ".join(sorted(figure.canvas.get_supported_filetypes()))
        raise InputError(f"{path} does not have the suffix of a picture ({known}); change it") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); choose another place") from None


def figure(
    records: Sequence[Record], summary: Mapping[str, Any], *, distance: bool = True, path: str | Path | None = None
) -> Any:
    """Plot the score of the peers over rounds, and the distance by which the last gossip step moved their models.

    Parameters
    ----------
    records
        Records of the peers.
    summary
        Content of ``summary.json``; empty if the run has not ended.
    distance
        False to leave out the distance.
    path
        Path of the file; ``None`` writes none.

    Raises
    ------
    InputError
        The run has no records or scores, matplotlib is not installed, or the file cannot be written.
    """
    picture = blank(width=8, height=6 if distance else 4)
    if not records:
        raise InputError("the run has no records to plot; let it run longer")
    known = dict.fromkeys(name for record in records for name in record.scores)
    metric = summary.get("metric") or next((name for name in known if name != "loss"), "loss")
    if metric not in known:
        raise InputError(f"the run has no {metric} to plot; give the learner a function evaluate")
    scores = _rounds([record for record in records if metric in record.scores], lambda record: record.scores[metric])
    upper, *lower = picture.subplots(2, 1, sharex=True, height_ratios=(2, 1)) if distance else [picture.subplots()]
    _band(upper, scores)
    upper.lines[0].set_label("together: mean, and range of the peers")
    known_means = [record for record in records if metric in record.mean_model]
    if known_means:
        averaged = {record.round: record.mean_model[metric] for record in known_means}
        upper.plot([*averaged], [*averaged.values()], color="0.2", linewidth=1, label="mean of all models")
    for name, style in (("alone", ":"), ("pooled", "--")):
        if summary.get(name) is not None and "per_peer" in summary:
            label = {"alone": "alone: mean", "pooled": "one model on all data"}[name]
            upper.axhline(summary[name], color="0.4", linestyle=style, linewidth=1.5, label=label)
    upper.set_ylabel(metric)
    upper.legend()
    for axes in lower:
        _band(axes, _rounds(records, lambda record: record.distance))
        axes.set_ylabel("distance (L2)")
        low, high = min(record.distance for record in records), max(record.distance for record in records)
        if 0 < DECADE * low <= high:
            axes.set_yscale("log")
    picture.axes[-1].set_xlabel("round")
    picture.axes[-1].xaxis.get_major_locator().set_params(integer=True)
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
    """Plot epsilon over rounds against each observer, and the budget.

    Parameters
    ----------
    rounds
        Numbers of rounds, increasing.
    curves
        Epsilon after these rounds by observer, from the one that knows least to the one that knows most.
    delta
        Delta of these values.
    budget
        Largest permitted epsilon.
    title
        Title of the plot.
    path
        Path of the file.

    Raises
    ------
    InputError
        Matplotlib is not installed, or the file cannot be written.
    """
    picture = blank(width=8, height=5)
    axes = picture.subplots()
    marker = "o" if len(rounds) == 1 else None
    for number, (observer, values) in reversed(list(enumerate(curves.items()))):  # the highest first, as in the legend
        axes.plot(rounds, values, color=f"C{number}", linewidth=2, marker=marker, label=f"{observer}: {values[-1]:.3g}")
    if budget is not None:
        axes.axhline(budget, color="0.4", linestyle="--", linewidth=1.5, label=f"budget: {budget:g}")
    if min(values[0] for values in curves.values()) > 0:  # very large noise costs nothing at this delta
        axes.set_yscale("log", subs=[2, 5])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"epsilon at delta {delta:g}")
    axes.grid(visible=True, which="both", color="0.9")
    axes.set_title(title, loc="left")
    axes.legend(title=f"after round {rounds[-1]}, against")
    if path is not None:
        keep(picture, path)
    return picture


def _band(axes: Any, rounds: Mapping[int, Sequence[float]]) -> None:
    """Draw the mean of the peers by round, and the range of all of them."""
    values = list(rounds.values())
    axes.fill_between(list(rounds), [min(v) for v in values], [max(v) for v in values], color="C0", alpha=0.2)
    axes.plot(list(rounds), [sum(v) / len(v) for v in values], color="C0", linewidth=2)


def _rounds(records: Sequence[Record], value: Any) -> dict[int, list[float]]:
    """Return the values of all peers by round, from 1."""
    found: dict[int, list[float]] = {}
    for record in sorted(records, key=lambda record: record.round):
        found.setdefault(record.round + 1, []).append(value(record))
    return found
