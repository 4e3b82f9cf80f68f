""":class:`KaplanMeier`, survival curves by group from one exact total."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import ModelError
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Outcome, Own, Owns, Part, Round, Tensors
from p2pfl.plugins.exact.columns import located
from p2pfl.plugins.exact.elementary import added, inverse, times
from p2pfl.plugins.exact.regression.fits import REACH
from p2pfl.plugins.exact.survival.grid import MAX_TIMES, UNION_SHAPES, Grid, TimedModel, UnionGrid
from p2pfl.plugins.exact.tensor_model import Shapes, Statistic, check_least, parts_of, scalars

SPARSE_CELL = 3
"""Number of departures of a cell below which they concern single samples."""


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


def survival(tensors: Tensors, model: KaplanMeier) -> dict[str, Any]:
    """Return what the counts of a model say, as JSON values.

    ``groups`` has the curve of each group at the times of its events: ``name``, ``samples`` and ``events``; the
    ``median`` time by which half have had the event, ``None`` if fewer have; and by cell with an event its begin
    (``times``), samples ``at_risk`` and events (``died``), the share that survives it (``survival``), Greenwood's
    standard ``error``, and ``low`` and ``high`` ends of the 95 % interval by the log-log transformation. ``statistic``
    and ``p`` are of the log-rank test that all groups have one hazard, ``None`` for one group, and with private noise
    (``private``), which errors include. ``sparse`` counts the cells in which one or two samples leave.
    """
    events, leaving = (np.rint(tensors[name]).astype(np.int64) for name in ("events", "leaving"))
    grid = model.grid(tensors)
    events, leaving = events[:, : grid.cells], leaving[:, : grid.cells]
    private = "noise" in tensors
    noise = float(tensors["noise"][0]) if private else 0.0
    groups = [
        _group_curve(name, *counts, grid=grid, noise=noise)
        for name, *counts in zip(model.groups, events, leaving, strict=True)
    ]
    here, test, sparse = leaving.sum(axis=1) > 0, None, 0
    if not private:
        test = log_rank(events[here], leaving[here]) if here.sum() > 1 else None
        sparse = int(((leaving[:, :-1] > 0) & (leaving[:, :-1] < SPARSE_CELL)).sum())
    statistic, p = test or (None, None)
    return {"groups": groups, "statistic": statistic, "p": p, "sparse": sparse, "private": private}


def _group_curve(name: str, events: Ints, leaving: Ints, *, grid: Grid | UnionGrid, noise: float) -> dict[str, Any]:
    curve = kaplan_meier(events, leaving).noised(noise)
    cells = np.flatnonzero(events)
    low, high = _interval(curve.survival[cells], curve.error[cells])
    times = grid.begins(cells).tolist()
    half = np.flatnonzero(curve.survival[cells] <= 0.5)
    return {
        "name": name,
        "samples": int(leaving.sum()),
        "events": int(events.sum()),
        "median": times[int(half[0])] if len(half) else None,
        "times": times,
        "at_risk": curve.at_risk[cells].tolist(),
        "died": curve.events[cells].tolist(),
        "survival": curve.survival[cells].tolist(),
        "error": curve.error[cells].tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
    }


def _interval(shares: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Return the interval of the log-log transformation; the share itself where it is 0 or 1."""
    inside = (shares > 0) & (shares < 1)
    safe = np.where(inside, shares, 0.5)
    reach = REACH * np.where(inside, errors, 0.0) / (safe * -np.log(safe))
    low, high = safe ** np.exp(reach), safe ** np.exp(-reach)
    return np.where(inside, low, shares), np.where(inside, high, shares)


@dataclass(frozen=True)
class SurvivalCurve:
    """Kaplan-Meier curve.

    Attributes
    ----------
    at_risk, events
        Samples under observation at the begin of each cell, and events in it, ``[cells]``.
    survival, error
        Share that survives each cell, and its standard error by Greenwood's formula, ``[cells]``.
    """

    at_risk: Ints
    events: Ints
    survival: Floats
    error: Floats

    def noised(self, noise: float) -> SurvivalCurve:
        r"""Return the curve with errors that include noise of the counts.

        Events :math:`d_c` and censored samples of each cell have noise of deviation :math:`\sigma`, and so

        .. math:: \operatorname{Var} \log S(c) = \sigma^2 \Bigl( \sum_{j \le c} \bigl(A_j^2 + (A_j - g_j)^2\bigr)
                  + 2 (J - 1 - c) A_c^2 \Bigr), \qquad A_j = \sum_{i \le j} \frac{d_i}{n_i (n_i - d_i)}, \quad
                  g_j = \frac{1}{n_j - d_j}

        to the first order, with J cells, as :math:`n_j` counts the samples of all later cells.
        """
        if not noise:
            return self
        there, alive = self.at_risk.astype(np.float64), (self.at_risk - self.events).astype(np.float64)
        safe = np.maximum(alive, 1.0)
        rising = np.add.accumulate(np.where(alive > 0, self.events / (np.maximum(there, 1.0) * safe), 0.0))
        inner = np.add.accumulate(rising * rising + (rising - np.where(alive > 0, 1 / safe, 0.0)) ** 2)
        later = np.arange(len(there))[::-1]
        spread = noise * noise * (inner + 2 * later * rising * rising)
        return replace(self, error=np.sqrt(self.error**2 + self.survival**2 * spread))


def kaplan_meier(events: Ints, leaving: Ints) -> SurvivalCurve:
    r"""Return the curve that follows from totals.

    .. math:: S(c) = \prod_{c' \le c} \Bigl(1 - \frac{d_{c'}}{n_{c'}}\Bigr), \qquad
              \operatorname{Var} S(c) = S(c)^2 \sum_{c' \le c} \frac{d_{c'}}{n_{c'} (n_{c'} - d_{c'})}

    Parameters
    ----------
    events, leaving
        Events in each cell, and samples that leave in it with or without the event, ``[cells]``.

    Examples
    --------
    >>> kaplan_meier(np.array([1, 0, 1]), np.array([1, 1, 2])).survival.tolist()
    [0.75, 0.75, 0.375]

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 53, 1958.
    """
    at_risk = np.cumsum(leaving[::-1])[::-1]
    survival, hazard = np.ones(len(events)), np.zeros(len(events))
    alive, spread = 1.0, 0.0
    for cell, (died, there) in enumerate(zip(events.tolist(), at_risk.tolist(), strict=True)):
        if there:
            alive *= 1 - died / there
            spread += died / (there * (there - died)) if there > died else math.inf if died else 0.0
        survival[cell], hazard[cell] = alive, spread
    error = np.where(survival > 0, survival * np.sqrt(np.where(survival > 0, hazard, 0.0)), 0.0)
    return SurvivalCurve(at_risk, events, survival, error)


def log_rank(events: Ints, leaving: Ints) -> tuple[float, float]:
    """Return the statistic and the p-value of the log-rank test that groups have one hazard.

    Parameters
    ----------
    events, leaving
        As of :func:`kaplan_meier`, by group, ``[G, cells]``.

    Examples
    --------
    >>> log_rank(np.array([[1, 0], [1, 0]]), np.array([[1, 1], [1, 1]]))
    (0.0, 1.0)

    References
    ----------
    Mantel, Evaluation of survival data and two new rank order statistics, Cancer Chemotherapy Reports 50, 1966.
    """
    groups = len(events)
    at_risk = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1]  # [G, cells]
    died, there = events.sum(0), at_risk.sum(0)
    surplus, variance = np.zeros(groups), np.zeros((groups, groups))
    for cell in np.flatnonzero(died).tolist():
        share = at_risk[:, cell] / there[cell]
        surplus = surplus + events[:, cell] - died[cell] * share
        if there[cell] > 1:
            factor = died[cell] * (there[cell] - died[cell]) / (there[cell] - 1)
            variance = variance + factor * (np.diag(share) - share[:, None] * share[None, :])
    inverted, _ = inverse(variance[:-1, :-1])
    statistic = abs(added(times(inverted, surplus[:-1]) * surplus[:-1]))
    return statistic, float(scipy.special.chdtrc(groups - 1, statistic))
