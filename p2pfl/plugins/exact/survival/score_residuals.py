"""Residuals of Cox regressions: for robust standard errors, and for the test of proportional hazards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.explanations import FittedTest
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.elementary import added, inverse, times
from p2pfl.plugins.exact.survival.risk_sets import CellSums, risk_sets


@dataclass(frozen=True, eq=False)
class ScoreCells:
    """Public numbers by stratum and cell, from which an owner computes the residuals of its samples.

    Parameters
    ----------
    hazard, means
        Increments of the hazard, and of the mean features weighted by it, ``[S C]`` and ``[S C, p]``.
    own_hazard, own_means
        The same for those with the event in the cell, of which Efron's method takes a part.
    centre
        Mean features that those with the event in the cell are compared with, ``[S C, p]``.
    staying
        Share that censoring leaves before each cell, ``[S C]``.
    """

    hazard: Floats
    means: Floats
    own_hazard: Floats
    own_means: Floats
    centre: Floats
    staying: Floats

    @classmethod
    def of(cls, sums: CellSums, *, efron: bool) -> ScoreCells:
        """Return the numbers that follow from sums."""
        strata, cells = sums.died.shape
        hazard, own_hazard = np.zeros((2, strata * cells))
        means, own_means, centre = np.zeros((3, strata * cells, sums.width))
        for each in risk_sets(sums, efron=efron):
            index = each.stratum * cells + each.cell
            hazard[index] += 1 / each.total
            means[index] += each.mean / each.total
            own_hazard[index] += (1 - each.share) / each.total
            own_means[index] += (1 - each.share) * each.mean / each.total
            centre[index] += each.mean / sums.died[each.stratum, each.cell]
        return cls(hazard, means, own_hazard, own_means, centre, np.tile(sums.staying, strata))

    def residuals(
        self,
        features: Floats,
        risks: Floats,
        cell: Ints,
        *,
        event: npt.NDArray[np.bool_],
        diverted: npt.NDArray[np.bool_],
        entered: Ints | None,
        cells: int,
    ) -> Floats:
        """Return the score residual of each sample, ``[n, p]``.

        Parameters
        ----------
        features, risks
            Features less their means ``[n, p]``, and exponentials of the log risks ``[n]``.
        cell, event, diverted
            Cell of stratum and time in which each sample leaves, whether with the event, and whether with another one,
            after which it stays at risk.
        entered
            Cell in which each sample enters, -1 from the begin on.
        cells
            C, number of cells of a stratum.

        References
        ----------
        Lin and Wei, The robust inference for the Cox proportional hazards model, JASA 84, 1989.
        """
        table = np.column_stack([self.hazard, self.means])  # [S C, 1 + p]
        strata = len(table) // cells
        before = _before(table, strata)
        passed = np.where(event[:, None], before[cell] + np.column_stack([self.own_hazard, self.own_means])[cell], 0.0)
        passed = np.where(event[:, None], passed, before[cell] + table[cell])
        if entered is not None:
            late = np.maximum(entered, 0)
            passed = passed - np.where((entered >= 0)[:, None], before[late] + table[late], 0.0)
        staying = np.where(self.staying > 0, self.staying, 1.0)
        weighted = table * self.staying[:, None]
        after = _before(weighted[::-1], strata)[::-1]
        passed = passed + np.where(diverted[:, None], after[cell] / staying[cell][:, None], 0.0)
        seen = np.where(event[:, None], features - self.centre[cell], 0.0)
        return np.asarray(seen - risks[:, None] * (features * passed[:, :1] - passed[:, 1:]))


def _before(table: Floats, strata: int) -> Floats:
    """Return the sums over the earlier cells of the stratum of each cell."""
    by_stratum = table.reshape(strata, -1, table.shape[1])
    return (np.cumsum(by_stratum, axis=1) - by_stratum).reshape(table.shape)


def proportionality(
    tensors: Tensors, kept: Sequence[int], columns: Sequence[tuple[Field, slice]]
) -> tuple[FittedTest, ...]:
    """Return a test for each column, and one for all of them, as R's ``cox.zph``.

    Parameters
    ----------
    tensors
        ``drift`` with ``drift_variance`` of p features, and their ``covariance``, whose row is zero for a feature that
        others determine.
    kept
        Position of each of the p features among all of the data.
    columns
        Columns of the table with their places among the features.

    References
    ----------
    Grambsch and Therneau, Proportional hazards tests and diagnostics based on weighted residuals, Biometrika 81, 1994.
    """
    free = np.diag(tensors["covariance"]) > 0
    groups = [
        (field.name, [index for index, feature in enumerate(kept) if where.start <= feature < where.stop])
        for field, where in columns
    ]
    tests = [_tested(name, tensors, [index for index in places if free[index]]) for name, places in groups if places]
    whole = _tested("all columns", tensors, np.flatnonzero(free).tolist())
    return tuple(test for test in (*tests, whole) if test.freedom)


def _tested(name: str, tensors: Tensors, places: list[int]) -> FittedTest:
    score = tensors["drift"][places]
    inverted, dependent = inverse(tensors["drift_variance"][np.ix_(places, places)])
    statistic = abs(added(score * times(inverted, score)))
    freedom = len(places) - len(dependent)
    return FittedTest(name, statistic, freedom, float(scipy.special.chdtrc(max(1, freedom), statistic)))
