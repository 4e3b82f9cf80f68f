""":class:`KaplanMeier`, survival curves by group from one exact total."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError, ModelError
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
    cause
        Column with levels that says which kind of event happened; its first level is none. Then cumulative incidences
        follow as well.
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
    checks: ClassVar[str] = "a cell of time of a group, with the event or without it"
    subject: ClassVar[str] = "a survival curve"
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, test=0.0, command="survival")

    group: str | None = None
    cause: str | None = None
    fields: tuple[Field, ...] | None = None
    owned: bool = False
    least: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, name in (("group", self.group), ("cause", self.cause)):
            if name is not None and self._located(name) is None:
                named = [field.name for field in self.fields or () if field.levels is not None]
                raise ModelError(
                    f'model.options.{option} is "{name}", which is no column with levels; choose from '
                    f"{', '.join(named) or 'none, as there is none'}"
                )

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        kinds = "with each kind of event" if options.get("cause") else "with the event"
        return super().shown(options).replace("with the event", kinds)

    @property
    def cells(self) -> int:
        """Number of cells that the tensors have room for."""
        return self.room + 1 if self.listed else self.grid({}).cells

    def _located(self, name: str | None) -> tuple[Field, slice] | None:
        """Return a column with levels, and its features."""
        columns = located(self.features, self.fields)
        return next((each for each in columns if each[0].name == name and each[0].levels is not None), None)

    @property
    def _column(self) -> tuple[Field, slice] | None:
        """The column of groups, and its features."""
        return self._located(self.group)

    @property
    def event_kinds(self) -> str | None:
        """Name of the column that says which kind of event happened."""
        return self.cause

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of the kinds of events."""
        column = self._located(self.cause)
        return ("event",) if column is None else (column[0].levels or ())[1:]

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return ("all",) if self._column is None else self._column[0].levels or ()

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name."""
        shape = (len(self.groups), self.cells)
        caused = {} if self.cause is None else {"caused": (len(self.causes), *shape)}
        return {"samples": (1,), "events": shape, "leaving": shape} | caused | self.time_shapes

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        times = yield from self.unite(
            lambda peer: np.concatenate([each.targets for each in self._parts(peer, own(peer))])
        )
        grid = self.grid({**tensors, **times})
        shape = (len(self.causes) + 1, len(self.groups), grid.cells)
        total = yield Question(lambda peer: self.counts(self._parts(peer, own(peer)), grid), size=math.prod(shape))
        counts = np.zeros((*shape[:2], self.cells))
        counts[:, :, : grid.cells] = total.reshape(shape)
        caused, leaving = counts[:-1], counts[-1]
        totals = {**scalars(samples=leaving.sum()), "events": caused.sum(axis=0), "leaving": leaving}
        totals |= {} if self.cause is None else {"caused": caused}
        return Outcome({**tensors, **times, **totals}, over=True)

    def check_cells(self, tensors: Tensors, check: CellCheck[Own]) -> Asked[Tensors]:
        """Refuse or widen cells of time in which few samples of a group leave with the event, or without it."""
        agreed = yield from check.agree()
        if agreed.least == 1 and not self.auto:
            return tensors
        sets = list[Singled]()
        if self._column is not None:
            names = feature_names(self.features, self.fields)
            sets = [
                Singled(names[index], (index,), 1.0) for index in range(self._column[1].start, self._column[1].stop)
            ]
        ways = len(self.causes) + 1
        cells = TimeCells(self.grid(tensors), sets, lambda own: parts_of(own, owned=self.owned), self._moves, ways)
        return (yield from check_time(self, tensors, agreed, cells))

    def _parts(self, peer: str, own: Own) -> list[Part]:
        """Return the samples of a peer, which are not few."""
        parts = parts_of(own, owned=self.owned)
        check_least(peer, sum(map(len, parts)), least=self.least)
        if any((self._kind(part)[~np.signbit(part.targets)] < 0).any() for part in parts):
            raise DataError(
                f'{peer} has events whose kind in "{self.cause}" is its first level, which is none; correct them'
            )
        return parts

    def _kind(self, part: Part) -> Ints:
        """Return the kind of the event of each sample, -1 for none; 0 for all without a column of kinds."""
        column = self._located(self.cause)
        return np.zeros(len(part), np.int64) if column is None else _level(part, column[1]) - 1

    def _moves(self, part: Part, grid: Grid | UnionGrid) -> list[Ints]:
        """Return the cell of each sample that leaves without an event, and with each kind of it; -1 for none."""
        cell, event = grid.placed(part.targets)
        kind = np.where(event, self._kind(part), -1)
        return [np.where(kind == each, cell, -1) for each in range(-1, len(self.causes))]

    def counts(self, parts: Sequence[Part], grid: Grid | UnionGrid) -> Ints:
        """Return events by kind, and departures of samples, ``[(K + 1) G cells]``."""
        size = len(self.groups) * grid.cells
        counts = np.zeros((len(self.causes) + 1, size), np.int64)
        for part in parts:
            cell, event = grid.placed(part.targets)
            index = self._group(part) * grid.cells + cell
            kind = self._kind(part)
            chosen = [*(event & (kind == each) for each in range(len(self.causes))), slice(None)]
            counts += [np.bincount(index[each], minlength=size) for each in chosen]
        return counts.ravel()

    def _group(self, part: Part) -> Ints:
        """Return the group of each sample."""
        return np.zeros(len(part), np.int64) if self._column is None else _level(part, self._column[1])


def _level(part: Part, where: slice) -> Ints:
    """Return the level of each sample: that whose feature is largest, also where features are scaled."""
    return np.asarray(part.features[:, where].argmax(axis=1).astype(np.int64))
