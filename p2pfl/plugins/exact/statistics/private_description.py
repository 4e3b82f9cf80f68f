""":class:`PrivateDescription`, statistics of each column with differential privacy of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.rows import Layout
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Outcome, Owns, Round, Tensors
from p2pfl.plugins.exact.elementary import added
from p2pfl.plugins.exact.public_bounds import TARGET, check_named, ends
from p2pfl.plugins.exact.statistics.column_statistics import QUANTILES, Description
from p2pfl.plugins.exact.statistics.tensors import Statistic

FRACTION = 20
"""Fraction bits of what a sample adds; private noise is far coarser."""

Selected = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Block:
    """Columns to which a sample adds together.

    Parameters
    ----------
    place, width
        Number of the first column, and number of columns: 1 for a number, else one for each level.
    low, high
        Public bounds of a number; ``None`` for levels.
    """

    place: int
    width: int
    low: float | None = None
    high: float | None = None

    def size(self, bins: int) -> int:
        """Return how many numbers of a total are about it: bins, missing values, a sum and squares; or levels."""
        return self.width if self.low is None else bins + 3


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
    traits: ClassVar[ModelTraits] = ModelTraits(noisy=True, predicts=False, command="describe")

    features: int
    classes: int | None
    bounds: dict[str, list[float]]
    owned: bool = False
    bins: int = 20
    fields: tuple[Field, ...] | None = None

    def __post_init__(self) -> None:
        _ = self.plain, self.blocks  # check the options

    @cached_property
    def plain(self) -> Description:
        """The description with the same tensors, without noise."""
        return Description(
            features=self.features, classes=self.classes, owned=self.owned, bins=self.bins, least=1, correlations=False
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Columns in their order, the target last."""
        fields = list(self.fields or (Field(f"x{number}") for number in range(self.features)))
        target = Field(TARGET, None if self.classes is None else tuple(map(str, range(self.classes))))
        numbers = {field.name for field in (*fields, target) if field.levels is None}
        check_named(self.bounds, numbers)
        found, place = [], 0
        for field in (*fields, target):
            if field.levels is not None:
                found.append(Block(place, len(field.levels)))
            else:
                found.append(Block(place, 1, *ends(self.bounds, field.name)))
            place += found[-1].width
        return tuple(found)

    @property
    def change(self) -> float:
        """L2 norm by which one sample can change the total; half a grid point for each number covers rounding."""
        numbers = sum(block.low is not None for block in self.blocks)
        return math.sqrt(1 + 2 * numbers + len(self.blocks)) + math.sqrt(2 * numbers) * 2.0 ** -(FRACTION + 1)

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        return self.plain.layout

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds take none."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        size = 1 + sum(block.size(self.bins) for block in self.blocks)
        total = yield Question(lambda peer: self._added(own, peer), size=size, change=self.change * 2.0**FRACTION)
        return Outcome(self._estimated(total.astype(np.float64) * 2.0**-FRACTION), over=True)

    def _added(self, own: Owns, peer: str) -> Ints:
        """Return what the samples of a peer add, in points of the grid."""
        values = self.plain.columns.values(own(peer), whole=self.owned)
        found = [np.array([len(values) * 2.0**FRACTION])]
        for block in self.blocks:
            mine = values[:, block.place : block.place + block.width]
            found += self._numbers(mine[:, 0], block) if block.low is not None else [_levels(mine) * 2.0**FRACTION]
        return np.concatenate(found).astype(np.int64)

    def _numbers(self, values: Selected, block: Block) -> Iterator[Floats]:
        """Yield counts of bins and of missing values, and sums and squares, in points of the grid."""
        middle, half = _scale(block)
        known = values[~np.isnan(values)].astype(np.float64)
        scaled = np.clip((known - middle) / half, -1.0, 1.0)
        place = np.minimum(((scaled + 1) * (self.bins / 2)).astype(np.int64), self.bins - 1)
        yield np.bincount(place, minlength=self.bins).astype(np.float64) * 2.0**FRACTION
        yield np.array([(len(values) - len(known)) * 2.0**FRACTION])
        yield np.array([float(np.rint(power * 2.0**FRACTION).sum()) for power in (scaled, scaled * scaled)])

    def _estimated(self, sums: Floats) -> Tensors:
        """Return the description that noisy sums give; no count is negative, and no value is beyond the bounds."""
        found = {name: np.array(value) for name, value in self.start().items()}
        for name in ("deviation", "quantiles"):
            found[name][...] = np.nan
        samples = max(0.0, float(np.rint(sums[0])))
        found["samples"][0], place = samples, 1
        for block in self.blocks:
            own = sums[place : place + block.size(self.bins)]
            place += len(own)
            where = slice(block.place, block.place + block.width)
            if block.low is None:
                found["present"][where], found["high"][where] = samples, 1.0
                found["mean"][where] = np.clip(own / max(samples, 1.0), 0.0, 1.0)
            else:
                self._number(found, block, own, samples=samples)
        return found

    def _number(self, found: Tensors, block: Block, own: Floats, *, samples: float) -> None:
        """Write the estimates of a column of numbers."""
        column, (middle, half) = block.place, _scale(block)
        counts = np.maximum(np.rint(own[: self.bins]), 0.0)
        missing, first, second = own[self.bins :].tolist()
        present = min(samples, max(0.0, samples - float(np.rint(missing))))
        mean = min(1.0, max(-1.0, first / max(present, 1.0)))
        spread = min(1.0, max(0.0, second / max(present, 1.0) - mean * mean))
        found["present"][column], found["counts"][column] = present, counts
        found["low"][column], found["high"][column] = block.low, block.high
        edges = middle - half + (2 * half / self.bins) * np.arange(self.bins + 1.0)
        found["edges"][column] = edges
        found["mean"][column] = middle + half * mean if present else np.nan
        if present > 1:
            found["deviation"][column] = half * math.sqrt(spread * present / (present - 1))
        if added(counts):
            found["quantiles"][column] = [_quantile(counts, edges, share) for share in QUANTILES]


def _scale(block: Block) -> tuple[float, float]:
    """Return the middle and half the width of the bounds."""
    low, high = block.low or 0.0, block.high or 0.0
    return 0.5 * (low + high), 0.5 * (high - low)


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
