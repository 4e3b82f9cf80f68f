"""Kaplan-Meier curves and the log-rank test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.elementary import added, inverse, times


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
