""":class:`KaplanMeier`, survival curves by group from one exact total."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.rows import Layout
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.regression.coefficients import REACH
from p2pfl.plugins.exact.statistics.tensors import Statistic
from p2pfl.plugins.exact.survival.curves import kaplan_meier, log_rank
from p2pfl.plugins.exact.survival.grid import Grid, check_times
from p2pfl.plugins.exact.survival.union import MOST_TIMES, SHAPES, Union, union_of, united

FEW = 3
"""Number of departures of a cell below which they concern single samples."""


@dataclass(frozen=True, kw_only=True)
class KaplanMeier(Statistic):
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
    traits: ClassVar[ModelTraits] = ModelTraits(predicts=False, command="survival")

    features: int
    classes: int | None
    horizon: float | None = None
    width: float = 1.0
    times: str = "grid"
    group: str | None = None
    fields: tuple[Field, ...] | None = None
    owned: bool = False
    least: int = 5

    def __post_init__(self) -> None:
        check_times(self.times, horizon=self.horizon, width=self.width)
        if self.times == "grid":
            _ = self.grid({})
        if self.classes is not None:
            raise ModelError("model.name: kaplan_meier takes times until an event, not classes; choose another target")
        if self.group is not None and self._block is None:
            named = [field.name for field in self.fields or () if field.levels is not None]
            raise ModelError(
                f'model.options.group is "{self.group}", which is no column with levels; choose from '
                f"{', '.join(named) or 'none, as there is none'}"
            )

    @classmethod
    def shown(cls, options: Mapping[str, Any]) -> str:
        """Return what totals show with some options."""
        more = "the time of every sample, and " if options.get("times") == "union" else ""
        return f"{more}{cls.shows}"

    def grid(self, tensors: Tensors) -> Grid | Union:
        """Return the cells of time."""
        if self.times == "union":
            return union_of(tensors, horizon=self.horizon)
        return Grid(width=self.width, horizon=self.horizon or 0.0)

    @property
    def cells(self) -> int:
        """Number of cells that the tensors have room for."""
        return MOST_TIMES + 1 if self.times == "union" else self.grid({}).cells

    @property
    def _block(self) -> tuple[int, Field] | None:
        """Place of the first feature of the column of groups, and the column."""
        place = 0
        for field in self.fields or ():
            if field.name == self.group and field.levels is not None:
                return place, field
            place += 1 if field.levels is None else len(field.levels)
        return None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return ("all",) if self._block is None else self._block[1].levels or ()

    @property
    def layout(self) -> Layout:
        """Names and shapes of the tensors."""
        shape = (len(self.groups), self.cells)
        shapes = {"samples": (1,), "events": shape, "leaving": shape} | (SHAPES if self.times == "union" else {})
        return Layout(tuple(shapes), tuple(shapes.values()))

    def round(self, tensors: Tensors, own: Owns) -> Round:
        """Take the total; further rounds change nothing."""
        if tensors["samples"][0]:
            return Outcome(tensors, over=True)
        new = dict[str, Floats]()
        if self.times == "union":
            horizon = math.inf if self.horizon is None else self.horizon
            new = yield from united(lambda peer: self._times(peer, own(peer)), horizon=horizon)
        grid = self.grid(new)
        shape = (2, len(self.groups), grid.cells)
        total = yield Question(lambda peer: self._counted(peer, own(peer), grid), size=math.prod(shape))
        counts = np.zeros((2, len(self.groups), self.cells))
        counts[:, :, : grid.cells] = total.reshape(shape)
        events, leaving = counts
        return Outcome({"samples": np.array([leaving.sum()]), "events": events, "leaving": leaving, **new}, over=True)

    def _times(self, peer: str, own: Own) -> Floats:
        """Return the times of the samples of a peer."""
        self._check(peer, own)
        return np.concatenate([part.targets for part in self._parts(own)])

    def _counted(self, peer: str, own: Own, grid: Grid | Union) -> Ints:
        self._check(peer, own)
        return self._cells(own, grid)

    def _check(self, peer: str, own: Own) -> None:
        """Refuse to count few samples.

        Raises
        ------
        DataError
            There are fewer than ``least``.
        """
        count = sum(map(len, self._parts(own)))
        if 0 < count < self.least:
            raise DataError(
                f"{peer} has {count} samples, fewer than model.options.least = {self.least}, so its counts would show "
                "single samples; take part with more, or leave this peer out"
            )

    def _parts(self, own: Own) -> list[Part]:
        return [own.train, own.validation, *([own.test] if self.owned and own.test is not None else [])]

    def _cells(self, own: Own, grid: Grid | Union) -> Ints:
        """Return events and departures of the samples of a peer, ``[2 G cells]``."""
        found = np.zeros((2, len(self.groups) * grid.cells), np.int64)
        for part in self._parts(own):
            cell, event = grid.placed(part.targets)
            place = self._group(part) * grid.cells + cell
            found += [np.bincount(each, minlength=found.shape[1]) for each in (place[event], place)]
        return found.ravel()

    def _group(self, part: Part) -> Ints:
        """Return the group of each sample: the level whose feature is largest, also where features are scaled."""
        if self._block is None:
            return np.zeros(len(part), np.int64)
        place, field = self._block
        found: Ints = part.features[:, place : place + len(field.levels or ())].argmax(axis=1).astype(np.int64)
        return found


@dataclass(frozen=True)
class GroupCurve:
    """Survival curve of a group at the times of its events.

    Attributes
    ----------
    name, samples, events
        Name of the group, its samples, and how many have had the event.
    median
        Time by which half of them have had it; ``None`` if fewer have.
    times
        Begin of each cell with an event.
    at_risk, died
        Samples under observation, and events in the cell.
    survival, error, low, high
        Share that survives the cell, Greenwood's standard error, and the 95 % interval by the log-log transformation.
    """

    name: str
    samples: int
    events: int
    median: float | None
    times: tuple[float, ...]
    at_risk: tuple[int, ...]
    died: tuple[int, ...]
    survival: tuple[float, ...]
    error: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Survival:
    """Curves of all groups, and the log-rank test that they have one hazard.

    Attributes
    ----------
    groups
        Curves.
    statistic, p
        Statistic of the test and its p-value; ``None`` for one group, and with private noise.
    sparse
        Cells in which one or two samples leave.
    private
        True if the counts have private noise, which the standard errors include.
    """

    groups: tuple[GroupCurve, ...]
    statistic: float | None
    p: float | None
    sparse: int
    private: bool = False


def survival(tensors: Tensors, model: KaplanMeier) -> Survival:
    """Return what the counts of a model say."""
    events, leaving = (np.rint(tensors[name]).astype(np.int64) for name in ("events", "leaving"))
    grid = model.grid(tensors)
    events, leaving = events[:, : grid.cells], leaving[:, : grid.cells]
    noise = float(tensors["noise"][0]) if "noise" in tensors else None
    curves = tuple(
        _curve(name, *counts, grid=grid, noise=noise or 0.0)
        for name, *counts in zip(model.groups, events, leaving, strict=True)
    )
    if noise is not None:
        return Survival(curves, None, None, 0, private=True)
    here = leaving.sum(axis=1) > 0
    statistic, p = log_rank(events[here], leaving[here]) if here.sum() > 1 else (None, None)
    sparse = int(((leaving[:, :-1] > 0) & (leaving[:, :-1] < FEW)).sum())
    return Survival(curves, statistic, p, sparse)


def _curve(name: str, events: Ints, leaving: Ints, *, grid: Grid | Union, noise: float) -> GroupCurve:
    found = kaplan_meier(events, leaving).noised(noise)
    cells = np.flatnonzero(events)
    low, high = _interval(found.survival[cells], found.error[cells])
    times = grid.begins(cells).tolist()
    half = np.flatnonzero(found.survival[cells] <= 0.5)
    return GroupCurve(
        name,
        int(leaving.sum()),
        int(events.sum()),
        times[int(half[0])] if len(half) else None,
        tuple(times),
        tuple(found.at_risk[cells].tolist()),
        tuple(found.events[cells].tolist()),
        tuple(found.survival[cells].tolist()),
        tuple(found.error[cells].tolist()),
        tuple(low.tolist()),
        tuple(high.tolist()),
    )


def _interval(shares: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return the interval of the log-log transformation; the share itself where it is 0 or 1."""
    inside = (shares > 0) & (shares < 1)
    safe = np.where(inside, shares, 0.5)
    reach = REACH * np.where(inside, errors, 0.0) / (safe * -np.log(safe))
    low, high = safe ** np.exp(reach), safe ** np.exp(-reach)
    return np.where(inside, low, shares), np.where(inside, high, shares)
