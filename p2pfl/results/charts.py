"""Charts of runs over rounds and bytes, as facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from p2pfl.results.reading import alone_of, apart_by_masks
from p2pfl.results.records import Record, by_round
from p2pfl.results.run import Run

MAX_POINTS = 400
"""Points of a curve."""


@dataclass(frozen=True)
class Curve:
    """A curve of a chart.

    Attributes
    ----------
    label
        Name in the legend.
    xs, ys
        Its points.
    low, high
        Band around it; empty without one.
    style
        Number of its colour and stroke; ``None`` for grey.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int | None = 0

    def clean(self, *, log: bool) -> Curve:
        """Return the curve without points that cannot be drawn, thinned out."""
        columns = [self.xs, self.ys, *([self.low, self.high] if self.low else [])]
        points = [
            point
            for point in zip(*columns, strict=True)
            if all(map(math.isfinite, point)) and (not log or min(point[1:]) > 0)
        ]
        last = len(points) - 1
        step = max(1, math.ceil(len(points) / MAX_POINTS))
        kept = [point for place, point in enumerate(points) if place % step == 0 or place == last]
        xs, ys, *band = ([*column] for column in zip(*kept, strict=True)) if kept else ([], [])
        low, high = band or ((), ())
        return replace(self, xs=xs, ys=ys, low=low, high=high)


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes
    ----------
    title, description
        Title, and description of what can be seen.
    x, y
        Labels of the axes.
    curves
        The curves.
    levels
        Names and values of horizontal lines.
    log
        True if the vertical axis is logarithmic.
    whole
        True if the horizontal axis counts something, such as rounds.
    """

    title: str
    description: str
    x: str
    y: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()
    log: bool = False
    whole: bool = False

    def clean(self) -> list[Curve]:
        """Return the curves that have something to show."""
        return [curve for each in self.curves if (curve := each.clean(log=self.log)).xs]


@dataclass(frozen=True)
class Interval:
    """An interval of a list.

    Attributes
    ----------
    label
        Its name.
    value
        Its centre.
    half
        Half of its width; ``None`` for a value without an interval.
    colour
        Its colour.
    """

    label: str
    value: float
    half: float | None
    colour: str


LEVELS = {"alone": "alone, mean", "pooled": "one model on all data"}
"""Scores of a summary that are horizontal lines, with their names."""


def scores(run: Run) -> Iterator[Chart]:
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
        curve = over_rounds(rounds, score(name), label=label_of(run))
        known = [
            (label.removesuffix(", mean") if "scores" in run.summary else label, value)
            for key, label in LEVELS.items()
            if (value := _level(run, key, name)) is not None
        ]
        about = _described(curve, name) + "".join(f" {label}: {value:.3f}." for label, value in known)
        yield Chart(f"{name} by round", about, "round", name, [curve], levels=known, whole=True)
        if name == main:
            sent = sent_megabytes(by_round(run.metrics))
            over = Curve(curve.label, [sent[int(x) - 1] for x in curve.xs], curve.ys, curve.low, curve.high)
            whose = "MB sent" if "scores" in run.summary else "MB sent by all peers"
            yield Chart(f"{name} by bytes", _described(over, name), whose, name, [over], levels=known)


def _level(run: Run, key: str, name: str) -> float | None:
    """Return a score of a summary that a curve can be compared with."""
    if "scores" in run.summary:
        return alone_of(run.summary).get(name) if key == "alone" else None
    value = run.summary.get(key)
    return None if value is None or name != run.summary.get("metric") else float(value)


def consensus(run: Run) -> Chart | None:
    """Return how far the last gossip step of a round moves the models; ``None`` where nothing moves them."""
    rounds = by_round(run.honest)
    masked = apart_by_masks(run.summary, run.experiment)
    step = "last gossip step, most of it by masks" if masked else "last gossip step"
    curves = [
        over_rounds(rounds, lambda record: record.distance, label=step, style=0),
        over_rounds(rounds, lambda record: record.update, label="training of the round", style=1),
    ]
    curves = [curve for curve in curves if any(value > 0 for value in curve.ys)]
    if not curves:
        return None
    return Chart(
        "how far models move",
        "Distance by which the last gossip step and the training of a round move a model, in the mean. "
        + " ".join(_described(curve, curve.label) for curve in curves),
        "round",
        "L2 distance",
        curves,
        log=True,
        whole=True,
    )


def spending(run: Run) -> Chart | None:
    """Return epsilon over rounds; ``None`` without a claim."""
    rounds = by_round(run.metrics)
    curve = over_rounds(rounds, lambda record: record.privacy_spent, label="epsilon", highest=True)
    if not curve.ys:
        return None
    wanted = run.experiment.privacy.epsilon
    levels = [] if wanted is None else [("privacy.epsilon", float(wanted))]
    return Chart(
        "epsilon by round", _described(curve, "epsilon"), "round", "epsilon", [curve], levels=levels, whole=True
    )


def score(name: str) -> Callable[[Record], float | None]:
    """Return a function that takes a score from a record."""
    return lambda record: record.scores.get(name)


def over_rounds(
    rounds: Mapping[int, Sequence[Record]],
    value: Callable[[Record], float | None],
    *,
    label: str,
    style: int | None = 0,
    highest: bool = False,
) -> Curve:
    """Return the mean of a value over the peers by round, with a band from the smallest to the largest."""
    found: list[tuple[float, float, float, float]] = []
    for round, records in rounds.items():
        values = [known for record in records if (known := value(record)) is not None]
        if values:
            mean = max(values) if highest else sum(values) / len(values)
            found.append((round + 1, mean, min(values), max(values)))
    xs, ys, low, high = (list(column) for column in zip(*found, strict=True)) if found else ([], [], [], [])
    band: tuple[list[float], list[float]] = (low, high) if low != high and not highest else ([], [])
    return Curve(label, xs, ys, *band, style=style)


def label_of(run: Run) -> str:
    """Return what a curve over peers shows."""
    everyone = "the honest peers" if run.attackers else "the peers"
    return str(run.summary.get("peer", f"together: mean and range of {everyone}"))


def sent_megabytes(rounds: Mapping[int, Sequence[Record]]) -> dict[int, float]:
    """Return the megabytes sent after each round, counted from 0; those of peers that are gone stay."""
    sent: dict[str, int] = {}
    total: dict[int, float] = {}
    for round, records in rounds.items():
        sent |= {record.peer: record.bytes_out for record in records}
        total[round] = sum(sent.values()) / 1e6
    return total


def _described(curve: Curve, name: str) -> str:
    if not curve.ys:
        return f"{name} is unknown."
    first, last = curve.ys[0], curve.ys[-1]
    best = f"between {min(curve.ys):.3g} and {max(curve.ys):.3g}"
    return f"{name} goes from {first:.3g} to {last:.3g} over {len(curve.ys)} rounds, {best}."
