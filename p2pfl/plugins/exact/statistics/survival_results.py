"""Results of survival curves as JSON values: what counts by group and cell of time say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.regression.inference import REACH
from p2pfl.plugins.exact.statistics.kaplan_meier import KaplanMeier
from p2pfl.plugins.exact.survival.competing import cumulative_incidence, gray_test
from p2pfl.plugins.exact.survival.curves import BANDS, SurvivalCurve, band, kaplan_meier, log_rank, time_of_share
from p2pfl.plugins.exact.survival.grid import Grid, UnionGrid, round_times

SPARSE_CELL = 3
"""Number of departures of a cell below which they concern single samples."""


def survival(
    tensors: Tensors, model: KaplanMeier, *, interval: str = "log-log", rmean: float | None = None
) -> dict[str, Any]:
    """Return what the counts of a model say, as JSON values.

    ``predicted`` is false. ``groups`` has the curve of each group at the times of its events: ``name``, ``samples`` and
    ``events``; the ``median`` time by which half have had the event, ``None`` if fewer have, with the ends
    ``median_low`` and ``median_high`` of its 95 % interval, where the ends of the band reach one half; with an end
    ``rmean`` the ``mean`` time without the event up to it, with ``mean_error``, ``mean_low`` and ``mean_high``; and by
    cell with an event its last time (``times``), samples ``at_risk`` and events (``died``), the share that survives it
    (``survival``), Greenwood's standard ``error``, and ``low`` and ``high`` ends of the 95 % ``interval``.
    ``remaining`` counts those at risk at each of ``risk_times``. ``statistic`` and ``p`` are of the log-rank test that
    all groups have one hazard, ``None`` for one group, and with private noise (``private``), which errors include.
    ``sparse`` counts the cells in which one or two samples leave, and ``widest`` is the width of the widest of all.
    With a column ``cause``, ``causes`` has for each kind
    of event its ``name``, ``statistic`` and ``p`` of Gray's test that all groups have one cumulative incidence, and
    by group ``times``, events (``died``), cumulative ``incidence``, its ``error``, ``low`` and ``high``; the curves
    before are those without any event.

    Parameters
    ----------
    tensors, model
        The counts, and the model that has them.
    interval
        One of :data:`~p2pfl.plugins.exact.survival.curves.BANDS`.
    rmean
        End of the restricted mean; there is no mean if ``None``.

    Raises
    ------
    InputError
        There is no such interval, or the mean ends outside of the grid of times.
    """
    if interval not in BANDS:
        raise InputError(f'--interval is "{interval}"; choose from {", ".join(BANDS)}')
    grid = model.grid(tensors)
    events, leaving = (np.rint(tensors[name]).astype(np.int64)[:, : grid.cells] for name in ("events", "leaving"))
    private = "noise" in tensors
    end = _end(grid, leaving)
    if rmean is not None and not 0 < rmean <= end:
        raise InputError(f"--rmean {rmean:g} is not within the times, which end at {end:g}; choose an earlier end")
    estimate = _Estimate(
        grid, end=end, noise=float(tensors["noise"][0]) if private else 0.0, interval=interval, rmean=rmean
    )
    groups = [estimate.group(name, *counts) for name, *counts in zip(model.groups, events, leaving, strict=True)]
    here, test, sparse = leaving.sum(axis=1) > 0, None, 0
    if not private:
        test = log_rank(events[here], leaving[here]) if here.sum() > 1 else None
        sparse = int(((leaving[:, :-1] > 0) & (leaving[:, :-1] < SPARSE_CELL)).sum())
    statistic, p = test or (None, None)
    causes = []
    if model.cause is not None:
        caused = np.rint(tensors["caused"]).astype(np.int64)[:, :, : grid.cells]
        causes = [estimate.cause(name, index, caused, leaving, model.groups) for index, name in enumerate(model.causes)]
    return {
        "predicted": False,
        "group": model.group,
        "groups": groups,
        "cause": model.cause,
        "causes": causes,
        "risk_times": estimate.risk_times,
        "interval": interval,
        "rmean": rmean,
        "statistic": statistic,
        "p": p,
        "sparse": sparse,
        "widest": _widest(grid),
        "private": private,
    }


def _widest(grid: Grid | UnionGrid) -> float:
    """Return the time between the begin of the widest cell and its last time."""
    cells = np.arange(grid.cells - 1)
    return float(np.max(grid.ends(cells) - grid.begins(cells), initial=0.0))


def _end(grid: Grid | UnionGrid, leaving: Ints) -> float:
    """Return the end of the grid, or the last time of samples that it has."""
    if isinstance(grid, Grid):
        return grid.horizon
    if not grid.points:
        return grid.horizon
    last = np.flatnonzero(leaving[:, : grid.cells - 1].sum(axis=0))
    return float(grid.times[last[-1]]) if len(last) else 0.0


@dataclass(frozen=True)
class _Estimate:
    """Estimates of a group from its counts.

    Parameters
    ----------
    grid, end
        Cells of time, and their end.
    noise
        Deviation of private noise of each count.
    interval, rmean
        As of :func:`survival`.
    """

    grid: Grid | UnionGrid
    end: float
    noise: float
    interval: str
    rmean: float | None

    @property
    def risk_times(self) -> list[float]:
        """Times at which those at risk are counted."""
        if isinstance(self.grid, Grid):
            return round_times(self.end, self.grid.width)
        times = round_times(self.end)
        if self.grid.points:
            return times
        near = np.abs(self.grid.times[:, None] - np.array(times)).argmin(axis=0)  # only where cells begin is known
        return [float(time) for time in self.grid.times[np.unique(near)]]

    def group(self, name: str, events: Ints, leaving: Ints) -> dict[str, Any]:
        """Return the results of a group."""
        curve = kaplan_meier(events, leaving).noised(self.noise)
        cells = np.flatnonzero(events)
        shares, times = curve.survival[cells], self.grid.ends(cells)
        low, high = band(shares, curve.error[cells], kind=self.interval)
        left = np.flatnonzero(leaving[:-1])
        last = float(self.grid.ends(left[-1:])[0]) if len(left) else 0.0
        alive = shares > 0  # the interval of a share of zero is unknown
        ends = [time_of_share(times[alive], each[alive], 0.5, end=last) for each in (low, high)]
        return {
            "name": name,
            "samples": int(leaving.sum()),
            "events": int(events.sum()),
            "median": time_of_share(times, shares, 0.5, end=last),
            "median_low": ends[0],
            "median_high": ends[1],
            **self._mean(curve),
            "times": times.tolist(),
            "at_risk": curve.at_risk[cells].tolist(),
            "died": curve.events[cells].tolist(),
            "survival": shares.tolist(),
            "error": curve.error[cells].tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "remaining": [self._remaining(curve, time) for time in self.risk_times],
        }

    def cause(self, name: str, index: int, caused: Ints, leaving: Ints, groups: Sequence[str]) -> dict[str, Any]:
        """Return the cumulative incidence of a cause by group, from events by cause, group and cell ``[K, G, C]``."""
        here = leaving.sum(axis=1) > 0
        test = gray_test(caused[:, here], leaving[here], index) if here.sum() > 1 and caused[index].any() else None
        statistic, p = test or (None, None)
        curves = []
        for number, group in enumerate(groups):
            curve = cumulative_incidence(caused[:, number], leaving[number], index)
            cells = np.flatnonzero(caused[index, number])
            shares, errors = curve.share[cells], curve.error[cells]
            low, high = band(shares, errors, kind=self.interval)
            curves.append(
                {
                    "name": group,
                    "times": self.grid.ends(cells).tolist(),
                    "died": caused[index, number, cells].tolist(),
                    "incidence": shares.tolist(),
                    "error": errors.tolist(),
                    "low": low.tolist(),
                    "high": high.tolist(),
                }
            )
        return {"name": name, "groups": curves, "statistic": statistic, "p": p}

    def _mean(self, curve: SurvivalCurve) -> dict[str, float | None]:
        """Return the restricted mean; its error does not include private noise, so that has none."""
        if self.rmean is None:
            return {}
        every = np.arange(self.grid.cells - 1)
        middles = (self.grid.begins(every) + self.grid.ends(every)) / 2
        mean, error = curve.mean_until(self.rmean, middles)
        if self.noise:
            return {"mean": mean, "mean_error": None, "mean_low": None, "mean_high": None}
        reach = REACH * error
        return {"mean": mean, "mean_error": error, "mean_low": mean - reach, "mean_high": mean + reach}

    def _remaining(self, curve: SurvivalCurve, time: float) -> int:
        """Return how many are at risk at a time: those who leave in its cell or later."""
        begins = self.grid.begins(np.arange(self.grid.cells - 1))
        if isinstance(self.grid, Grid):
            cell = int(np.searchsorted(begins, time * (1 + 1e-12), side="right")) - 1
        else:
            cell = int(np.searchsorted(begins, time))
        return int(curve.at_risk[cell])
