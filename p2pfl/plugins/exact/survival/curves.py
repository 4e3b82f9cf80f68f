""":class:`SurvivalCurve`: shares without the event from counts by cell of time, with intervals, quantiles and means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 6 MiB

from p2pfl.core.encodings import Floats, Ints
from p2pfl.plugins.exact.elementary import added, inverse, times
from p2pfl.plugins.exact.regression.inference import REACH

BANDS = ("log-log", "log", "plain")
"""Transformations on which an interval is symmetric; lifelines and Stata take the first by default, R the second."""

SAME_SHARE = 1.5e-8
"""Difference up to which two shares are one, as in R."""


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

    def mean_until(self, end: float, times: Floats) -> tuple[float, float]:
        r"""Return the mean time without the event up to an end, and its standard error.

        .. math:: \mu = \int_0^\tau S(t) \, dt, \qquad
                  \operatorname{Var} \mu = \sum_c \Bigl(\int_{t_c}^\tau S(t) \, dt\Bigr)^2 \frac{d_c}{n_c (n_c - d_c)}

        Beyond the last cell the curve stays as it is.

        Parameters
        ----------
        end
            :math:`\tau`, in the unit of the times.
        times
            Time at which the events of each cell of the grid count, ``[b]``; cells beyond have no events.

        References
        ----------
        Irwin, The standard error of an estimate of expectation of life, Journal of Hygiene 47, 1949.
        """
        within = np.flatnonzero((self.events[: len(times)] > 0) & (times <= end))
        steps, shares = times[within], self.survival[within]
        areas = np.diff(np.append(steps, end)) * shares  # after each event
        first = float(steps[0]) if len(steps) else end
        later = np.cumsum(areas[::-1])[::-1]
        died, there = self.events[within].astype(np.float64), self.at_risk[within].astype(np.float64)
        alive = there - died
        hazard = np.where(alive > 0, died / (there * np.where(alive > 0, alive, 1.0)), 0.0)
        return first + float(areas.sum()), math.sqrt(float((later * later * hazard).sum()))

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


def band(shares: Floats, errors: Floats, *, kind: str) -> tuple[Floats, Floats]:
    r"""Return the ends of pointwise 95 % intervals of shares.

    With :math:`u = z \sigma / S` they are :math:`S^{\exp(\pm u / \log S)}` (``log-log``),
    :math:`\min(1, S e^{\pm u})` (``log``) or :math:`S \pm z \sigma`, from 0 to 1 (``plain``).

    Parameters
    ----------
    shares, errors
        Shares and their standard errors, ``[n]``. The interval of 0 or 1 is the share itself.
    kind
        One of :data:`BANDS`.

    Examples
    --------
    >>> low, high = band(np.array([0.5]), np.array([0.1]), kind="log")
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.3379], [0.74])
    """
    inside = (shares > 0) & (shares < 1)
    safe = np.where(inside, shares, 0.5)
    reach = REACH * np.where(inside, errors, 0.0)
    if kind == "log-log":
        low, high = (safe ** np.exp(sign * reach / (safe * -np.log(safe))) for sign in (1, -1))
    elif kind == "log":
        low, high = safe * np.exp(-reach / safe), safe * np.exp(reach / safe)
    else:
        low, high = safe - reach, safe + reach
    return np.where(inside, np.maximum(low, 0.0), shares), np.where(inside, np.minimum(high, 1.0), shares)


def time_of_share(times: Floats, shares: Floats, share: float, *, end: float) -> float | None:
    """Return the time at which a falling curve reaches a share; ``None`` if it does not.

    Where the curve has the share for a while, it is the middle of that while, as in R.

    Parameters
    ----------
    times, shares
        Steps of the curve, ``[n]``.
    share
        The share, such as 0.5 for the median.
    end
        End of the last step.

    Examples
    --------
    >>> steps = np.array([1.0, 3.0, 7.0])
    >>> time_of_share(steps, np.array([0.8, 0.5, 0.2]), 0.5, end=9.0)
    5.0
    >>> time_of_share(steps, np.array([0.8, 0.6, 0.2]), 0.5, end=9.0)
    7.0
    """
    reached = np.flatnonzero(shares <= share + SAME_SHARE)
    passed = np.flatnonzero(shares <= share - SAME_SHARE)
    if not len(reached):
        return None
    until = float(times[passed[0]]) if len(passed) else end
    first = float(times[reached[0]])
    return first if len(passed) and passed[0] == reached[0] else (first + until) / 2


def kaplan_meier(events: Ints, leaving: Ints, entering: Ints | None = None) -> SurvivalCurve:
    r"""Return the curve that follows from totals.

    .. math:: S(c) = \prod_{c' \le c} \Bigl(1 - \frac{d_{c'}}{n_{c'}}\Bigr), \qquad
              \operatorname{Var} S(c) = S(c)^2 \sum_{c' \le c} \frac{d_{c'}}{n_{c'} (n_{c'} - d_{c'})}

    Parameters
    ----------
    events, leaving
        Events in each cell, and samples that leave in it with or without the event, ``[cells]``.
    entering
        Samples that enter in each cell, and are at risk in later ones; all enter before the first one if ``None``.

    Examples
    --------
    >>> kaplan_meier(np.array([1, 0, 1]), np.array([1, 1, 2])).survival.tolist()
    [0.75, 0.75, 0.375]

    References
    ----------
    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA 53, 1958.
    """
    present = leaving if entering is None else leaving - entering
    at_risk = np.cumsum(present[::-1])[::-1]
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
