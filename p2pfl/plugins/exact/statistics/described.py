"""Description of each column of a table, in the units of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.data.data_description import Description as Meaning
from p2pfl.data.data_description import Field
from p2pfl.plugins.exact.statistics.column_statistics import QUANTILES, Description
from p2pfl.plugins.exact.statistics.doubtful import doubt
from p2pfl.plugins.exact.statistics.private_description import PrivateDescription
from p2pfl.plugins.exact.statistics.suppression import suppressed


@dataclass(frozen=True)
class Number:
    """Statistics of a column of numbers; ``None`` for what concerns too few samples.

    Attributes
    ----------
    name
        Name of the column.
    count, missing
        Values, and samples without one.
    mean, deviation
        Mean, and standard deviation with n - 1 degrees of freedom.
    low, high
        Ends that at least ``least`` samples lie at or beyond, to a relative width of 1/128.
    quantiles
        Quantiles by share, to a relative width of 1/128; whole numbers up to 256 are exact.
    edges, counts
        Histogram; its first and its last bin have the values beyond them as well.
    """

    name: str
    count: int
    missing: int
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None
    quantiles: dict[str, float | None]
    edges: tuple[float, ...]
    counts: tuple[int | None, ...]


@dataclass(frozen=True)
class Levels:
    """Number of samples of each level of a column; ``None`` where they are too few.

    Attributes
    ----------
    name
        Name of the column.
    count
        Samples.
    levels
        Samples by level.
    """

    name: str
    count: int
    levels: dict[str, int | None]


@dataclass(frozen=True)
class Described:
    """Statistics of a table.

    Attributes
    ----------
    samples, least
        Number of samples, and smallest number of them that anything is stated of.
    columns
        Columns in the order of the table, the target last.
    names, correlations
        Names of all features and targets, and Pearson's correlations of each pair; empty if they were not counted.
    private
        Whether everything is with private noise; then quantiles interpolate the histogram, and ends are public bounds.
    warnings
        Sentences on columns that look like identifiers or timestamps.
    """

    samples: int
    least: int
    columns: tuple[Number | Levels, ...]
    names: tuple[str, ...]
    correlations: tuple[tuple[float | None, ...], ...]
    private: bool = False
    warnings: tuple[str, ...] = ()

    def results(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        found = asdict(self)
        for column, made in zip(found["columns"], self.columns, strict=True):
            column["kind"] = "number" if isinstance(made, Number) else "levels"
        return found


def described(tensors: Mapping[str, Floats], model: Description | PrivateDescription, meaning: Meaning) -> Described:
    """Return what the tensors of a description say.

    Parameters
    ----------
    tensors
        Tensors of ``model``.
    model
        The model.
    meaning
        Names and units of the columns.
    """
    private = isinstance(model, PrivateDescription)
    model = model.plain if isinstance(model, PrivateDescription) else model
    width = model.features
    fields = meaning.columns or tuple(Field(f"x{number}") for number in range(width))
    scale = np.concatenate([np.broadcast_to(meaning.deviation, width), np.full(model.width - width, 1.0)])
    middle = np.concatenate([np.broadcast_to(meaning.mean, width), np.zeros(model.width - width)])
    if model.classes is None:
        scale[width], middle[width] = meaning.target_deviation, meaning.target_mean
    columns, names, doubts, place = list[Number | Levels](), list[str](), list[str](), 0
    hidden = list[int]()
    for field in (*fields, *_targets(model, meaning)):
        if field.levels is None:
            columns.append(_number(tensors, field.name, place, scale=scale[place], middle=middle[place]))
            names.append(field.name)
            doubts += filter(None, [doubt(tensors, place, field.name)])
            place += 1
        else:
            where = slice(place, place + len(field.levels))
            made = _levels(
                tensors, field, where, scale=scale[where], middle=middle[where], least=model.least, private=private
            )
            columns.append(made)
            hidden += [place + number for number, count in enumerate(made.levels.values()) if count is None]
            names += [f"{field.name}: {level}" for level in field.levels]
            place += len(field.levels)
    found = tensors["correlation"] if model.correlations else np.zeros((0, 0))
    found = np.array(found)
    if model.correlations:  # with a correlation, the share of a hidden level follows from another level
        found[hidden], found[:, hidden] = np.nan, np.nan
    pairs = tuple(tuple(map(_known, row)) for row in found.tolist())
    return Described(
        int(tensors["samples"][0]), model.least, tuple(columns), tuple(names), pairs, private, tuple(doubts)
    )


def _targets(model: Description, meaning: Meaning) -> tuple[Field, ...]:
    name = meaning.target or "target"
    if model.classes is not None:
        return (Field(name, tuple(map(str, meaning.classes or range(model.classes)))),)
    return (Field(name), Field("event", ("yes",))) if model.event else (Field(name),)


def _number(tensors: Mapping[str, Floats], name: str, place: int, *, scale: float, middle: float) -> Number:
    """Return the statistics of a column in the units of the table."""

    def raw(value: float) -> float | None:
        return _known(value * scale + middle)

    present = int(tensors["present"][place])
    quantiles = {f"{share:g}": raw(value) for share, value in zip(QUANTILES, tensors["quantiles"][place], strict=True)}
    edges = tensors["edges"][place]
    used = int((edges[:-1] <= tensors["high"][place]).sum())  # bins of whole numbers go beyond the last one
    counts = tuple(None if math.isnan(count) else int(count) for count in tensors["counts"][place, :used].tolist())
    return Number(
        name,
        present,
        int(tensors["samples"][0]) - present,
        raw(float(tensors["mean"][place])),
        _known(float(tensors["deviation"][place]) * scale),
        raw(float(tensors["low"][place])),
        raw(float(tensors["high"][place])),
        quantiles,
        tuple((edges[: used + 1] * scale + middle).tolist()),
        counts,
    )


def _levels(
    tensors: Mapping[str, Floats],
    field: Field,
    where: slice,
    *,
    scale: Floats,
    middle: Floats,
    least: int,
    private: bool,
) -> Levels:
    """Return the number of samples of each level; the mean of a level is its share."""
    shares, samples = tensors["mean"][where] * scale + middle, int(tensors["samples"][0])
    counts = np.rint(shares * samples)
    if private:  # noise hides what follows from the others
        counts = np.where((counts > 0) & (counts < least), np.nan, counts)
    else:
        counts = suppressed(counts, least=least, total=samples)
    kept = [None if math.isnan(count) else int(count) for count in counts.tolist()]
    return Levels(field.name, samples, dict(zip(field.levels or (), kept, strict=True)))


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
