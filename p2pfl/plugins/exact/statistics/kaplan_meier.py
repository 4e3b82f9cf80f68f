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
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.survival.grid import MAX_TIMES, UNION_SHAPES, Grid, TimedModel, UnionGrid
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
        Width of a cell of the grid.
    times
        ``grid``, or ``union`` for cells that begin at the times of all samples, which every peer then learns.
    group
        Name of a column with levels, each of which is a group; all samples are one group if ``None``.
    fields
        Columns of the table.
    owned
        True if peers own their data, so that the test part of each is counted as well.
    least
        A peer with fewer samples takes no part.

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
        return MAX_TIMES + 1 if self.united else self.grid({}).cells

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
        return {"samples": (1,), "events": shape, "leaving": shape} | (UNION_SHAPES if self.united else {})

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        times = yield from self.unite(
            lambda peer: np.concatenate([each.targets for each in self._parts(peer, own(peer))])
        )
        grid = self.grid(times)
        shape = (2, len(self.groups), grid.cells)
        total = yield Question(lambda peer: self.counts(self._parts(peer, own(peer)), grid), size=math.prod(shape))
        counts = np.zeros((2, len(self.groups), self.cells))
        counts[:, :, : grid.cells] = total.reshape(shape)
        events, leaving = counts
        return Outcome({**scalars(samples=leaving.sum()), "events": events, "leaving": leaving, **times}, over=True)

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
