"""Columns of splines whose knots are quantiles of the data of all peers, from totals of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import DataError
from p2pfl.data.data_description import Field, FloatArray
from p2pfl.data.tables.formula import SplineField
from p2pfl.data.tables.splines import HEAD, IDENTITY, spline_values
from p2pfl.learning.exact_model import Asked, Own, Owns, Part, Tensors
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.sketch import Sketch, sketch
from p2pfl.plugins.exact.tensor_model import SPLINES, Shapes

SHOWN = (
    "; how many samples have each value of the columns in splines without knots, to a relative width of 1/128, from "
    "which the knots follow"
)
"""Facts that the totals of open knots show."""


@dataclass(frozen=True)
class SplineColumns:
    """Splines of a design without knots.

    Parameters
    ----------
    features
        Number of features.
    splines
        First column of each spline, and its place.
    """

    features: int
    splines: tuple[tuple[SplineField, int], ...]

    @classmethod
    def of(cls, features: int, fields: Sequence[Field] | None) -> SplineColumns:
        """Return the splines among columns."""
        columns = [(field, where.start) for field, where in located(features, fields) if isinstance(field, SplineField)]
        return cls(features, tuple((field, place) for field, place in columns if not field.number))

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name: a row of numbers for each feature, see :mod:`p2pfl.data.tables.splines`."""
        most = max((field.inner + 2 for field, _ in self.splines), default=0)
        return {SPLINES: (HEAD + 2 * most, self.features)} if self.splines else {}

    @property
    def start(self) -> dict[str, Floats]:
        """Tensors before the knots are known, with which each feature is itself."""
        shapes = self.shapes
        rows = {name: np.zeros(shape) for name, shape in shapes.items()}
        for table in rows.values():
            table[:HEAD] = np.array(IDENTITY)[:, None]
        return rows

    def known(self, tensors: Tensors) -> bool:
        """Return whether the knots are known."""
        return not self.splines or not np.array_equal(tensors[SPLINES], self.start[SPLINES])

    def ask(self, tensors: Tensors, own: Owns, *, least: int) -> Asked[Tensors]:
        """Ask for the cells of the variables, by two totals, and return the tensors with knots at their quantiles.

        A knot is the lower end of a cell of relative width 1/128, so that anybody can repeat it.

        Parameters
        ----------
        tensors, own
            The model, and samples of a peer.
        least
            Smallest number of people between two knots, and beyond the ends.

        Raises
        ------
        DataError
            There are fewer.
        """
        places = [place for _, place in self.splines]
        cells, _ = yield from sketch(lambda peer: [*own(peer).train.features[:, places].T], columns=len(places))
        table = self.start[SPLINES]
        for (field, place), each in zip(self.splines, cells, strict=True):
            if not len(each.counts):
                return tensors
            rows = field.rows(*_placed(field, each, least=least))
            table[: rows.shape[1], place : place + field.columns] = rows.T
        return {**tensors, SPLINES: table}

    def evaluated(self, tensors: Tensors, features: FloatArray) -> FloatArray:
        """Return features ``[n, F]`` in which the columns of splines have their values."""
        if not self.splines:
            return features
        columns = features.copy()
        for field, place in self.splines:
            where = slice(place, place + field.columns)
            columns[:, where] = spline_values(features[:, where], tensors[SPLINES][:, where])
        return columns

    def part(self, tensors: Tensors, part: Part) -> Part:
        """Return samples with the values of splines; kept with the samples."""
        if not self.splines:
            return part
        kept: tuple[Floats, Part] | None = part.kept.get(SPLINES)
        if kept is None or not np.array_equal(kept[0], tensors[SPLINES]):
            features = self.evaluated(tensors, part.features)
            kept = part.kept[SPLINES] = tensors[SPLINES], Part(features, part.targets)
        return kept[1]

    def own(self, tensors: Tensors, own: Owns) -> Owns:
        """Return the samples of a peer with the values of splines; those of the test part as they are."""
        if not self.splines:
            return own

        def valued(peer: str) -> Own:
            mine = own(peer)
            return Own(self.part(tensors, mine.train), self.part(tensors, mine.validation), mine.test)

        return cache(valued)

    def facts(self, tensors: Tensors) -> dict[str, float]:
        """Return the ends and knots of each spline."""
        facts = dict[str, float]()
        for field, place in self.splines:
            low, width, *_ = tensors[SPLINES][:, place].tolist()
            knots = tensors[SPLINES][HEAD::2, place].tolist()
            inner = knots[1:] if field.kind == "ns" else knots
            facts[f"low end of {field.spline}"], facts[f"high end of {field.spline}"] = low, low + width
            facts |= {f"knot {number + 1} of {field.spline}": inner[number] for number in range(field.inner)}
        return facts


def _placed(field: SplineField, cells: Sketch, *, least: int) -> tuple[list[float], tuple[float, float]]:
    """Return inner knots and ends at quantiles of counted values.

    Examples
    --------
    >>> cells = Sketch(np.arange(10.0), np.arange(10.0) + 0.5, np.full(10, 6))
    >>> _placed(SplineField("ns(x, 3)1", columns=3), cells, least=5)
    ([3.0, 6.0], (0.0, 9.0))
    """
    samples = int(cells.counts.sum())
    inner = [cells.reached(1 + (samples - 1) * number // (field.inner + 1)) for number in range(1, field.inner + 1)]
    low, high = (cells.reached(rank) for rank in (min(least, samples), max(1, samples + 1 - least)))
    ends = field.ends or (float(cells.low[low]), float(cells.low[high]))
    knots = [float(cells.low[cell]) for cell in inner]
    before = np.concatenate([[0], np.cumsum(cells.counts)])
    # Whoever is at a knot itself may be in neither of the intervals that it parts.
    between = [
        before[stop] - before[start]
        for start, stop in zip([0, *(cell + 1 for cell in inner)], [*inner, len(cells.counts)], strict=True)
    ]
    ascending = all(one < two for one, two in zip([ends[0], *knots], [*knots, ends[1]], strict=True))
    if not ascending or min(between) < max(1, least):
        raise DataError(
            f"fewer than {max(1, least)} people are between two knots of {field.spline}, as its values are few or "
            "alike; take fewer degrees of freedom, or write knots=[...] and range=[low, high]"
        )
    return knots, ends
