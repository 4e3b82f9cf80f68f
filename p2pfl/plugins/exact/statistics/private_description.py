""":class:`PrivateDescription`, statistics of each column with differential privacy of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.learning.exact_model import Outcome, Owns, Round, Tensors
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.columns import TARGET, centered, check_named, ends, located
from p2pfl.plugins.exact.elementary import added
from p2pfl.plugins.exact.statistics.column_statistics import QUANTILES, Description
from p2pfl.plugins.exact.tensor_model import Shapes, Statistic

Selected = FloatArray


@dataclass(frozen=True, kw_only=True)
class PrivateDescription(Statistic):
    r"""Counts, means, deviations, histograms and quantiles of all columns, whose totals take private noise.

    One round takes one total. A number x with public bounds becomes :math:`v = (x - m) / h \in [-1, 1]`, with the
    middle m and half the width h of the bounds. A sample adds 1 to the number of samples; for each column of numbers 1
    to one of its bins or to its missing values, and v and :math:`v^2`; and 1 to one level of each column of levels. So
    it changes the total by a norm of at most

    .. math:: \sqrt{1 + 3 K + L}

    for K columns of numbers and L columns of levels. Values beyond the bounds count as the bounds.

    Parameters
    ----------
    features, classes
        Number of features, and of classes; ``None`` where the target is a number.
    bounds
        Public bounds ``[low, high]`` of each column of numbers by name, and as ``target`` those of a target that is a
        number.
    owned
        True if peers own their data, so that the test part of each is its own and is described as well.
    bins
        Number of bins of a histogram.
    fields
        Columns of the table that the features come from; ``None`` if there is none.

    Examples
    --------
    >>> model = PrivateDescription(features=2, classes=2, bounds={"x0": [0, 1], "x1": [0, 1]})
    >>> round(model.change**2, 3)
    8.0

    References
    ----------
    Dwork, Roth, The algorithmic foundations of differential privacy, 2014.
    """

    name: ClassVar[str] = "private_description"
    shows: ClassVar[str] = (
        "with private noise, how many samples there are, how many lie in each bin and level of each column, and sums "
        "and squares of each column within its public bounds"
    )
    subject: ClassVar[str] = "a description"
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, predicts=False, test=0.0, command="describe")

    features: int
    classes: int | None
    bounds: dict[str, list[float]]
    owned: bool = False
    bins: int = 20
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        _ = self.plain, self.columns  # check the options

    @cached_property
    def plain(self) -> Description:
        """The description with the same tensors, without noise."""
        return Description(
            features=self.features, classes=self.classes, owned=self.owned, bins=self.bins, least=1, correlations=False
        )

    @cached_property
    def columns(self) -> list[tuple[slice, tuple[float, float] | None]]:
        """Places of each column, the target last, and the public bounds of one of numbers."""
        target = Field(TARGET, None if self.classes is None else tuple(map(str, range(self.classes))))
        fields = [*(field for field, _ in located(self.features, self.fields)), target]
        check_named(self.bounds, {field.name for field in fields if field.levels is None})
        return [
            (where, ends(self.bounds, field.name) if field.levels is None else None)
            for field, where in located(0, fields)
        ]

    @property
    def sizes(self) -> list[int]:
        """Count of the numbers in a total for each column: bins, missing values, a sum and squares; or levels."""
        return [where.stop - where.start if bounds is None else self.bins + 3 for where, bounds in self.columns]

    @property
    def change(self) -> float:
        """L2 norm by which one sample can change the total, rounding of sums and squares included."""
        numbers = sum(bounds is not None for _, bounds in self.columns)
        return math.sqrt(1 + 2 * numbers + len(self.columns)) + sums.rounding(2 * numbers)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        return {name: shape for name, shape in self.plain.shapes.items() if name != "levels"}

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds take none."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        size = 1 + sum(self.sizes)
        total, _ = yield from sums.noisy_total(lambda peer: self._added(own, peer), size=size, change=self.change)
        return Outcome(self._estimated(total), over=True)

    def _added(self, own: Owns, peer: str) -> Floats:
        """Return what the samples of a peer add, in points of the grid."""
        values = self.plain.values(own(peer))
        added_up = [np.array([len(values)])]
        for where, bounds in self.columns:
            mine = values[:, where]
            added_up += [_levels(mine)] if bounds is None else self._numbers(mine[:, 0], *centered(*bounds))
        return np.concatenate(added_up) * 2.0**sums.NOISY_FRACTION

    def _numbers(self, values: Selected, middle: float, half: float) -> Iterator[Floats]:
        """Yield counts of bins and of missing values, and sums and squares, each rounded to the grid."""
        known = values[~np.isnan(values)].astype(np.float64)
        scaled = np.clip((known - middle) / half, -1.0, 1.0)
        place = np.minimum(((scaled + 1) * (self.bins / 2)).astype(np.int64), self.bins - 1)
        yield np.bincount(place, minlength=self.bins).astype(np.float64)
        grid = 2.0**sums.NOISY_FRACTION
        powers = (scaled, scaled * scaled)
        yield np.array([len(values) - len(known), *(float(np.rint(power * grid).sum()) / grid for power in powers)])

    def _estimated(self, total: Floats) -> Tensors:
        """Return the description that noisy sums give; no count is negative, and no value is beyond the bounds."""
        stated = {name: np.array(value) for name, value in self.start().items()}
        for name in ("deviation", "quantiles"):
            stated[name][...] = np.nan
        samples = max(0.0, float(np.rint(total[0])))
        stated["samples"][0], start = samples, 1
        for (where, bounds), size in zip(self.columns, self.sizes, strict=True):
            own = total[start : start + size]
            start += size
            if bounds is None:
                stated["present"][where], stated["high"][where] = samples, 1.0
                stated["mean"][where] = np.clip(own / max(samples, 1.0), 0.0, 1.0)
                continue
            for name, value in self._number(bounds, own, samples=samples).items():
                stated[name][where] = value
        return stated

    def _number(self, bounds: tuple[float, float], own: Floats, *, samples: float) -> dict[str, Any]:
        """Return the estimates of a column of numbers by name."""
        middle, half = centered(*bounds)
        counts = np.maximum(np.rint(own[: self.bins]), 0.0)
        missing, first, second = own[self.bins :].tolist()
        present = min(samples, max(0.0, samples - float(np.rint(missing))))
        mean = min(1.0, max(-1.0, first / max(present, 1.0)))
        spread = min(1.0, max(0.0, second / max(present, 1.0) - mean * mean))
        edges = middle - half + (2 * half / self.bins) * np.arange(self.bins + 1.0)
        estimates: dict[str, Any] = {
            "present": present,
            "counts": counts,
            "low": bounds[0],
            "high": bounds[1],
            "edges": edges,
        }
        estimates["mean"] = middle + half * mean if present else np.nan
        if present > 1:
            estimates["deviation"] = half * math.sqrt(spread * present / (present - 1))
        if added(counts):
            estimates["quantiles"] = [_quantile(counts, edges, share) for share in QUANTILES]
        return estimates


def _levels(values: Selected) -> Floats:
    """Return how many samples have each level; a sample has the one of its largest number, if that is above a half."""
    there = np.nan_to_num(values).max(axis=1, initial=0.0) > 0.5
    place = np.nan_to_num(values)[there].argmax(axis=1)
    return np.bincount(place, minlength=values.shape[1]).astype(np.float64)


def _quantile(counts: Floats, edges: Floats, share: float) -> float:
    """Return a quantile of a histogram, interpolated within its bin.

    Examples
    --------
    >>> _quantile(np.array([1.0, 3.0]), np.array([0.0, 1.0, 4.0]), 0.5)
    2.0
    """
    reached = np.add.accumulate(counts)
    wanted = share * float(reached[-1])
    place = min(int((reached < wanted).sum()), len(counts) - 1)
    within = (wanted - float(reached[place] - counts[place])) / max(float(counts[place]), 1.0)
    return float(edges[place] + within * (edges[place + 1] - edges[place]))
