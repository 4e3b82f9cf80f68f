""":class:`KaplanMeier`, survival curves by group from one exact total."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field, feature_names
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.design_cells import Singled
from p2pfl.plugins.exact.survival.grid import Grid, TimedModel, UnionGrid
from p2pfl.plugins.exact.survival.time_cells import TimeCells, check_time
from p2pfl.plugins.exact.tensor_model import Shapes, Statistic, check_least, parts_of, scalars


@dataclass(frozen=True, kw_only=True)
class KaplanMeier(Statistic, TimedModel):
    """Events and departures by group and cell of time, from which survival curves and the log-rank test follow.

    Parameters
    ----------
    features, classes
        Number of features; the target is a time, so there are no classes.
    horizon
        End of the grid of times.
    width
        Width of a cell of the grid; ``auto`` for cells that are cut in two as long as few samples leave in neither.
    times
        ``grid``, or ``union`` for cells that begin at the times of all samples, which every peer then learns.
    group
        Name of a column with levels, each of which is a group; all samples are one group if ``None``.
    fields
        Columns of the table.
    owned
        True if peers own their data, so that the test part of each is counted as well.
    least
        Least number of samples that leave in a cell, of a group, with the event or without it; 1 if a single one may be
        shown. A peer with fewer samples takes no part.

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 53, 1958.
    """

    name: ClassVar[str] = "kaplan_meier"
    shows: ClassVar[str] = "how many samples of each group leave in each cell of time, with the event and without it"
    subject: ClassVar[str] = "a survival curve"
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, test=0.0, command="survival")

    group: str | None = None
    fields: tuple[Field, ...] | None = None
    owned: bool = False
    least: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group is not None and self._column is None:
            named = [field.name for field in self.fields or () if field.levels is not None]
            raise ModelError(
                f'model.options.group is "{self.group}", which is no column with levels; choose from '
                f"{', '.join(named) or 'none, as there is none'}"
            )

    @property
    def cells(self) -> int:
        """Number of cells that the tensors have room for."""
        return self.room + 1 if self.listed else self.grid({}).cells

    @property
    def _column(self) -> tuple[Field, slice] | None:
        """The column of groups, and its features."""
        columns = located(self.features, self.fields)
        return next((each for each in columns if each[0].name == self.group and each[0].levels is not None), None)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return ("all",) if self._column is None else self._column[0].levels or ()

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shape = (len(self.groups), self.cells)
        return {"samples": (1,), "events": shape, "leaving": shape} | self.time_shapes

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        times = yield from self.unite(
            lambda peer: np.concatenate([each.targets for each in self._parts(peer, own(peer))])
        )
        grid = self.grid({**tensors, **times})
        shape = (2, len(self.groups), grid.cells)
        total = yield Question(lambda peer: self.counts(self._parts(peer, own(peer)), grid), size=math.prod(shape))
        counts = np.zeros((2, len(self.groups), self.cells))
        counts[:, :, : grid.cells] = total.reshape(shape)
        events, leaving = counts
        found = {**scalars(samples=leaving.sum()), "events": events, "leaving": leaving}
        return Outcome({**tensors, **times, **found}, over=True)

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse or widen cells of time in which few samples of a group leave with the event, or without it."""
        agreed = yield from check.agree()
        if agreed.least == 1 and not self.auto:
            return tensors
        sets = list[Singled]()
        if self._column is not None:
            names = feature_names(self.features, self.fields)
            sets = [
                Singled(names[place], (place,), 1.0) for place in range(self._column[1].start, self._column[1].stop)
            ]
        cells = TimeCells(self.grid(tensors), sets, lambda own: parts_of(own, owned=self.owned))
        return (yield from check_time(self, tensors, agreed, cells))

    def _parts(self, peer: str, own: Own) -> list[Part]:
        """Return the samples of a peer, which are not few."""
        parts = parts_of(own, owned=self.owned)
        check_least(peer, sum(map(len, parts)), least=self.least)
        return parts

    def counts(self, parts: Sequence[Part], grid: Grid | UnionGrid) -> Ints:
        """Return events and departures of samples, ``[2 G cells]``."""
        counts = np.zeros((2, len(self.groups) * grid.cells), np.int64)
        for part in parts:
            cell, event = grid.placed(part.targets)
            place = self._group(part) * grid.cells + cell
            counts += [np.bincount(each, minlength=counts.shape[1]) for each in (place[event], place)]
        return counts.ravel()

    def _group(self, part: Part) -> Ints:
        """Return the group of each sample: the level whose feature is largest, also where features are scaled."""
        if self._column is None:
            return np.zeros(len(part), np.int64)
        return np.asarray(part.features[:, self._column[1]].argmax(axis=1).astype(np.int64))
